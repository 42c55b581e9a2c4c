"""An authorization server that is not of our own stack, `oidc-provider` on loopback, and a server that it guards."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from node_tools import node_environment, npm_package
from pydantic import AnyHttpUrl
from run_wire import Watched

OIDC_PROVIDER = "oidc-provider@9.13.3"
SCRIPT = Path(__file__).with_name("oidc_provider.mjs")
ANY_PORT = ("127.0.0.1", 0)
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
TRADER = {
    "client_id": "the-gateway",
    "client_secret": "only of a test",
    "grant_types": [EXCHANGE],
    "response_types": [],
    "redirect_uris": [],
}
"""The gateway as the provider knows it that trades tokens."""

Add = Callable[[FastMCP[Any]], object]


def base_url(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def authorization_server(
    resource: str, client: dict[str, Any] | None = None, seen: dict[str, Any] | None = None, door: str = ""
) -> AsyncIterator[str]:
    """The issuer of a running `oidc-provider` that knows this resource, and this client; at its end, what it saw.

    Args:
        resource: What its tokens are for.
        client: As it would be registered.
        seen: Filled at the end.
        door: Another resource, whose tokens it trades.
    """
    package = npm_package(OIDC_PROVIDER)
    command = ["node", str(SCRIPT), str(package), resource, json.dumps(client) if client else "", door]
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
        told = await process.stdout.read()
        await process.wait()
        if seen is not None:
            seen |= json.loads(told.splitlines()[-1])  # behind remarks of its own


@asynccontextmanager
async def served(listener: socket.socket, issuer: str, add: Add) -> AsyncIterator[None]:
    """A FastMCP server there that accepts the tokens of this issuer that are made for it, and no others."""
    base = base_url(listener)
    verifier = JWTVerifier(
        jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=f"{base}/mcp", required_scopes=["tools:read"]
    )
    auth = RemoteAuthProvider(verifier, [AnyHttpUrl(issuer)], base_url=base)
    target = FastMCP("guarded", auth=auth)
    target.tool(lambda: "somebody", name="whoami")
    add(target)
    app = Watched(target.http_app(path="/mcp"))
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=0, lifespan="on")
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve(sockets=[listener]))
        try:
            yield
        finally:
            server.should_exit = True


@asynccontextmanager
async def resource_server(
    add: Add = lambda target: None, seen: dict[str, Any] | None = None
) -> AsyncIterator[tuple[str, str]]:
    """Address and issuer of a server that people sign in to; `add` gives tools."""
    with socket.create_server(ANY_PORT) as listener:
        url = f"{base_url(listener)}/mcp"
        async with authorization_server(url, seen=seen) as issuer, served(listener, issuer, add):
            yield url, issuer


@asynccontextmanager
async def trading_server(add: Add, seen: dict[str, Any]) -> AsyncIterator[tuple[str, str, str]]:
    """Address and issuer of a server that takes traded tokens, and the address of the one whose tokens are traded."""
    with socket.create_server(ANY_PORT) as listener, socket.create_server(ANY_PORT) as door:
        url, front = f"{base_url(listener)}/mcp", f"{base_url(door)}/mcp"
        async with (
            authorization_server(url, TRADER, seen, front) as issuer,
            served(listener, issuer, add),
            served(door, issuer, lambda target: None),
        ):
            yield url, issuer, front
