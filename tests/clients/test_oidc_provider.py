"""Signing in at an authorization server that is not of our own stack: `oidc-provider`, on loopback."""

import os
from pathlib import Path

import anyio
import httpx2
import keyring
import pytest
from certified_provider import authorization_server, resource_server
from keyring.backends.fail import Keyring as NoKeyring
from openid_fakes import consent
from pydantic import SecretStr
from sign_in_fakes import Person

from smart_mcp_proxy.errors import UpstreamAuthError
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import Connector, SignIns
from smart_mcp_proxy.web.auth.sign_in_pages import open_oidc_login
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.serve_http import serve_http

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


async def test_a_sign_in_is_had_renewed_and_given_back(tmp_path: Path) -> None:
    """OIDC discovery, registration, consent, `iss`, the resource as audience, a rotated refresh token, revocation."""
    keyring.set_keyring(NoKeyring())
    sign_ins = SignIns(tmp_path)
    with anyio.fail_after(120):
        async with resource_server() as (url, issuer):
            config = ServerConfig("web", "http", url=url, oauth={})
            person = Person(consent, timeout_s=60)
            async with person.browser() as browser:
                first = await sign_ins.authorize_server(config, browser)
            assert (first.issuer.rstrip("/"), person.replies[0].status_code, bool(first.refresh_token)) == (
                issuer,
                200,
                True,
            )
            async with Connector(sign_ins=sign_ins) as dial:
                link = await dial(config, environ=dict(os.environ), era=None, on_event=lambda _: None)
                tokens = set()
                while len(tokens) < 3:  # each lives for 10 s
                    result = await link.request("tools/call", {"name": "whoami", "arguments": {}}, timeout_s=20)
                    assert b"somebody" in result.text
                    bearer = await sign_ins.bearer(config)
                    tokens.add(await bearer.token())
                    await bearer.close()
                await link.close()
            done = await sign_ins.sign_out(config)
            assert (done.was_signed_in, done.is_revoked, done.problem) == (True, True, "")
            with pytest.raises(UpstreamAuthError):
                await sign_ins.bearer(config)


async def test_people_sign_in_to_the_gateway_at_a_provider_of_another_stack(tmp_path: Path) -> None:
    """Discovery, both consents, PKCE, the id token, a refresh that rotates, revocation: the provider sees it all."""
    keyring.set_keyring(NoKeyring())
    listener = bind("127.0.0.1", 0)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    client = {
        "client_id": "the-gateway",
        "client_secret": "secret-of-the-gateway",
        "redirect_uris": [f"{base}/auth/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
    }
    config = ServerConfig("gateway", "http", url=f"{base}/mcp", oauth={})
    with anyio.fail_after(120):
        async with authorization_server("https://none.example", client) as issuer:
            settings = Settings(
                data_dir=tmp_path / "gateway",
                oidc_url=f"{issuer}/.well-known/openid-configuration",
                oidc_client_id="the-gateway",
                oidc_client_secret=SecretStr("secret-of-the-gateway"),
                oidc_scopes=("openid", "offline_access"),
                oidc_users=("somebody=write",),
                public_url=base,
            )
            sign_ins = SignIns(tmp_path / "agent")
            async with (
                open_gateway(settings, {}, environ={}) as gateway,
                serve_http(gateway, listener, token=None, sign_in=await open_oidc_login(settings)),
            ):
                person = Person(consent, timeout_s=60)
                async with person.browser() as browser:
                    held = [await sign_ins.authorize_server(config, browser)]
                for _ in range(2):
                    assert await status(base, held[-1].access_token) != 401
                    held.append(await sign_ins._flow(config).renew(held[-1]))
                    await sign_ins.store.write("gateway", config.url, held[-1])
                assert await status(base, held[-1].access_token) != 401
                done = await sign_ins.sign_out(config)
                assert (done.was_signed_in, done.is_revoked, done.problem) == (True, True, "")
                for each in held:
                    assert await status(base, each.access_token) == 401


async def status(base: str, token: str) -> int:
    """What a request with this token is answered with."""
    async with httpx2.AsyncClient(trust_env=False) as agent:
        reply = await agent.post(f"{base}/mcp", json={}, headers={"authorization": f"Bearer {token}"})
        return reply.status_code
