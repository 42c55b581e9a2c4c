"""The HTTP broker, as a program without any MCP library meets it."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import jsonschema_rs
import pytest
from broker_upstream import BrokerUpstream
from described import assert_described
from fastmcp import Client, Context, FastMCP
from plain_http import plain_client
from transports import listening, odd_server, opened_gateway, served

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope

pytestmark = pytest.mark.anyio

SECRET = "sk-credential-of-the-upstream"
OWN = "token-of-the-gateway-itself"
PAGE = "https://app.example"
STREAM = {"method": "tools/call", "id": 7, "params": {"name": "stream", "_meta": {"progressToken": "mine"}}}


def calling(tool: str, **arguments: Any) -> dict[str, Any]:
    """The body of a call that wants to hear of its progress."""
    return {
        "method": "tools/call",
        "id": tool,
        "params": {"name": tool, "arguments": arguments, "_meta": {"progressToken": 5}},
    }


def messages_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream, as pairs of name and message."""
    found = []
    for block in filter(None, text.split("\n\n")):
        event, data = block.split("\n")
        found.append((event.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


class Broker:
    """A gateway with a broker, the server behind it, and a client in front."""

    def __init__(self, gateway: Gateway, upstream: BrokerUpstream, base: str, client: httpx2.AsyncClient) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self.base = base
        self.client = client

    async def post(self, body: Any, server: str = "b", **headers: str) -> httpx2.Response:
        """The answer to one message."""
        return await self.client.post(f"/api/mcp/{server}/proxy", json=body, headers=headers)

    async def status(self, server: str = "b") -> dict[str, Any]:
        """What the broker knows of a server."""
        found: dict[str, Any] = (await self.client.get(f"/api/mcp/{server}/proxy/status")).json()
        return found


@asynccontextmanager
async def opened_broker(
    data_dir: Path, *, token: str | None = None, extra: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Broker]:
    """A broker in front of one good server `b`, of `plain` that is not for it, and of `more` servers."""
    upstream = BrokerUpstream()
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(listening(upstream)) + "/mcp"
        servers = {
            "b": {"url": there, "proxy": True, "headers": {"Authorization": f"Bearer {SECRET}"}},
            "plain": {"url": there},
            **(extra or {}),
        }
        gateway = await stack.enter_async_context(opened_gateway(data_dir, servers, **settings))
        base = await stack.enter_async_context(served(gateway, token=token))
        gateway.start_upstreams()
        assert await gateway.wait_settled(20)
        own = {} if token is None else {"authorization": f"Bearer {token}"}
        hooks = {"response": [assert_described]}
        client = plain_client(base_url=base, timeout=30, headers=own, event_hooks=hooks)
        yield Broker(gateway, upstream, base, await stack.enter_async_context(client))


@pytest.fixture(scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    """The broker that most tests here use; a page of `PAGE` may use it too."""
    away = {"url": "http://127.0.0.1:9/mcp", "proxy": True}
    extra = {"away": away, "program": odd_server("handshake"), "held": {**away, "quarantined": True}}
    extra |= {"off": {**away, "disabled": True}, "wrong": {"command": "true", "proxy": True}}
    directory = tmp_path_factory.mktemp("broker")
    async with opened_broker(directory, extra=extra, cors_origins=(PAGE,), refused=("wrong",)) as found:
        with anyio.fail_after(20):  # "b" and "plain" are listed to the end: the tests count what arrives
            while len(found.upstream.heard("resources/templates/list")) < 2:
                await anyio.lowlevel.checkpoint()
        yield found


def assert_failed(reply: httpx2.Response, status: int, code: str, server: str = "b", *, is_proxy: bool = True) -> None:
    """Fails unless this is the broker's own word for a failure."""
    assert reply.status_code == status, reply.text
    body = reply.json()
    assert body.keys() == {"error", "message", "details", "timestamp"}
    assert body["error"] == "ProxyError" and body["message"]
    details = {name: body["details"][name] for name in ("mcpName", "proxyEnabled", "code")}
    assert details == {"mcpName": server, "proxyEnabled": is_proxy, "code": code}
    assert SECRET not in reply.text and "sk-upstream-secret" not in reply.text


# --- requests and answers


@pytest.mark.requirement("broker-request")
@pytest.mark.parametrize(
    ("method", "params", "member"),
    [
        ("tools/list", {}, "tools"),
        ("tools/call", {"name": "echo", "arguments": {"a": 1}}, "content"),
        ("resources/list", {}, "resources"),
        ("resources/read", {"uri": "memo://1"}, "contents"),
        ("prompts/list", {}, "prompts"),
        ("prompts/get", {"name": "greet", "arguments": {"who": "you"}}, "messages"),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "y"}},
            "completion",
        ),
    ],
)
async def test_any_method_is_answered_by_the_server(
    broker: Broker, method: str, params: dict[str, Any], member: str
) -> None:
    """As a JSON-RPC reply in one JSON body."""
    reply = await broker.post({"method": method, "params": params})
    assert reply.status_code == 200 and reply.headers["content-type"] == "application/json"
    assert reply.json().keys() == {"jsonrpc", "id", "result"} and reply.json()["result"][member]


@pytest.mark.requirement("broker-ids")
@pytest.mark.parametrize("given", [{}, {"id": 1}, {"id": 42}, {"id": -7}, {"id": "one"}, {"id": ""}, {"id": 2**60}])
async def test_the_answer_has_the_callers_id(broker: Broker, given: dict[str, Any]) -> None:
    """And 1 where the request names none; the server sees an id of the gateway's own."""
    reply = (await broker.post({"method": "ping", **given})).json()
    assert reply == {"jsonrpc": "2.0", "id": given.get("id", 1), "result": {}}
    assert broker.upstream.heard("ping")[-1]["id"] != "one"


@pytest.mark.requirement("broker-ids")
async def test_two_callers_with_one_id_get_their_own_answers(broker: Broker) -> None:
    """Many at once, all as number 1."""

    async def ask(number: int) -> None:
        body = {"method": "tools/call", "id": 1, "params": {"name": "echo", "arguments": {"n": number}}}
        text = (await broker.post(body)).json()["result"]["content"][0]["text"]
        assert json.loads(text) == {"n": number}

    async with asyncio.TaskGroup() as group:
        for number in range(30):
            group.create_task(ask(number))


@pytest.mark.requirement("broker-ids")
async def test_two_principals_never_hear_of_each_other(tmp_path: Path) -> None:
    """The same ids at the same time, streams and answers interleaved."""
    async with opened_broker(tmp_path, token=OWN) as found:
        made = [
            await found.gateway.admin.agent_tokens.create(name, Scope(("b",), "destructive")) for name in ("one", "two")
        ]

        async def ask(name: str, token: str, number: int) -> None:
            params = {"name": "many", "arguments": {"count": 3, "size": 1, "words": name}}
            params["_meta"] = {"progressToken": f"{name}-{number}"}
            body = {"method": "tools/call", "id": 1, "params": params}
            told = messages_of((await found.post(body, authorization=f"Bearer {token}")).text)
            tokens = {message["params"]["progressToken"] for _, message in told[:-1]}
            assert tokens == {f"{name}-{number}"} and told[-1][1]["id"] == 1

        async with asyncio.TaskGroup() as group:
            for number in range(10):
                for name, new in zip(("one", "two"), made, strict=True):
                    group.create_task(ask(name, new.secret, number))


@pytest.mark.requirement("broker-rpc-error")
async def test_an_error_of_the_servers_is_its_answer(broker: Broker) -> None:
    """Code, message and data, with the caller's id."""
    reply = await broker.post(calling("refuse"))
    assert reply.status_code == 200
    error = {"code": -32050, "message": "not today", "data": {"until": "tomorrow"}}
    assert reply.json() == {"jsonrpc": "2.0", "id": "refuse", "error": error}


@pytest.mark.requirement("broker-notification")
async def test_a_notification_stays_one(broker: Broker) -> None:
    """202 without a body; nothing of it becomes a request, and it cannot cancel what others do."""
    params = {"requestId": 1, "reason": "the caller's own words"}
    for method in ("initialized", "cancelled", "progress", "roots/list_changed"):
        reply = await broker.post({"method": f"notifications/{method}", "params": params})
        assert (reply.status_code, reply.content) == (202, b"")
    heard = [message.get("params") for _, message in broker.upstream.requests]
    assert params not in heard  # the gateway's own messages may come at any time
    assert_failed(await broker.post({"method": "notifications/odd"}), 400, "method_not_allowed")


@pytest.mark.requirement("broker-bad-input")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", "not_json"),
        ("{", "not_json"),
        ("NaN", "not_json"),
        ("\ufeff{}", "not_json"),
        ("[" * 100_000, "not_json"),
        ('[{"method":"ping"}]', "batch_unsupported"),
        ("[]", "batch_unsupported"),
        ("7", "invalid_request"),
        ("null", "invalid_request"),
        ("{}", "invalid_request"),
        ('{"method":""}', "invalid_request"),
        ('{"method":7}', "invalid_request"),
        ('{"method":"ping","jsonrpc":"1.0"}', "invalid_request"),
        ('{"method":"ping","params":[]}', "invalid_request"),
        ('{"method":"ping","params":null}', "invalid_request"),
        ('{"method":"ping","params":{"_meta":7}}', "invalid_request"),
        ('{"method":"ping","params":{"_meta":{"progressToken":{}}}}', "invalid_request"),
        ('{"method":"ping","id":null}', "invalid_id"),
        ('{"method":"ping","id":1.5}', "invalid_id"),
        ('{"method":"ping","id":true}', "invalid_id"),
        ('{"method":"ping","id":{}}', "invalid_id"),
        ('{"method":"ping","id":99999999999999999999}', "invalid_id"),
        ('{"method":"notifications/initialized","id":1}', "invalid_id"),
        ('{"method":"tools/drop"}', "method_not_allowed"),
        ('{"method":"initialize"}', "method_not_allowed"),
        ('{"method":"logging/setLevel","params":{"level":"debug"}}', "method_not_allowed"),
        ('{"method":"resources/subscribe","params":{"uri":"memo://1"}}', "method_not_allowed"),
        ('{"method":"sampling/createMessage"}', "method_not_allowed"),
        ('{"method":"tools/call"}', "invalid_request"),
        ('{"method":"tools/call","params":{"name":"echo","arguments":[]}}', "invalid_request"),
        ('{"method":"tools/list","params":{"cursor":"2"}}', "invalid_request"),
        ('{"method":"resources/list","params":{"cursor":2}}', "invalid_request"),
        ('{"method":"resources/read"}', "invalid_request"),
        ('{"method":"prompts/get","params":{"name":7}}', "invalid_request"),
        ('{"method":"prompts/get","params":{"name":"nobody"}}', "not_found"),
        ('{"method":"completion/complete","params":{"ref":7}}', "invalid_request"),
    ],
)
async def test_a_bad_message_is_refused_with_its_reason(broker: Broker, body: str, code: str) -> None:
    """400, and the server hears nothing of it."""
    before = len(broker.upstream.requests)
    headers = {"content-type": "application/json"}
    reply = await broker.client.post("/api/mcp/b/proxy", content=body.encode(), headers=headers)
    assert_failed(reply, 400, code)
    assert len(broker.upstream.requests) == before


@pytest.mark.requirement("broker-bad-input")
@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "no 'ref'"),
        ({"ref": {"type": "ref/other"}}, "no 'ref'"),
        ({"ref": {"type": "ref/prompt"}}, "'ref' has no 'name'"),
        ({"ref": {"type": "ref/resource"}}, "'ref' has no 'uri'"),
    ],
)
async def test_a_completion_is_told_what_is_missing(broker: Broker, params: dict[str, Any], words: str) -> None:
    """The member, and where it belongs."""
    reply = await broker.post({"method": "completion/complete", "params": params})
    assert_failed(reply, 400, "invalid_request")
    assert words in reply.json()["message"]


@pytest.mark.requirement("broker-bad-input")
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_that_is_not_called_json_is_refused(broker: Broker, kind: str) -> None:
    """A page in a browser can send those without being asked."""
    headers = {"content-type": kind} if kind else {}
    reply = await broker.client.post("/api/mcp/b/proxy", content=b'{"method":"ping"}', headers=headers)
    assert_failed(reply, 415, "unsupported_media_type")


@pytest.mark.requirement("broker-bad-input")
async def test_a_body_of_six_megabytes_is_refused(broker: Broker) -> None:
    """And the next request is served."""
    reply = await broker.post({"method": "ping", "params": {"pad": "x" * 6_000_000}})
    assert_failed(reply, 413, "too_large")
    assert (await broker.post({"method": "ping"})).status_code == 200


@pytest.mark.requirement("broker-failures")
@pytest.mark.parametrize(
    ("server", "status", "code", "is_proxy"),
    [
        ("nobody", 404, "server_not_found", False),
        ("a%2Fb", 404, "server_not_found", False),
        ("plain", 400, "proxy_disabled", False),
        ("program", 400, "proxy_disabled", False),
        ("held", 403, "quarantined", True),
        ("off", 403, "server_disabled", True),
        ("away", 502, "upstream_failed", True),
    ],
)
async def test_a_server_that_cannot_be_asked_is_told_by_status(
    broker: Broker, server: str, status: int, code: str, *, is_proxy: bool
) -> None:
    """Source: docs/design/broker.md#errors"""
    for body in ({"method": "tools/list"}, {"method": "resources/list"}, calling("echo")):
        reply = await broker.post(body, server)
        assert_failed(reply, status, code, server.replace("%2F", "/"), is_proxy=is_proxy)
        assert ("Nothing is known of its definitions" in reply.text) == (code == "quarantined")
    assert ("configured for proxying" in reply.text) == (code == "proxy_disabled")


@pytest.mark.requirement("broker-failures")
async def test_an_entry_that_the_broker_refuses_keeps_its_row_and_its_cause(broker: Broker) -> None:
    """In states, connections, searches and answers; one mistake in a file hides no server from its user."""
    cause = "Proxy is only supported for 'url' type MCP servers, got 'stdio'."
    for rows in ((await broker.gateway.admin.management.servers()).servers, broker.gateway.status().servers):
        (row,) = (row for row in rows if row.name == "wrong")
        assert row.state == "error" and cause in row.error
    listed = (await broker.client.get("/api/connections")).json()["connections"]
    assert [row["isAvailable"] for row in listed if row["name"] == "wrong"] == [False]
    assert_failed(
        reply := await broker.post({"method": "ping"}, "wrong"), 502, "upstream_failed", "wrong", is_proxy=False
    )
    assert cause in reply.text
    async with Client(broker.gateway.mcp_server()) as agent:
        found = (await agent.call_tool("retrieve_tools", {"query": "anything of wrong"})).structured_content
        assert {"server": "wrong", "state": "error", "reason": f"Server 'wrong': {cause}"} in found["not_covered"]
        for tool, asked in (("call_tool_write", {"name": "wrong:x"}), ("describe_tool", {"names": ["wrong__x"]})):
            told = await agent.call_tool(tool, asked, raise_on_error=False)
            assert told.is_error and cause in json.dumps(told.structured_content)


@pytest.mark.requirement("broker-request")
async def test_a_ping_asks_a_server_of_the_modern_era_too(tmp_path: Path) -> None:
    """Which has no such method: it is asked what it can do instead, and one that is gone is told as gone."""
    heard: list[str] = []
    app = FastMCP("modern").http_app(stateless_http=True)

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        heard.extend(value.decode() for name, value in scope.get("headers", ()) if name == b"mcp-method")
        await app(scope, receive, send)

    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(listening(noting))
        extra = {"modern": {"url": f"{there}/mcp", "proxy": True}}
        found = await stack.enter_async_context(opened_broker(tmp_path, extra=extra))
        upstream = found.gateway.upstreams.fleet.upstreams.get("modern")
        assert upstream is not None and upstream.status.era == "modern"
        heard.clear()
        reply = await found.post({"method": "ping", "id": 3}, "modern")
        assert (reply.status_code, reply.json()) == (200, {"jsonrpc": "2.0", "id": 3, "result": {}})
        assert "server/discover" in heard


@pytest.mark.requirement("broker-failures")
async def test_a_server_that_answers_badly_is_a_bad_gateway(broker: Broker) -> None:
    """Pages, redirects, broken and refused answers; nothing of a page's text is repeated, no redirect followed."""
    elsewhere = BrokerUpstream()
    async with listening(elsewhere) as there:
        port = there.rpartition(":")[2]
        for host in ("localhost", "127.0.0.1"):
            reply = await broker.post(calling("redirect", to=f"http://{host}:{port}/mcp"))
            assert_failed(reply, 502, "upstream_failed")
    assert elsewhere.requests == []
    assert_failed(await broker.post(calling("html")), 502, "upstream_failed")
    assert_failed(await broker.post(calling("nothing")), 404, "tool_not_found")


@pytest.mark.requirement("broker-failures")
@pytest.mark.parametrize("status", [403, 422, 500, 503])
async def test_the_status_of_a_server_is_told_whatever_its_body_says(tmp_path: Path, status: int) -> None:
    """An object with a member `error` is no JSON-RPC error: the answer is never 200."""
    async with opened_broker(tmp_path) as found:
        reply = await found.post(calling("failing", status=status, body={"error": {"message": "no luck today"}}))
        assert_failed(reply, 502, "upstream_failed")
        assert reply.json()["details"]["httpStatus"] == status
        assert "no luck today" in reply.json()["message"]


@pytest.mark.requirement("broker-failures")
async def test_a_server_that_asks_for_a_pause_gets_it(tmp_path: Path) -> None:
    """The caller is told how long, and until then nothing is sent."""
    async with opened_broker(tmp_path) as found:
        reply = await found.post(calling("busy"))
        assert_failed(reply, 429, "rate_limited")
        assert reply.json()["details"]["httpStatus"] == 429
        assert reply.headers["retry-after"] == "7"
        assert_failed(await found.post({"method": "ping"}), 502, "breaker_open")
        assert found.upstream.heard("ping") == []


@pytest.mark.requirement("broker-failures")
async def test_a_server_that_wants_another_sign_in_is_told_from_a_caller_without_a_token(tmp_path: Path) -> None:
    """Both 401; `details.code` and WWW-Authenticate say whose, and the status says that it is not authorised.

    Not after a 401 to one call: the server is asked, and as long as it takes other requests it stays in use.
    """
    async with opened_broker(tmp_path, token=OWN) as found:
        assert (await found.status())["isAuthorized"] is True
        for locks_all in (False, True):
            found.upstream.is_locked = locks_all
            reply = await found.post(calling("locked"))
            assert_failed(reply, 401, "upstream_auth")
            assert "www-authenticate" not in reply.headers
            if not locks_all:
                with anyio.fail_after(20):
                    while not found.upstream.heard("ping"):
                        await asyncio.sleep(0.01)
                assert (await found.post(calling("echo"))).status_code == 200
                assert (await found.status())["isAuthorized"] is True
        with anyio.fail_after(20):
            while (await found.status())["isAuthorized"]:
                await asyncio.sleep(0.01)
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Bearer {SECRET}"}):
            async with plain_client(base_url=found.base) as stranger:
                reply = await stranger.post("/api/mcp/b/proxy", json={"method": "ping"}, headers=headers)
                assert_failed(reply, 401, "unauthorized", is_proxy=False)
                assert reply.headers["www-authenticate"] == "Bearer"
                for path in ("/api/mcp/b/proxy/status", "/api/connections"):
                    assert (await stranger.get(path, headers=headers)).status_code == 401


@pytest.mark.requirement("broker-failures")
async def test_a_server_that_is_too_slow_is_a_gateway_timeout(tmp_path: Path) -> None:
    """504, and the server is told by the closed connection."""
    upstream = BrokerUpstream()
    async with listening(upstream) as there:
        slow = {"url": f"{there}/mcp", "proxy": True, "timeout": 1500}
        async with opened_broker(tmp_path, extra={"slow": slow}) as found:
            reply = await found.post(calling("silent"), "slow")
            assert_failed(reply, 504, "upstream_timeout", "slow")
            assert reply.json()["details"]["delivery"] == "unknown"
            with anyio.fail_after(10):
                await upstream.has_left.wait()


# --- streams


@pytest.mark.requirement("broker-events")
async def test_events_pass_as_they_come(broker: Broker) -> None:
    """Before the server has finished, progress under the caller's own token; what concerns the session stays here.

    They are cleaned as results are.
    """
    broker.upstream.go.clear()
    async with broker.client.stream("POST", "/api/mcp/b/proxy", json=STREAM) as reply:
        assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["cache-control"] == "no-cache"
        text = ""
        async for piece in reply.aiter_text():
            text += piece
            if "half way" in text and not broker.upstream.go.is_set():
                assert "streamed" not in text
                broker.upstream.go.set()
    found = messages_of(text)
    assert "\\u001b" not in text
    assert [event for event, _ in found] == ["message"] * 4
    assert [message.get("method") for _, message in found] == [
        "notifications/progress",
        "notifications/message",
        "notifications/progress",
        None,
    ]
    assert {message["params"]["progressToken"] for _, message in found if "progress" in message.get("method", "")} == {
        "mine"
    }
    assert found[-1][1] == {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "streamed"}]}}


@pytest.mark.requirement("broker-events")
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_real_server_is_heard_over_both_transports(tmp_path: Path, transport: Literal["http", "sse"]) -> None:
    """Progress under the caller's token and the answer, also where all requests share one stream."""
    server = FastMCP("real")

    @server.tool
    async def count(context: Context) -> str:
        for step in range(3):
            await context.report_progress(step, 2, f"st\x1b[2Jep {step}")
        return "counted"

    async with listening(server.http_app(transport=transport)) as there:
        real = {"url": f"{there}/{'mcp' if transport == 'http' else 'sse'}", "proxy": True}
        async with opened_broker(tmp_path, extra={"real": real}) as found:
            told = messages_of((await found.post(calling("count"), "real")).text)
    *before, (_, last) = told
    assert last["id"] == "count" and last["result"]["content"][0]["text"] == "counted"
    steps = [message["params"] for _, message in before]
    assert [step["message"] for step in steps] == ["step 0", "step 1", "step 2"]
    assert {step["progressToken"] for step in steps} == {5}


@pytest.mark.requirement("broker-lines")
async def test_a_caller_that_takes_json_only_gets_lines(broker: Broker) -> None:
    """Of a server that sends lines, or events: each line is a message, sent as it comes."""
    for tool in ("lines", "stream"):
        broker.upstream.go.clear()
        headers = {"accept": "application/json"}
        url = "/api/mcp/b/proxy"
        async with broker.client.stream("POST", url, json=calling(tool), headers=headers) as reply:
            assert reply.headers["content-type"] == "application/json"
            assert reply.headers["transfer-encoding"] == "chunked"
            lines = []
            async for line in reply.aiter_lines():
                lines.append(json.loads(line))
                broker.upstream.go.set()
        assert lines[0]["params"] == {"progressToken": 5, "progress": 1, "message": "step 1"}
        assert lines[-1]["id"] == tool and "result" in lines[-1]


@pytest.mark.requirement("broker-lines")
async def test_one_json_body_in_pieces_is_one_json_body(broker: Broker) -> None:
    """However it is cut and laid out."""
    reply = await broker.post(calling("pretty"))
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["result"]["content"][0]["text"] == "pretty"


@pytest.mark.requirement("broker-events")
async def test_a_caller_that_takes_events_only_gets_events(broker: Broker) -> None:
    """Also where there is only the answer."""
    for tool in ("echo", "pretty"):
        reply = await broker.post(calling(tool), accept="text/event-stream")
        assert reply.headers["content-type"].startswith("text/event-stream")
        [(event, message)] = messages_of(reply.text)
        assert event == "message" and message["id"] == tool


@pytest.mark.requirement("broker-stream-end")
async def test_a_stream_that_breaks_ends_with_an_error(broker: Broker) -> None:
    """An event of that name with a JSON-RPC error under the caller's id, and then the end."""
    found = messages_of((await broker.post(calling("cut"))).text)
    assert [event for event, _ in found] == ["message", "error"]
    last = found[-1][1]
    assert last["id"] == "cut" and last["error"]["data"]["delivery"] == "unknown"
    assert last["error"]["data"]["code"] == "upstream_failed"


@pytest.mark.requirement("broker-stream-end")
@pytest.mark.parametrize("tool", ["hang", "silent"])
@pytest.mark.long
async def test_a_caller_that_leaves_ends_it_at_the_server(broker: Broker, tool: str) -> None:
    """Within a second, in the middle of a stream or before anything was said; the next request is served."""
    upstream = broker.upstream
    upstream.has_left.clear()
    upstream.waiting.clear()

    async def ask() -> None:
        await broker.post(calling(tool))

    asking = asyncio.create_task(ask())
    with anyio.fail_after(20):
        await upstream.waiting.wait()
    asking.cancel()
    started = asyncio.get_running_loop().time()
    with anyio.fail_after(20):
        await upstream.has_left.wait()
    assert asyncio.get_running_loop().time() - started < 1
    assert (await broker.post({"method": "ping"})).status_code == 200


@pytest.mark.requirement("broker-stream-end")
@pytest.mark.long  # megabytes
async def test_a_caller_that_does_not_read_holds_the_server_back(broker: Broker) -> None:
    """A stream of 64 MB is not collected in memory, and arrives whole when it is read."""
    body = calling("many", count=1_000, size=65_536)
    async with broker.client.stream("POST", "/api/mcp/b/proxy", json=body) as reply:
        pieces = reply.aiter_raw()
        size = len(await anext(pieces))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await asyncio.sleep(0.3)  # time to collect it, if anybody did
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
        async for piece in pieces:
            size += len(piece)
    assert size > 64_000_000


@pytest.mark.requirement("broker-many")
@pytest.mark.long  # half a second of work and more
async def test_many_short_streams_and_long_ones_leave_nothing(tmp_path: Path) -> None:
    """50 at once, while five stay open."""
    await run_streams(tmp_path, short=50, long=5)


@pytest.mark.soak
@pytest.mark.requirement("broker-many")
async def test_a_thousand_short_streams_and_a_hundred_long_ones_leave_nothing(tmp_path: Path) -> None:
    """All at once."""
    await run_streams(tmp_path, short=1_000, long=100)


async def run_streams(tmp_path: Path, *, short: int, long: int) -> None:
    """Opens them, ends the long ones, and fails if anything is left."""
    limits = {"in_flight": 0, "broker_requests": short + long}
    async with opened_broker(tmp_path, **limits) as found:
        idle = {task for task in asyncio.all_tasks() if "upstream-http" not in task.get_name()}
        client = plain_client(base_url=found.base, timeout=120, limits=httpx2.Limits(max_connections=None))
        async with client:

            async def ask(tool: str) -> None:
                reply = await client.post("/api/mcp/b/proxy", json=calling(tool))
                assert reply.status_code == 200, reply.text
                assert messages_of(reply.text)[-1][1]["result"], reply.text

            async def open_for_long() -> None:
                async with client.stream("POST", "/api/mcp/b/proxy", json=calling("hang")) as reply:
                    async for _ in reply.aiter_raw():
                        pass

            longs = [asyncio.create_task(open_for_long()) for _ in range(long)]
            with anyio.fail_after(60):
                while found.upstream.open_streams < long:
                    await asyncio.sleep(0.01)
            with anyio.fail_after(120):
                await asyncio.gather(*(ask("stream") for _ in range(short)))
            for task in longs:
                task.cancel()
            await asyncio.wait(longs)
            with anyio.fail_after(30):
                while found.upstream.open_streams:
                    await asyncio.sleep(0.01)
        with anyio.fail_after(30):
            while left := {task for task in asyncio.all_tasks() - idle if not task.done()} - {asyncio.current_task()}:
                await asyncio.wait(left, timeout=0.05)
        assert (await found.status())["proxyRequestCount"] == short + long


# --- who may, and what is told


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("broker-credentials")
async def test_the_server_gets_its_own_credentials_and_nothing_of_the_callers(tmp_path: Path) -> None:
    """No header of the caller's goes there, and none of the server's comes back."""
    mine = {"cookie": "mine=1", "x-api-key": "mine-2", "x-forwarded-for": "192.0.2.7", "mcp-session-id": "mine-3"}
    async with opened_broker(tmp_path, token=OWN) as found:
        reply = await found.post(calling("raw"), **mine)
        assert reply.status_code == 200
        [(sent, message)] = [each for each in found.upstream.requests if each[1].get("method") == "tools/call"]
    assert sent["authorization"] == f"Bearer {SECRET}"
    assert not sent.keys() & {"cookie", "x-api-key", "x-forwarded-for", "forwarded", "origin"}
    assert "mine" not in json.dumps(sent) and OWN not in json.dumps([sent, message])
    assert not reply.headers.keys() & {"set-cookie", "access-control-allow-origin", "x-secret", "mcp-session-id"}
    assert SECRET not in str(reply.headers) + reply.text


@pytest.mark.requirement("broker-credentials")
async def test_no_token_is_logged_shown_or_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Good and bad requests, with everything logged."""
    caplog.set_level("DEBUG")
    data_dir = tmp_path / "data"
    async with opened_broker(data_dir, token=OWN) as found:
        shown = [(await found.post(calling(tool))).text for tool in ("echo", "cut", "html", "busy", "locked")]
        shown.append((await found.client.get("/api/connections")).text)
        shown.append(json.dumps(await found.status()))
    stored = b"".join(file.read_bytes() for file in data_dir.rglob("*") if file.is_file() and "token" not in file.name)
    for secret in (SECRET, OWN):
        assert secret not in "".join(shown)
        assert secret not in caplog.text
        assert secret.encode() not in stored


@pytest.mark.requirement("broker-status")
async def test_the_status_counts_what_was_passed_on(broker: Broker) -> None:
    """Requests that were passed on, and when the last one was; refused ones do not count."""
    before = await broker.status()
    for _ in range(3):
        await broker.post({"method": "ping"})
    await broker.post({"method": "initialize"})
    after = await broker.status()
    assert after["proxyRequestCount"] == before["proxyRequestCount"] + 3
    assert after.keys() == {
        *("name", "isProxy", "targetUrl", "isAuthorized", "hasToken", "lastProxyRequest", "proxyRequestCount")
    }
    assert after["name"] == "b" and after["isProxy"] and after["isAuthorized"] and after["hasToken"]
    assert after["lastProxyRequest"] > (before["lastProxyRequest"] or "") and after["lastProxyRequest"].endswith("Z")
    plain = await broker.status("plain")
    assert (plain["isProxy"], plain["hasToken"], plain["lastProxyRequest"]) == (False, False, None)
    assert (await broker.status("program"))["targetUrl"] is None
    assert_failed(await broker.client.get("/api/mcp/no/proxy/status"), 404, "server_not_found", "no", is_proxy=False)


@pytest.mark.requirement("broker-connections")
async def test_the_connections_name_every_server_and_its_endpoint(broker: Broker) -> None:
    """With its address, secrets hidden, and whether it is there."""
    rows = {row["name"]: row for row in (await broker.client.get("/api/connections")).json()["connections"]}
    assert rows.keys() == {"b", "plain", "away", "program", "held", "off", "wrong"}
    assert rows["b"]["proxyEndpoints"] == ["/api/mcp/b/proxy"] and rows["b"]["isAvailable"]
    assert rows["b"]["type"] == "mcp-server" and rows["b"]["details"]["targetUrl"].startswith("http://127.0.0.1:")
    assert rows["plain"]["proxyEndpoints"] == [] and not rows["plain"]["isProxy"]
    assert not rows["away"]["isAvailable"] and rows["away"]["details"]["lastAuthorized"] is None


@pytest.mark.requirement("broker-reach")
async def test_a_token_reaches_its_own_servers_and_tools_only(tmp_path: Path) -> None:
    """What lies beyond does not exist: the words are those for an unknown one."""
    async with opened_broker(tmp_path, token=OWN) as found:
        tokens = found.gateway.admin.agent_tokens
        other = (await tokens.create("other", Scope(("plain",), "destructive"))).secret
        reader = (await tokens.create("reader", Scope(("b",), "read"))).secret
        theirs = {"authorization": f"Bearer {other}"}
        reply = await found.post({"method": "ping"}, **theirs)
        assert_failed(reply, 404, "server_not_found", is_proxy=False)
        assert (await found.client.get("/api/mcp/b/proxy/status", headers=theirs)).status_code == 404
        rows = (await found.client.get("/api/connections", headers=theirs)).json()["connections"]
        assert [row["name"] for row in rows] == ["plain"]
        theirs = {"authorization": f"Bearer {reader}"}
        assert (await found.post({"method": "tools/list"}, **theirs)).json()["result"]["tools"] == []
        assert_failed(await found.post(calling("echo"), **theirs), 403, "access_denied")


@pytest.mark.requirement("broker-reach")
async def test_a_token_that_is_held_to_a_profile_reads_nothing_beyond_it(tmp_path: Path) -> None:
    """Neither prompts nor resources, listed, read or completed; nothing of them reaches the server."""
    profiles = {"narrow": {"servers": ["b"], "tools": ["echo"]}, "memo": {"tools": ["memo://*"]}}
    completion = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "y"}}
    async with opened_broker(tmp_path, token=OWN, profiles=profiles) as found:
        secrets = {
            name: (await found.gateway.admin.agent_tokens.create(name, Scope(None, "destructive", name))).secret
            for name in profiles
        }
        narrow, memo = ({"authorization": f"Bearer {secrets[name]}"} for name in ("narrow", "memo"))
        for method, member in (
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ):
            assert (await found.post({"method": method}, **narrow)).json()["result"][member] == []
        beyond: tuple[tuple[str, dict[str, Any]], ...] = (
            ("resources/read", {"uri": "memo://1"}),
            ("prompts/get", {"name": "greet"}),
            ("completion/complete", completion),
        )
        for method, params in beyond:
            reply = await found.post({"method": method, "params": params}, **narrow)
            assert reply.status_code >= 400, reply.text
            assert found.upstream.heard(method) == []
        (tool,) = (await found.post({"method": "tools/list"}, **narrow)).json()["result"]["tools"]
        assert tool["name"] == "echo"
        read = await found.post({"method": "resources/read", "params": {"uri": "memo://1"}}, **memo)
        assert read.json()["result"]["contents"]
        assert (await found.post({"method": "prompts/list"}, **memo)).json()["result"]["prompts"] == []


@pytest.mark.requirement("broker-approval")
async def test_a_tool_that_waits_for_its_user_is_neither_listed_nor_called(tmp_path: Path) -> None:
    """The broker is no way around approvals."""
    data_dir = tmp_path / "data"
    async with opened_broker(data_dir) as found:
        new = {"name": "late", "description": "Came later.", "inputSchema": {"type": "object"}}
        found.upstream.tools = [*found.upstream.tools, new]
        found.gateway.lists.tool_sync.list_soon("b")
        with anyio.fail_after(10):
            while len(found.upstream.heard("tools/list")) < 3 or not found.gateway.visible.count_waiting():
                await asyncio.sleep(0.01)
        listed = (await found.post({"method": "tools/list"})).json()["result"]["tools"]
        assert "late" not in [tool["name"] for tool in listed] and "echo" in [tool["name"] for tool in listed]
        assert_failed(await found.post(calling("late")), 403, "quarantined")


@pytest.mark.requirement("broker-approval")
async def test_a_resource_that_changed_waits_for_its_user(tmp_path: Path) -> None:
    """It is neither listed nor read until then."""
    async with opened_broker(tmp_path) as found:
        listing, reading = {"method": "resources/list"}, {"method": "resources/read", "params": {"uri": "memo://1"}}
        assert (await found.post(listing)).json()["result"]["resources"]
        found.upstream.resources = [{"uri": "memo://1", "name": "another"}]
        found.gateway.lists.content_sync.list_soon("b")
        with anyio.fail_after(10):
            while (await found.post(listing)).json()["result"]["resources"]:
                await asyncio.sleep(0.01)
        assert_failed(await found.post(reading), 403, "quarantined")
        assert found.upstream.heard("resources/read") == []


@pytest.mark.requirement("broker-stream-end")
async def test_what_is_under_way_ends_before_the_gateway(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A stream that goes on is finished, one that hangs ends with an error at both ends; nothing new is let in."""
    async with opened_broker(tmp_path) as found:
        upstream = found.upstream
        upstream.go.clear()
        going, hanging = (asyncio.create_task(found.post(calling(tool))) for tool in ("stream", "hang"))
        with anyio.fail_after(20):
            await upstream.waiting.wait()
            while not upstream.heard("tools/call"):
                await asyncio.sleep(0.01)
        stopping = asyncio.create_task(found.gateway.agent.drain(1.0))
        with anyio.fail_after(20):
            while (reply := await found.post({"method": "ping"})).status_code == 200:
                await asyncio.sleep(0.01)
        assert_failed(reply, 503, "shutting_down")
        upstream.go.set()
        with anyio.fail_after(10):
            assert messages_of((await going).text)[-1][1]["result"]
            event, last = messages_of((await hanging).text)[-1]
            await upstream.has_left.wait()
            await stopping
    assert event == "error" and last["error"]["data"]["code"] == "shutting_down"
    assert "Traceback" not in caplog.text and not [one for one in caplog.records if one.levelname == "ERROR"]


@pytest.mark.requirement("broker-limits")
async def test_a_caller_has_so_many_requests_under_way(tmp_path: Path) -> None:
    """One more is refused and told when to come back; an ended one makes room."""
    async with opened_broker(tmp_path, broker_requests=2) as found:
        asking = [asyncio.create_task(found.post(calling("hang"))) for _ in range(2)]
        with anyio.fail_after(10):
            while found.upstream.open_streams < 2:
                await asyncio.sleep(0.01)
        reply = await found.post({"method": "ping"})
        assert_failed(reply, 429, "rate_limited")
        assert reply.headers["retry-after"] == "1"
        asking[0].cancel()
        with anyio.fail_after(10):
            while (await found.post({"method": "ping"})).status_code != 200:
                await asyncio.sleep(0.01)
        asking[1].cancel()
        await asyncio.wait(asking)


@pytest.mark.requirement("broker-limits")
async def test_the_servers_own_limits_hold_here_too(tmp_path: Path) -> None:
    """Whatever the method."""
    upstream = BrokerUpstream()
    async with listening(upstream) as there:
        few = {"url": f"{there}/mcp", "proxy": True, "limits": {"calls_per_s": 0.01, "burst": 2}}
        async with opened_broker(tmp_path, extra={"few": few}) as found:
            assert (await found.post({"method": "ping"}, "few")).status_code == 200
            assert (await found.post(calling("echo"), "few")).status_code == 200
            for body in ({"method": "ping"}, calling("echo")):
                assert_failed(await found.post(body, "few"), 429, "rate_limited", "few")


@pytest.mark.requirement("broker-recorded")
async def test_every_request_is_on_record(tmp_path: Path) -> None:
    """Calls and other methods, with caller and outcome."""
    async with opened_broker(tmp_path, token=OWN) as found:
        for body in (calling("echo"), {"method": "ping"}, {"method": "resources/read", "params": {"uri": "memo://1"}}):
            await found.post(body)
        with anyio.fail_after(10):
            while (
                len(rows := await found.gateway.catalog.activity_page(ActivityFilter(), 10)) < 3
            ):  # stored within a moment
                await asyncio.sleep(0.05)
    told = {(row.activity.principal, row.activity.subject, row.activity.outcome) for row in rows}
    assert told >= {("token", "b:echo", "ok"), ("token", "b:ping:", "ok"), ("token", "b:resources/read:memo://1", "ok")}


@pytest.mark.requirement("broker-cors")
async def test_pages_elsewhere_are_let_in_by_name_only(broker: Broker) -> None:
    """An origin that the settings name may ask and read; another is refused; no `*` anywhere."""
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    url = "/api/mcp/b/proxy"
    reply = await broker.client.options(url, headers={"origin": PAGE, **asked})
    assert reply.status_code == 200 and reply.headers["access-control-allow-origin"] == PAGE
    reply = await broker.post({"method": "ping"}, origin=PAGE)
    assert reply.status_code == 200 and reply.headers["access-control-allow-origin"] == PAGE
    for origin in ("https://evil.example", "null", "https://app.example.evil.example", "http://app.example"):
        reply = await broker.client.options(url, headers={"origin": origin, **asked})
        assert reply.status_code == 400 and "access-control-allow-origin" not in reply.headers
        reply = await broker.post({"method": "ping"}, origin=origin)
        assert_failed(reply, 403, "origin_not_allowed", "", is_proxy=False)
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.requirement("broker-cors")
async def test_without_the_setting_no_page_may_read_anything(tmp_path: Path) -> None:
    """Closed by default, for the pages of this machine as well."""
    async with opened_broker(tmp_path) as found:
        for origin in ("http://localhost:5173", PAGE):
            headers = {"origin": origin, "access-control-request-method": "POST"}
            reply = await found.client.options("/api/mcp/b/proxy", headers=headers)
            assert reply.status_code in (403, 405)
            assert "access-control-allow-origin" not in reply.headers
            reply = await found.post({"method": "ping"}, origin=origin)
            assert "access-control-allow-origin" not in reply.headers


@pytest.mark.requirement("broker-cors")
async def test_another_host_is_misdirected(broker: Broker) -> None:
    """What keeps a page away whose name was made to point at this machine."""
    for path in ("/api/mcp/b/proxy/status", "/api/connections"):
        reply = await broker.client.get(path, headers={"host": "evil.example"})
        assert_failed(reply, 421, "host_not_allowed", "", is_proxy=False)
    assert_failed(
        await broker.post({"method": "ping"}, host="evil.example"), 421, "host_not_allowed", "", is_proxy=False
    )


@pytest.mark.requirement("broker-cors")
async def test_the_public_address_is_one_name_of_all_endpoints(tmp_path: Path) -> None:
    """The broker, REST and `/mcp` answer to it alike, and to no other."""
    async with opened_broker(tmp_path, public_url="https://gateway.example/tools") as found:
        for path, good in (("/api/connections", 200), ("/api/v1/status", 200), ("/openapi.json", 200), ("/mcp", None)):
            answers = [
                (await found.client.get(path, headers={"host": host, "accept": "text/event-stream"})).status_code
                for host in ("gateway.example", "127.0.0.1", "evil.example")
            ]
            assert answers[0] == answers[1] and answers[2] == 421, (path, answers)
            assert answers[0] == good or good is None, (path, answers)


@pytest.mark.requirement("broker-one-endpoint")
@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [
        ("GET", "/api/mcp/b/tools", 404),
        ("POST", "/api/mcp/b/tools/call", 404),
        ("GET", "/api/mcp/b/proxy", 405),
        ("PUT", "/api/mcp/b/proxy", 405),
        ("DELETE", "/api/mcp/b/proxy", 405),
        ("POST", "/api/mcp/b/proxy/status", 405),
        ("POST", "/api/connections", 405),
        ("POST", "/api/mcp/b", 404),
        ("POST", "/api/mcp/", 404),
        ("GET", "/api/mcp/b/proxy/other", 404),
        ("POST", "/api/mcp/b/proxy/", 404),
        ("GET", "/api/mcp/b/proxy/status/", 404),
        ("GET", "/api/connections/", 404),
    ],
)
async def test_what_is_not_served_is_said(broker: Broker, verb: str, path: str, status: int) -> None:
    """In the broker's own form, and never by a redirect, which may lose a body or a token."""
    reply = await broker.client.request(verb, path)
    code = "not_found" if status == 404 else "http_method_not_allowed"
    assert_failed(reply, status, code, "", is_proxy=False)
    assert ("Leave out the slash" in reply.text) == path.endswith("/")


@pytest.mark.requirement("broker-openapi")
async def test_the_description_fits_what_the_broker_answers(broker: Broker) -> None:
    """Every answer of a table of requests has a status that is described, and fits the schema described for it."""
    document = (await broker.client.get("/openapi.json")).json()
    components = document["components"]
    good, bad = {"method": "ping"}, {"method": 7}
    for verb, template, name, body in (
        *(
            ("post", "/api/mcp/{name}/proxy", name, body)
            for name in ("b", "no", "plain", "away")
            for body in (good, bad)
        ),
        ("post", "/api/mcp/{name}/proxy", "b", calling("html")),
        ("post", "/api/mcp/{name}/proxy", "b", {"method": "notifications/initialized"}),
        ("get", "/api/mcp/{name}/proxy/status", "b", None),
        ("get", "/api/mcp/{name}/proxy/status", "no", None),
        ("get", "/api/connections", "", None),
    ):
        operation = document["paths"][template][verb]
        reply = await broker.client.request(verb.upper(), template.replace("{name}", name), json=body)
        described = operation["responses"][str(reply.status_code)]
        if "content" in described:
            schema = described["content"]["application/json"]["schema"]
            jsonschema_rs.Draft202012Validator({**schema, "components": components}).validate(reply.json())
