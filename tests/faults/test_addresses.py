"""Servers whose address leads nowhere, or to somebody who cannot prove who he is."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from certificates import LOOPBACK, Authority
from modes import Place
from rig import ENVIRON, LIMITS, SETTLE_S, Faulty, Rig

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.models import ServerState
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

SECRET = "Bearer top-secret-of-the-server"
UNUSED = "127.0.0.2"
"""Nobody listens there, while somebody else may have the same port at the usual address."""
PATHS = pytest.mark.parametrize("path", ["mcp", "sse"])


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The one authority that the gateway trusts."""
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    return made


@asynccontextmanager
async def opened(tmp_path: Path, url: str, **entry: Any) -> AsyncIterator[Rig]:
    """A settled gateway with one server at `url`."""
    entry = {"url": url, "limits": LIMITS, "headers": {"Authorization": SECRET}, **entry}
    loaded = load_servers(json.dumps({"mcpServers": {"faulty": entry}}))
    assert not loaded.problems, loaded.problems
    async with open_gateway(Settings(data_dir=tmp_path / "data"), loaded.servers, environ=ENVIRON) as gateway:
        gateway.start_upstreams()
        rig = Rig(gateway, Faulty(tmp_path / "unused", Place("http", "modern")), "modern")
        with anyio.fail_after(SETTLE_S):
            await rig.settle()
        yield rig


async def assert_not_reached(rig: Rig, words: str) -> None:
    """The state and a call both say why, and the call that nothing was sent."""
    (server,) = rig.gateway.status().servers
    assert (server.state, words in server.error) == (ServerState.ERROR, True), server.error
    upstream = rig.gateway.upstreams.fleet.upstreams.get("faulty")
    assert upstream is not None
    with pytest.raises(UpstreamError, match=words) as failure, anyio.fail_after(20):
        await upstream.request("tools/call", {"name": "effect", "arguments": {}})
    assert failure.value.delivery == "not_sent"
    assert "top-secret" not in server.error + failure.value.message + failure.value.hint


@PATHS
async def test_a_name_that_does_not_resolve_is_told(tmp_path: Path, path: str) -> None:
    """`.invalid` is nobody's, whatever resolver is asked. Source: RFC 6761, section 6.4."""
    async with opened(tmp_path, f"http://nowhere.invalid/{path}") as rig:
        await assert_not_reached(rig, "cannot be reached")


@asynccontextmanager
async def listening(
    tls: ssl.SSLContext | None, port: int | None = None, host: str = LOOPBACK
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A listener that passes everything on to `port`, or says nothing; and what it was told, decrypted."""
    told: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[bytes]) -> None:
        while data := await reader.read(65_536):
            seen.append(data)
            writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if port is None:
            told.append(await reader.read(65_536))
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_connection(LOOPBACK, port)
        writers.append(up_writer)
        await asyncio.gather(copy(reader, up_writer, told), copy(up_reader, writer, []), return_exceptions=True)

    listener = await asyncio.start_server(accept, host, 0, ssl=tls)
    try:
        yield listener.sockets[0].getsockname()[1], told
    finally:
        listener.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


BAD = {"self-signed": "self-signed certificate", "expired": "certificate has expired", "other-host": "mismatch"}


@PATHS
@pytest.mark.parametrize(("kind", "words"), BAD.items(), ids=BAD)
async def test_a_certificate_that_proves_nothing_is_refused(
    tmp_path: Path, authority: Authority, path: str, kind: str, words: str
) -> None:
    """Before a single byte of a request, headers with credentials included, has left."""
    async with (
        listening(authority.context(kind)) as (port, told),
        opened(tmp_path, f"https://{LOOPBACK}:{port}/{path}") as rig,
    ):
        await assert_not_reached(rig, words)
    assert b"".join(told) == b""


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_server_with_a_good_certificate_is_used(tmp_path: Path, authority: Authority, era: str) -> None:
    """Call after call over TLS, on connections that are kept."""
    faulty = Faulty(tmp_path / "faulty", Place("http", era))
    async with (
        faulty.opened() as entry,
        listening(authority.context("good"), int(entry["url"].split(":")[2].split("/")[0])) as (port, told),
        opened(tmp_path, f"https://{LOOPBACK}:{port}/mcp") as rig,
    ):
        for _ in range(20):
            assert (await rig.call(nonce := rig.nonce())).outcome == "ok"
            assert faulty.executions(nonce) == 1
        assert SECRET.encode() in b"".join(told)


@PATHS
async def test_a_plain_server_at_an_https_address_is_told(tmp_path: Path, path: str) -> None:
    """It never sees a request, and nobody tries without TLS."""
    async with listening(None) as (port, told), opened(tmp_path, f"https://{LOOPBACK}:{port}/{path}") as rig:
        await assert_not_reached(rig, "cannot be reached")
        assert b"POST" not in b"".join(told)
        assert b"top-secret" not in b"".join(told)


async def test_a_tls_server_at_a_plain_address_is_told(tmp_path: Path, authority: Authority) -> None:
    """It refuses the greeting."""
    async with (
        listening(authority.context("good")) as (port, _),
        opened(tmp_path, f"http://{LOOPBACK}:{port}/mcp") as rig,
    ):
        (server,) = rig.gateway.status().servers
        assert server.state is ServerState.ERROR
        assert server.error


# --- IPv6


KINDS = pytest.mark.parametrize(("kind", "path"), [("http", "mcp"), ("sse", "sse")], ids=["http", "sse"])


@asynccontextmanager
async def reached(tmp_path: Path, kind: str, path: str, bound: str, named: str) -> AsyncIterator[tuple[Rig, Faulty]]:
    """A gateway whose one server, at the address `bound`, has a URL with the host `named`."""
    faulty = Faulty(tmp_path / "faulty", Place(kind, "handshake"))
    async with faulty.opened() as entry:
        behind = int(entry["url"].split(":")[2].split("/")[0])
        async with (
            listening(None, behind, bound) as (port, _),
            opened(tmp_path, f"http://{named}:{port}/{path}", **({"type": "sse"} if kind == "sse" else {})) as rig,
        ):
            yield rig, faulty


@KINDS
async def test_a_server_at_an_ipv6_address_is_used(tmp_path: Path, kind: str, path: str) -> None:
    """F63: the literal in the URL is enough, with no IPv4 anywhere."""
    async with reached(tmp_path, kind, path, "::1", "[::1]") as (rig, faulty):
        assert (await rig.call(nonce := rig.nonce())).outcome == "ok"
        assert faulty.executions(nonce) == 1


@KINDS
@pytest.mark.parametrize("bound", ["::1", LOOPBACK])
@pytest.mark.parametrize("first", [socket.AF_INET6, socket.AF_INET], ids=["ipv6-first", "ipv4-first"])
async def test_a_name_with_two_addresses_is_tried_at_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, path: str, bound: str, first: socket.AddressFamily
) -> None:
    """F63: `localhost` is often both, and servers listen at one of them."""
    resolve = socket.getaddrinfo
    ipv4 = LOOPBACK if bound == LOOPBACK else UNUSED

    def both(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        if host not in ("localhost", b"localhost"):
            return resolve(host, port, *args, **more)
        found = [*resolve("::1", port, *args, **more), *resolve(ipv4, port, *args, **more)]
        return sorted(found, key=lambda each: each[0] != first)

    monkeypatch.setattr(socket, "getaddrinfo", both)
    async with reached(tmp_path, kind, path, bound, "localhost") as (rig, faulty):
        assert (await rig.call(nonce := rig.nonce())).outcome == "ok"
        assert faulty.executions(nonce) == 1
