"""Signing in at an authorization server that is not of our own stack: `oidc-provider`, on loopback."""

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import keyring
import pytest
import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from keyring.backends.fail import Keyring as NoKeyring
from node_tools import node_environment, npm_package
from pydantic import AnyHttpUrl
from sign_in_fakes import Person

from smart_mcp_proxy.errors import UpstreamAuthError
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import Dialer, SignIns

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

OIDC_PROVIDER = "oidc-provider@9.6.0"
SCRIPT = Path(__file__).with_name("oidc_provider.mjs")
ACTION = re.compile(r'action="([^"]+)"')
PROMPT = re.compile(r'name="prompt" value="([^"]+)"')


@asynccontextmanager
async def authorization_server(resource: str) -> AsyncIterator[str]:
    """The issuer of a running `oidc-provider` that knows this resource."""
    package = npm_package(OIDC_PROVIDER)
    command = ["node", str(SCRIPT), str(package), resource]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=node_environment() | {"NODE_ENV": "test"}
    )
    assert process.stdout is not None
    try:
        with anyio.fail_after(30):
            issuer = (await process.stdout.readline()).decode().strip()
        yield issuer
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def resource_server() -> AsyncIterator[tuple[str, str]]:
    """Address and issuer of a FastMCP server that accepts the tokens made for it, and no others."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with authorization_server(f"{base}/mcp") as issuer:
            verifier = JWTVerifier(
                jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=f"{base}/mcp", required_scopes=["tools:read"]
            )
            auth = RemoteAuthProvider(verifier, [AnyHttpUrl(issuer)], base_url=base)
            target = FastMCP("guarded", auth=auth)
            target.tool(lambda: "somebody", name="whoami")
            app = target.http_app(path="/mcp")
            server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=0))
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve(sockets=[listener]))
                try:
                    yield f"{base}/mcp", issuer
                finally:
                    server.should_exit = True


async def consent(url: str) -> Any:
    """A person who fills in every form until the browser is back."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=20) as client:
        page = await client.get(url)
        while found := ACTION.search(page.text):
            prompt = PROMPT.search(page.text)
            assert prompt, page.text
            form = {"prompt": prompt[1], "login": "somebody", "password": "something"}
            page = await client.post(str(page.url.join(found[1])), data=form)
        return page.status_code


async def test_a_sign_in_is_had_renewed_and_given_back(tmp_path: Path) -> None:
    """OIDC discovery, registration, consent, `iss`, the resource as audience, a rotated refresh token, revocation."""
    keyring.set_keyring(NoKeyring())
    sign_ins = SignIns(tmp_path)
    with anyio.fail_after(120):
        async with resource_server() as (url, issuer):
            config = ServerConfig("web", "http", url=url, oauth={})
            person = Person(consent, timeout_s=60)
            async with person.browser() as browser:
                first = await sign_ins.sign_in(config, browser)
            assert (first.issuer.rstrip("/"), person.replies, bool(first.refresh_token)) == (issuer, [200], True)
            async with Dialer(sign_ins=sign_ins) as dial:
                link = await dial(config, environ=dict(os.environ), era=None, on_event=lambda _: None)
                tokens = set()
                while len(tokens) < 3:  # each lives for 4 s
                    result = await link.request("tools/call", {"name": "whoami", "arguments": {}}, timeout_s=20)
                    assert b"somebody" in result
                    bearer = await sign_ins.bearer(config)
                    tokens.add(await bearer.token())
                    await bearer.close()
                await link.close()
            done = await sign_ins.sign_out(config)
            assert (done.was_signed_in, done.is_revoked, done.problem) == (True, True, "")
            with pytest.raises(UpstreamAuthError):
                await sign_ins.bearer(config)
