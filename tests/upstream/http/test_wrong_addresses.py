"""Addresses at which something else answers: plain requests at a port with TLS, and redirects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import Connector

pytestmark = pytest.mark.anyio

NGINX = "<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>"
GO = "Client sent an HTTP request to an HTTPS server.\n"
APACHE = "Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />"
TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """Something that writes `answer` to whoever connects and sends, and closes; yields its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/mcp"


def page(status: str, body: str = "", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *(f"{key}: {text}" for key, text in headers.items())]
    return "\r\n".join([*lines, "", body]).encode()


async def failure(answer: bytes, dialer: Connector) -> UpstreamError:
    """What is said about a server with that answer."""
    async with answering(answer) as url:
        config = ServerConfig("my server", "http", url=url)
        with anyio.fail_after(20), pytest.raises(UpstreamError) as caught:
            await dialer(config, environ={}, era=None, on_event=lambda event: None)
    return caught.value


@pytest.mark.parametrize("body", [NGINX, GO, APACHE])
async def test_a_page_that_asks_for_tls_is_understood(dialer, body) -> None:
    """Of the servers that say it, each in its own words."""
    error = await failure(page("400 Bad Request", body), dialer)
    assert error.message == "Server 'my server' speaks https alone at that port (HTTP 400)."
    assert error.hint.startswith("Write https:// instead of http:// in its url")
    assert error.data == {"http_status": 400}


@pytest.mark.parametrize("answer", [b"", TLS_ALERT])
async def test_a_port_that_only_closes_or_alerts_may_have_tls(dialer, answer) -> None:
    """Most libraries hang up on a request without TLS."""
    error = await failure(answer, dialer)
    assert error.hint == "Check its url: if it speaks https at that port, write https://."


async def test_another_refusal_stays_what_it_is(dialer) -> None:
    """A page without those words."""
    error = await failure(page("400 Bad Request", "<h1>no</h1>"), dialer)
    assert error.message == "Server 'my server' answered with HTTP 400 Bad Request."


@pytest.mark.parametrize(
    ("status", "location", "said", "hint"),
    [
        (
            "301 Moved Permanently",
            "https://mcp.invalid/v2/mcp?key=hunter22",
            "redirects to https://mcp.invalid/v2/mcp (HTTP 301), which is not followed.",
            "If that is where it is now and may get what its entry sends: mcpproxy server patch 'my server' url=https://mcp.invalid/v2/mcp",
        ),
        (
            "308 Permanent Redirect",
            "https://ann:hunter22@[2001:db8::1]:8443/mcp",
            "redirects to https://[2001:db8::1]:8443/mcp (HTTP 308), which is not followed.",
            "If that is where it is now and may get what its entry sends: mcpproxy server patch 'my server' 'url=https://[2001:db8::1]:8443/mcp'",
        ),
        (
            "302 Found",
            "https://id.invalid/users/sign_in?next=/mcp",
            "redirects to https://id.invalid/users/sign_in (HTTP 302), which looks like a page to sign in at.",
            "Put its token into 'headers' of its entry, or try: mcpproxy server login 'my server'",
        ),
        (
            "302 Found",
            "https://id.invalid/login",
            "redirects to https://id.invalid/login (HTTP 302), which looks like a page to sign in at.",
            "Put its token into 'headers' of its entry, or try: mcpproxy server login 'my server'",
        ),
        (
            "307 Temporary Redirect",
            "/mcp",
            "redirects in circles, at last to http://127.0.0.1:",
            "Check the path of its url.",
        ),
        (
            "307 Temporary Redirect",
            "data:x",
            "redirects to no address (HTTP 307).",
            "Check its url and that it is running.",
        ),
        (
            "307 Temporary Redirect",
            "http://x.invalid:99999/",
            "redirects to no address (HTTP 307).",
            "Check its url and that it is running.",
        ),
        (
            "308 Permanent Redirect",
            "https://127.0.0.1:9/mcp",
            "redirects to https://127.0.0.1:9/mcp (HTTP 308), which is not followed.",
            "If that is where it is now: mcpproxy server patch 'my server' url=https://127.0.0.1:9/mcp",
        ),
    ],
)
async def test_a_redirect_names_where_it_leads_and_what_to_do(dialer, status, location, said, hint) -> None:
    """Without its query and password."""
    error = await failure(page(status, Location=location), dialer)
    assert said in error.message
    assert error.hint == hint
    assert "hunter22" not in str(error)
