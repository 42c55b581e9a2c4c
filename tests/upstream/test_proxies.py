"""Our own requests through the proxy that the environment names: which ones, how, and with whose password."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.responses import PlainTextResponse
from upstream_fakes import served

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.upstream.http.http_client import HttpClient
from smart_mcp_proxy.upstream.http_failures import TlsContext, new_transport
from smart_mcp_proxy.upstream.oauth.auth_http import AuthHttp
from smart_mcp_proxy.upstream.proxies import HttpProxy, find_environ_proxy, tunnel

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("environ", "origin", "proxy"),
    [
        ({}, ("http", "a", 80), None),
        ({"HTTP_PROXY": "http://p:3128"}, ("http", "a", 80), HttpProxy("p", 3128)),
        ({"HTTP_PROXY": "p:3128"}, ("http", "a", 80), HttpProxy("p", 3128)),
        ({"HTTP_PROXY": "http://p:3128"}, ("https", "a", 443), None),
        ({"HTTPS_PROXY": "http://A%3a:b@p"}, ("https", "a", 443), HttpProxy("p", 80, "Basic QTo6Yg==")),
        ({"HTTPS_PROXY": "http://p:1", "https_proxy": "http://q:2"}, ("https", "a", 443), HttpProxy("q", 2)),
        *(
            ({"HTTP_PROXY": "http://p:1", name: listed}, ("http", host, 80), None if is_excepted else HttpProxy("p", 1))
            for name in ("NO_PROXY", "no_proxy")
            for listed, host, is_excepted in (
                ("*", "a", True),
                ("a,10.0.0.1", "10.0.0.1", True),
                ("a,10.0.0.1", "10.0.0.2", False),
                ("10.0.0.0/8", "10.0.0.2", True),
                ("fd00::1", "fd00::1", True),
                (".corp", "a.corp", True),
                ("corp", "A.CORP", True),
                ("*.corp", "a.corp", True),
                ("corp", "notcorp", False),
                ("a:80", "a", True),
                ("a:81", "a", False),
                (" , ,", "a", False),
            )
        ),
    ],
)
def test_the_environment_says_which_requests_go_through_a_proxy(
    environ: Any, origin: Any, proxy: HttpProxy | None
) -> None:
    """As curl reads it; lower case goes first."""
    assert find_environ_proxy(environ, *origin) == proxy


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.9.9.9", "127.1", "0x7f.1", "::1", "::1%lo"]
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_this_machine_is_never_reached_through_a_proxy(host: str, scheme: str) -> None:
    """Not even where the variable names none: what may be sent in clear text must not leave this machine."""
    for address in ("http://p:1", "socks5://p"):
        assert find_environ_proxy({"HTTP_PROXY": address, "HTTPS_PROXY": address}, scheme, host, 80) is None


@pytest.mark.parametrize(
    "address",
    ["http://ann:secret@p:port", "http://ann:secret@p:99999", "http://ann:secret@[::1", "http://ann:secret@\u2100"],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(UpstreamError, match="HTTP_PROXY is no http://") as caught:
        find_environ_proxy({"HTTP_PROXY": address}, "http", "a", 80)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_proxy_of_another_kind_is_refused_without_its_password() -> None:
    with pytest.raises(UpstreamError, match="HTTPS_PROXY is no http://") as caught:
        find_environ_proxy({"HTTPS_PROXY": "socks5://ann:secret@p"}, "https", "a", 443)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(HttpProxy("p", 1, "Basic secret"))


@asynccontextmanager
async def proxying(answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> AsyncIterator[tuple[str, list[str]]]:
    """A small proxy that keeps the heads it was sent, and takes every name for loopback; its address."""
    heads: list[str] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head.decode())
        verb, target, _ = head.decode().split("\r\n")[0].split()
        place = target if verb == "CONNECT" else target.split("/")[2]
        port = int(place.rpartition(":")[2])
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        if verb == "CONNECT":
            writer.write(answer)
        else:
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"proxy-authorization:")]
            there_writer.write(b"\r\n".join(lines))
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://ann:s%40cret@127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
    finally:
        server.close()


SENT = "Basic YW5uOnNAY3JldA=="


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what it was asked, and with whether it saw the proxy's password."""
    if scope["type"] == "http":
        names = [name for name, _ in scope["headers"]]
        await PlainTextResponse(f"{scope['path']} {names.count(b'host')}")(scope, receive, send)


async def test_a_request_without_tls_names_its_whole_address_to_the_proxy() -> None:
    async with proxying() as (address, heads), served(hello) as base:
        far = base.replace("127.0.0.1", "far.example")
        client = HttpClient({}, TlsContext({"HTTP_PROXY": address}))
        with anyio.fail_after(10):
            response = await client.request("GET", f"{far}/there?x=1", {}, None)
            assert b"".join(await response.read_whole(1000) or ()) == b"/there 1"
        await client.close()
    assert heads[0].startswith(f"GET {far}/there?x=1 HTTP/1.1\r\n")
    assert f"proxy-authorization: {SENT}\r\n" in heads[0]


async def test_nothing_changes_without_a_proxy_or_where_none_is_to_be_used() -> None:
    async with proxying() as (address, heads), served(hello) as base:
        for environ in ({}, {"HTTP_PROXY": address}, {"HTTPS_PROXY": address}):
            client = HttpClient({}, TlsContext(environ))
            with anyio.fail_after(10):
                response = await client.request("GET", f"{base}/here", {}, None)
                assert b"".join(await response.read_whole(1000) or ()) == b"/here 1"
            await client.close()
    assert heads == []


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200\r\n\r\n", b"HTTP/1.0 200 \r\nVia: p\r\n\r\n"]
)
async def test_a_tunnel_is_asked_for_before_tls(answer: bytes) -> None:
    """And what follows belongs to the server alone."""
    async with proxying(answer) as (address, heads), served(hello) as base:
        proxy = find_environ_proxy({"HTTPS_PROXY": address}, "https", "a", 443)
        assert proxy is not None
        with anyio.fail_after(10):
            end = await tunnel(proxy, "127.0.0.1", int(base.rpartition(":")[2]))
            reader, writer = await asyncio.open_connection(sock=end)
            writer.write(b"GET /through HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b"/through 1" in await reader.read()
            writer.close()
    assert heads[0].startswith("CONNECT 127.0.0.1:") and f"Proxy-Authorization: {SENT}\r\n" in heads[0]


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", b"HTTP/1.1 200", b"x\r\n\r\n"]
)
async def test_a_proxy_that_refuses_is_named_without_its_password(answer: bytes) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    address = f"http://ann:s%40cret@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = HttpClient({}, TlsContext({"HTTPS_PROXY": address}))
    with anyio.fail_after(10), pytest.raises(ConnectionRefusedError, match=r"the proxy 127\.0\.0\.1") as caught:
        await client.request("GET", "https://far.example/mcp", {}, None)
    assert "s@cret" not in str(caught.value) and SENT not in str(caught.value)
    server.close()


async def test_sign_in_addresses_are_asked_through_the_proxy() -> None:
    """Also where only the proxy knows their names."""

    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.215.14"]

    async with proxying() as (address, heads), served(hello) as base:
        far = base.replace("http://127.0.0.1", "https://far.example")
        http = AuthHttp("web", f"{far}/mcp", TlsContext({"HTTPS_PROXY": address}), resolve)
        with anyio.fail_after(10), pytest.raises(UpstreamError):  # what is behind the tunnel speaks no TLS
            await http.send(httpx2.Request("GET", f"{far}/metadata"))
    assert heads[0].startswith("CONNECT far.example:") and SENT in heads[0]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "this-machine"])
async def test_sign_in_secrets_for_this_machine_are_sent_to_no_proxy(name: str) -> None:
    """Also under a name of its own: http is allowed because nothing leaves the machine."""

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with proxying() as (address, heads), served(hello) as base:
        near = base.replace("127.0.0.1", name)
        http = AuthHttp("web", f"{near}/mcp", TlsContext({"HTTP_PROXY": address}), resolve)
        with anyio.fail_after(10):
            answer = await http.send(httpx2.Request("POST", f"{near}/token", content=b"client_secret=x"))
        assert (answer.status_code, answer.content) == (200, b"/token 1")
    assert heads == []


async def test_the_general_client_goes_through_the_proxy_too() -> None:
    """For servers over SSE."""
    async with proxying() as (address, heads), served(hello) as base:
        proxy = find_environ_proxy({"HTTP_PROXY": address}, "http", "a", 1)
        tls = await TlsContext().get()
        async with httpx2.AsyncClient(transport=new_transport(tls, proxy)) as client:
            with anyio.fail_after(10):
                assert (await client.get(f"{base}/sse")).text == "/sse 1"
    assert SENT in heads[0]


async def test_further_certificates_are_read_and_a_missing_file_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await TlsContext({"NODE_EXTRA_CA_CERTS": str(tmp_path / "none.pem")}).get()
    assert "NODE_EXTRA_CA_CERTS names" in caplog.text
