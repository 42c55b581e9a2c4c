"""The HTTP endpoint: who is let in, who is not, and that nothing an agent sends about itself goes further."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from agents import HANDSHAKE_VERSION, META, MODERN_VERSION, Era
from fastmcp import FastMCP
from plain_http import plain_client
from pydantic import SecretStr
from run_wire import UPSTREAM_HEADERS
from starlette.responses import JSONResponse
from transports import listening, odd_server, opened_gateway, over_http, served

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.auth.auth import own_token

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("http-endpoint")]

TOKEN = "s3cret-token"
CLIENT = {"name": "tester", "version": "1"}
BOTH = "application/json, text/event-stream"
ERAS = pytest.mark.parametrize("era", ["handshake", "modern"])


def opening(era: Era) -> tuple[dict[str, str], dict[str, Any]]:
    """Headers and body of the request with which a client of this era begins."""
    headers = {"accept": BOTH, "content-type": "application/json"}
    if era == "handshake":
        params = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": CLIENT}
        return headers, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    meta = {META + "protocolVersion": MODERN_VERSION, META + "clientCapabilities": {}}
    headers |= {"mcp-protocol-version": MODERN_VERSION, "mcp-method": "server/discover"}
    return headers, {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}


@pytest.fixture(scope="module")
async def addresses(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    """Base addresses of one gateway served without (`open`) and with (`locked`) a token."""
    directory = tmp_path_factory.mktemp("data")
    servers = {"off": {"command": "none", "disabled": True}}
    async with (
        opened_gateway(directory, servers, allowed_hosts=("gateway.example",)) as gateway,
        served(gateway) as base,
        served(gateway, token=TOKEN) as locked,
    ):
        yield {"open": base, "locked": locked}


@pytest.fixture(scope="module")
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    """Plain HTTP without redirects or settings of the environment."""
    async with plain_client() as client:
        yield client


HEADER_CASES = [
    ({"host": "127.0.0.1"}, 200),
    ({"host": "localhost:1"}, 200),
    ({"host": "[::1]:80"}, 200),
    ({"host": "gateway.example:444"}, 200),
    ({"host": "evil.example"}, 421),
    ({"host": "127.0.0.1.evil.example"}, 421),
    ({"host": "127.0.0.1@evil.example"}, 421),
    ({"host": "a.gateway.example"}, 421),
    ({"host": "0.0.0.0"}, 421),
    ({"host": ""}, 421),
    ({"origin": "http://127.0.0.1"}, 200),
    ({"origin": "http://localhost:9999"}, 200),
    ({"origin": "http://gateway.example", "host": "gateway.example"}, 200),
    ({"origin": "http://gateway.example"}, 403),
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "http://evil.example", "host": "gateway.example"}, 403),
    ({"origin": "http://127.0.0.1.evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "file://"}, 403),
    ({"origin": "chrome-extension://abc"}, 403),
    ({"content-type": "application/json; charset=utf-8"}, 200),
    ({"content-type": "text/plain"}, 415),
    ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ({"content-type": ""}, 415),
    ({"accept": "*/*"}, 200),
    ({"accept": "text/html"}, 406),
    ({"accept": "text/event-stream"}, 406),
]


@ERAS
@pytest.mark.parametrize(("changes", "status"), HEADER_CASES, ids=str)
async def test_a_request_is_let_in_by_its_headers(
    addresses: dict[str, str], http: httpx2.AsyncClient, era: Era, changes: dict[str, str], status: int
) -> None:
    """A page in a browser that talks to 127.0.0.1 comes with its own Host or Origin, and stays outside."""
    headers, body = opening(era)
    reply = await http.post(f"{addresses['open']}/mcp", headers=headers | changes, content=json.dumps(body))
    assert reply.status_code == status, reply.text
    assert "access-control-allow-origin" not in reply.headers


@ERAS
@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (None, 401),
        ("Bearer wrong", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer", 401),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
        ("Bearer s\N{LATIN SMALL LETTER E WITH ACUTE}cret", 401),
    ],
)
async def test_only_the_whole_token_opens_a_locked_endpoint(
    addresses: dict[str, str], http: httpx2.AsyncClient, era: Era, authorization: str | None, status: int
) -> None:
    """Anything else is answered with 401 and the scheme to use, and not with the token."""
    headers, body = opening(era)
    extra = {} if authorization is None else {b"authorization": authorization.encode()}
    raw = {key.encode(): value.encode() for key, value in headers.items()} | extra
    reply = await http.post(f"{addresses['locked']}/mcp?token={TOKEN}", headers=raw, content=json.dumps(body))
    assert reply.status_code == status
    assert reply.headers.get("www-authenticate", "Bearer").startswith("Bearer")
    assert TOKEN not in reply.text
    assert ("www-authenticate" in reply.headers) == (status == 401)


async def test_a_wrong_host_stays_outside_even_with_the_token(
    addresses: dict[str, str], http: httpx2.AsyncClient
) -> None:
    """The token does not replace the check against DNS rebinding."""
    headers, body = opening("modern")
    headers |= {"host": "evil.example", "authorization": f"Bearer {TOKEN}"}
    reply = await http.post(f"{addresses['locked']}/mcp", headers=headers, content=json.dumps(body))
    assert reply.status_code == 421


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("PUT", "/mcp", {}, 405),
        ("PATCH", "/mcp", {}, 405),
        ("OPTIONS", "/mcp", {}, 405),
        ("GET", "/mcp", {"mcp-protocol-version": MODERN_VERSION}, 405),
        ("DELETE", "/mcp", {}, 400),
        ("GET", "/mcp", {"accept": "application/json"}, 406),
        ("GET", "/sse", {"host": "evil.example"}, 421),
        ("GET", "/sse", {"origin": "http://evil.example"}, 403),
        ("POST", "/messages/?session_id=" + "0" * 32, {"host": "evil.example"}, 421),
        ("POST", "/messages/?session_id=" + "0" * 32, {"content-type": "application/json"}, 404),
        ("POST", "/mcp", {"mcp-session-id": "unknown", "content-type": "application/json", "accept": BOTH}, 404),
        ("GET", "/", {}, 200),
        ("GET", "/mcpx", {}, 404),
        ("GET", "/api/v1/status", {}, 200),
        ("GET", "/api/v1/servers", {}, 401),
        ("GET", "/api/v1", {}, 404),
    ],
)
async def test_methods_and_paths(
    addresses: dict[str, str], http: httpx2.AsyncClient, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    """What is not served is refused; REST shows next to nothing to who is not the operator."""
    reply = await http.request(method, addresses["open"] + path, headers=headers)
    assert reply.status_code == status


@ERAS
async def test_a_slash_at_the_end_of_the_endpoint_is_no_other_address(
    addresses: dict[str, str], http: httpx2.AsyncClient, era: Era
) -> None:
    """It is answered there: a redirect could lose the token on its way, or send it in the clear."""
    headers, body = opening(era)
    reply = await http.post(addresses["locked"] + "/mcp/", headers=headers, json=body)
    assert reply.status_code == 401
    reply = await http.post(
        addresses["locked"] + "/mcp/", headers=headers | {"authorization": f"Bearer {TOKEN}"}, json=body
    )
    assert reply.status_code == 200 and "result" in reply.text


async def test_a_slash_at_the_end_of_the_older_endpoint_is_no_other_address(
    addresses: dict[str, str], http: httpx2.AsyncClient
) -> None:
    """Its stream opens there."""
    async with http.stream("GET", addresses["open"] + "/sse/") as reply:
        assert reply.status_code == 200


@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages/?session_id=" + "0" * 32])
async def test_every_agents_path_asks_for_the_token(
    addresses: dict[str, str], http: httpx2.AsyncClient, path: str
) -> None:
    """The older transport has no side entrance."""
    method = "GET" if path == "/sse" else "POST"
    assert (await http.request(method, addresses["locked"] + path)).status_code == 401


@ERAS
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"jsonrpc":"2.0","id":1}', b"[" * 50_000])
async def test_a_body_that_is_no_request_is_a_json_rpc_error(
    addresses: dict[str, str], http: httpx2.AsyncClient, era: Era, body: bytes
) -> None:
    """With status 400; the connection and the gateway live on."""
    headers, good = opening(era)
    reply = await http.post(f"{addresses['open']}/mcp", headers=headers, content=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] in (-32700, -32600, -32602)
    reply = await http.post(f"{addresses['open']}/mcp", headers=headers, content=json.dumps(good))
    assert reply.status_code == 200


@pytest.mark.requirement("health")
@pytest.mark.parametrize(("path", "word"), [("/healthz", "ok"), ("/readyz", "ready")])
async def test_health_needs_neither_token_nor_host(
    addresses: dict[str, str], http: httpx2.AsyncClient, path: str, word: str
) -> None:
    """A probe comes by address and knows no secret; it learns one word and nothing of the servers."""
    with anyio.fail_after(20):
        while (reply := await http.get(addresses["locked"] + path, headers={"host": "10.0.0.1"})).status_code == 503:
            assert reply.json() == {"status": "loading"}
    assert (reply.status_code, reply.json()) == (200, {"status": word})
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gateway.example"])
def test_off_loopback_there_is_always_a_token(tmp_path: Path, host: str) -> None:
    """That of the settings, else one that is made once and kept where only its owner can read it."""
    settings = Settings(data_dir=tmp_path / "new", host=host)
    made = own_token(settings)
    assert made.value is not None and len(made.value) >= 43
    assert made.is_new and made.file == tmp_path / "new" / "auth.token"
    assert made.file.stat().st_mode & 0o777 == 0o600
    assert list(made.file.parent.iterdir()) == [made.file]
    assert own_token(settings) == made._replace(is_new=False)
    assert made.value not in repr(made)
    assert own_token(Settings(data_dir=tmp_path, host=host, auth_token=SecretStr(TOKEN))) == (TOKEN, None, False)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_on_loopback_no_token_is_needed(tmp_path: Path, host: str) -> None:
    """The machine's own user comes in as he is."""
    assert own_token(Settings(data_dir=tmp_path, host=host)) == (None, None, False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "two words", "a\nb", "\u00e9", b"\xff\xfe"])
def test_a_token_file_that_holds_something_else_stops_the_start(tmp_path: Path, text: str | bytes) -> None:
    """What is in it is not shown, and is not replaced: somebody may have put it there."""
    file = tmp_path / "auth.token"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=r"auth\.token.* one token") as caught:
        own_token(Settings(data_dir=tmp_path, host="0.0.0.0"))
    assert "MCPPROXY_AUTH_TOKEN" in caught.value.hint
    assert "two words" not in str(caught.value)


def test_a_token_file_that_others_may_read_stops_the_start(tmp_path: Path) -> None:
    """And stays as it is: somebody may have put it there."""
    file = tmp_path / "auth.token"
    file.write_text(TOKEN)
    file.chmod(0o640)
    settings = Settings(data_dir=tmp_path, host="0.0.0.0")
    with pytest.raises(ConfigError, match="mode 640") as caught:
        own_token(settings)
    assert "chmod 600" in caught.value.hint and TOKEN not in str(caught.value)
    file.chmod(0o600)
    assert own_token(settings) == (TOKEN, file, False)


class WireLog:
    """An HTTP upstream that writes down every byte it is sent.

    Args:
        era: `handshake` refuses the modern era, as servers from before it do.
    """

    def __init__(self, era: Era) -> None:
        server = FastMCP("wire")
        server.tool(self.echo, annotations={"readOnlyHint": True})
        self._app = server.http_app(stateless_http=era == "handshake")
        self._era = era
        self.headers: list[dict[str, str]] = []
        self.seen = b""

    async def echo(self, text: str) -> str:
        """Say the text back."""
        return text

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        self.headers.append(headers)
        self.seen += repr(headers).encode() + scope["raw_path"] + scope["query_string"]
        if self._era == "handshake" and headers.get("mcp-protocol-version") == MODERN_VERSION:
            error = {"code": -32600, "message": "Bad Request: Unsupported protocol version"}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, receive, send)
            return

        async def listen() -> Any:
            message = await receive()
            self.seen += message.get("body", b"")
            return message

        await self._app(scope, listen, send)


@pytest.mark.requirement("headers-stay")
@pytest.mark.parametrize("upstream_era", ["handshake", "modern"])
@ERAS
async def test_no_header_of_an_agent_reaches_an_upstream(tmp_path: Path, era: Era, upstream_era: Era) -> None:
    """Not its token for the gateway, not a cookie, not its name: the upstream sees what was configured for it."""
    private = ["x-api-key", "cookie", "x-forwarded-for", "forwarded", "proxy-authorization", "user-agent", "x-any"]
    mine = {"authorization": f"Bearer {TOKEN}", **{name: f"private-{name}" for name in private}}
    wire = WireLog(upstream_era)
    with anyio.fail_after(20):
        async with listening(wire) as upstream:
            config = {"wire": {"url": f"{upstream}/mcp", "headers": {"X-Team": "lighthouse"}, "proxy": True}}
            async with (
                opened_gateway(tmp_path, config) as gateway,
                served(gateway, token=TOKEN) as base,
                over_http(base, era, mine) as agent,
            ):
                assert await gateway.wait_settled(10)
                assert [server.era for server in gateway.status().servers] == [upstream_era]
                for token in (False, True):
                    call = {"name": "wire:echo", "args": {"text": "light"}}
                    exchange = await agent.begin("tools/call", token=token, name="call_tool_read", arguments=call)
                    answer = await exchange.answer
                    assert answer["result"]["content"] == [{"type": "text", "text": "light"}]
                async with plain_client(base_url=base, headers=mine) as client:
                    call = {"name": "echo", "arguments": {"text": "light"}}
                    reply = await client.post("/api/mcp/wire/proxy", json={"method": "tools/call", "params": call})
                    assert reply.json()["result"]["content"] == [{"type": "text", "text": "light"}]
                    operator = (tmp_path / "operator.token").read_text().strip()
                    owned = {"authorization": f"Bearer {operator}"}
                    call = {"name": "wire:echo", "arguments": {"text": "light"}}
                    reply = await client.post("/api/v1/call", json=call, headers=owned)
                    assert "light" in reply.text and reply.status_code == 200, reply.text
    assert wire.seen.count(b"tools/call") >= 4
    assert all(headers.keys() <= UPSTREAM_HEADERS - {"authorization"} | {"x-team"} for headers in wire.headers)
    assert operator.encode() not in wire.seen
    assert all(headers["x-team"] == "lighthouse" for headers in wire.headers)
    assert TOKEN.encode() not in wire.seen
    assert b"private-" not in wire.seen
    assert b"raw-agent" not in wire.seen


@pytest.mark.requirement("eras-at-once")
async def test_agents_of_both_eras_share_one_gateway(tmp_path: Path) -> None:
    """Each is answered in its own era, whatever was spoken last."""
    (tmp_path / "ledger").touch()
    async with (
        opened_gateway(tmp_path, {"new": odd_server("modern", tmp_path / "ledger")}) as gateway,
        served(gateway) as base,
        over_http(base, "handshake") as old,
        over_http(base, "modern") as new,
    ):
        assert await gateway.wait_settled(10)
        for agent in (old, new, old):
            result = await agent.call("call_tool_write", name="new:structured", args={"value": [1]})
            assert ("structuredContent" in result) == (agent.era == "modern")


@pytest.mark.parametrize(
    ("path", "changes", "status", "code", "what", "what_next"),
    [
        ("/mcp", {"host": "evil.example"}, 421, "host_not_allowed", "'evil.example'", "MCPPROXY_ALLOWED_HOSTS"),
        ("/sse", {"host": "evil.example"}, 421, "host_not_allowed", "'evil.example'", "MCPPROXY_ALLOWED_HOSTS"),
        ("/mcp", {"origin": "http://evil.example"}, 403, "origin_not_allowed", "evil", "MCPPROXY_ALLOWED_HOSTS"),
        ("/mcp", {}, 401, "unauthorized", "none was sent", "Authorization: Bearer"),
        ("/sse", {}, 401, "unauthorized", "none was sent", "Authorization: Bearer"),
        ("/mcp", {"authorization": "Bearer wrong-token"}, 401, "unauthorized", "is not", "MCPPROXY_AUTH_TOKEN"),
        ("/mcp", {"host": "x" * 500}, 421, "host_not_allowed", "xxx", "MCPPROXY_ALLOWED_HOSTS"),
    ],
)
async def test_who_is_not_let_in_is_told_why_and_what_to_do(
    addresses: dict[str, str],
    http: httpx2.AsyncClient,
    path: str,
    changes: dict[str, str],
    status: int,
    code: str,
    what: str,
    what_next: str,
) -> None:
    """As JSON, an error of JSON-RPC without an id; neither the right token nor the wrong one is in it."""
    headers, body = opening("modern")
    verb = "GET" if path == "/sse" else "POST"
    reply = await http.request(verb, addresses["locked"] + path, headers=headers | changes, content=json.dumps(body))
    assert (reply.status_code, reply.headers["content-type"]) == (status, "application/json")
    answer = reply.json()
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", None)
    error = answer["error"]["data"]
    assert (error["code"], error["delivery"]) == (code, "not_sent")
    assert what in error["message"]
    assert what_next in error["hint"]
    assert answer["error"]["message"] == f"{error['message']} {error['hint']}"
    assert len(reply.text) < 1_000
    assert TOKEN not in reply.text
    assert "wrong-token" not in reply.text
    scheme = 'Bearer error="invalid_token"' if "authorization" in changes else "Bearer"
    assert reply.headers.get("www-authenticate") == (scheme if status == 401 else None)
