"""One trace from a client through the gateway to the server, on every transport and in both eras."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, wait_covered
from fastmcp import Context, FastMCP
from fastmcp.server.dependencies import get_http_headers
from plain_http import plain_client
from spans import Seen, collector, of_trace, traced
from transports import (
    CHANNELS,
    STDIO_COMMAND,
    in_memory,
    listening,
    odd_servers,
    on_stdio,
    over_http,
    over_sse,
    served,
    settled,
    spawned,
)

from smart_mcp_proxy.gateway.observability.tracing import ID_RANGE, Sampler

# Marked long: an exporter and gateways of their own.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

SECRET = "lighthouse-keeper-7781"
"""Stands in an argument, where no span may have it."""
GOOD = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool"}


def mark(number: int, *, is_sampled: bool = True) -> tuple[str, str, dict[str, str]]:
    """Trace, span and `_meta` of a client's own span."""
    trace, span = f"{number:032x}", f"{number:016x}"
    return trace, span, {"traceparent": f"00-{trace}-{span}-{is_sampled:02x}"}


@asynccontextmanager
async def at(channel: tuple[str, Any], data_dir: Path, ledger: Path) -> AsyncIterator[tuple[Agent, list[Seen]]]:
    """An agent of a traced gateway; once closed, the list has all spans."""
    transport, era = channel
    found: list[Seen] = []
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            address, found = stack.enter_context(collector())
            program = ("env", f"OTEL_EXPORTER_OTLP_ENDPOINT={address}", *STDIO_COMMAND)
            process = await stack.enter_async_context(spawned(data_dir, odd_servers(ledger), program=program))
            agent = await stack.enter_async_context(on_stdio(process, era))
            await wait_covered(agent)
            yield agent, found
            return
        tracing, take = traced()
        stack.callback(lambda: found.extend(take()))
        gateway = await stack.enter_async_context(settled(data_dir, odd_servers(ledger), tracing=tracing))
        if transport == "memory":
            agent = await stack.enter_async_context(in_memory(gateway, era))
        else:
            base = await stack.enter_async_context(served(gateway))
            agent = await stack.enter_async_context(over_http(base, era) if transport == "http" else over_sse(base))
        yield agent, found


async def seen_by_server(agent: Agent, server: str, meta: dict[str, str]) -> dict[str, Any]:
    """The `_meta` that a server got with a call."""
    answer = await agent.request(
        "tools/call", name="call_tool_write", arguments={"name": f"{server}:seen", "args": {}}, _meta=meta
    )
    told: dict[str, Any] = json.loads(answer["result"]["content"][0]["text"])["meta"]
    return told


@pytest.mark.parametrize("channel", CHANNELS, ids="-".join)
async def test_a_call_is_one_trace_from_its_client_to_its_server(
    channel: tuple[str, Any], tmp_path: Path, ledger: Path
) -> None:
    """The first call goes through the SDK, the next ones by the fast path; each has the same two spans."""
    told: dict[str, str] = {}
    async with at(channel, tmp_path, ledger) as (agent, found):
        for number in range(1, 4):
            for offset, server in ((0, "old"), (100, "new")):
                trace, _, meta = mark(number + offset)
                told[trace] = (await seen_by_server(agent, server, meta))["traceparent"]
    for number in (1, 2, 3, 101, 102, 103):
        trace, span, _ = mark(number)
        asked, (sent,) = of_trace(found, trace)
        assert (asked.name, asked.parent, asked.is_error) == ("tools/call call_tool_write", span, False)
        assert (sent.name, sent.parent, sent.is_error) == ("tools/call seen", asked.span, False)
        assert told[trace] == f"00-{trace}-{sent.span}-01"
        assert asked.facts == {**GOOD, "gen_ai.tool.name": "call_tool_write"}
        server = "old" if number < 100 else "new"
        assert sent.facts == {
            **GOOD,
            "gen_ai.tool.name": "seen",
            "mcpproxy.server": server,
            "network.transport": "pipe",
        }
    assert len([span for span in found if span.kind == "CLIENT"]) == len(told)


@pytest.mark.parametrize("channel", CHANNELS, ids="-".join)
async def test_failures_are_errors_in_the_trace_and_no_argument_is_in_it(
    channel: tuple[str, Any], tmp_path: Path, ledger: Path
) -> None:
    """Also the one that is a good answer of the protocol; what is refused has no span of a request to a server."""
    calls = [
        (201, "call_tool_write", {"name": "old:fails", "args": {"text": SECRET}}),
        (202, "call_tool_read", {"name": "old:erase", "args": {"entry": 1}, "intent_reason": SECRET}),
        (203, "call_tool_write", {"name": f"old:{SECRET}"}),
        (204, "retrieve_tools", {"query": f"find {SECRET}"}),
        (205, "call_tool_write", {"name": "old:echo", "args": {"text": SECRET}}),
    ]
    async with at(channel, tmp_path, ledger) as (agent, found):
        for number, tool, arguments in calls:
            await agent.request("tools/call", name=tool, arguments=arguments, _meta=mark(number)[2])
    asked, (sent,) = of_trace(found, mark(201)[0])
    assert (asked.facts["error.type"], sent.facts["error.type"]) == ("tool_error", "tool_error")
    assert asked.is_error and sent.is_error
    asked, none = of_trace(found, mark(202)[0])
    assert (asked.facts["error.type"], asked.is_error, none) == ("intent_mismatch", True, [])
    asked, none = of_trace(found, mark(203)[0])
    assert (asked.facts["error.type"], asked.is_error, none) == ("tool_not_found", True, [])
    asked, none = of_trace(found, mark(204)[0])
    assert (asked.name, asked.is_error, none) == ("tools/call retrieve_tools", False, [])
    asked, (sent,) = of_trace(found, mark(205)[0])
    assert not asked.is_error and not sent.is_error
    assert SECRET not in repr(found)


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_the_context_of_an_http_header_is_taken_where_meta_has_none(
    era: Any, tmp_path: Path, ledger: Path
) -> None:
    """On the way through the SDK and on the fast path; what `_meta` says counts more."""
    tracing, take = traced()
    trace, span, meta = mark(301)
    async with (
        settled(tmp_path, odd_servers(ledger), tracing=tracing) as gateway,
        served(gateway) as base,
        over_http(base, era, meta) as agent,
    ):
        for _ in range(3):
            told = await seen_by_server(agent, "old", {})
            (asked, (sent,)) = of_trace(take(), trace)
            assert asked.parent == span
            assert told["traceparent"] == f"00-{trace}-{sent.span}-01"
        other, _, own = mark(302)
        await seen_by_server(agent, "old", own)
        assert {span.trace for span in take()} == {other}


async def test_what_is_not_sampled_has_no_span_and_changes_nothing(tmp_path: Path, ledger: Path) -> None:
    """A decision is made once for a request and its parts; a client's context is passed on as it is."""
    tracing, take = traced(Sampler(0))
    async with (
        settled(tmp_path, odd_servers(ledger), tracing=tracing) as gateway,
        in_memory(gateway, "modern") as agent,
    ):
        _, _, meta = mark(401, is_sampled=False)
        assert (await seen_by_server(agent, "new", meta))["traceparent"] == meta["traceparent"]
        assert "traceparent" not in await seen_by_server(agent, "new", {})
        assert take() == []


async def test_a_share_of_all_traces_is_recorded_whole_or_not_at_all(tmp_path: Path, ledger: Path) -> None:
    """Nothing decides again for a part of a request, be it sampled or not."""
    tracing, take = traced(Sampler(ID_RANGE // 2))
    async with (
        settled(tmp_path, odd_servers(ledger), tracing=tracing) as gateway,
        in_memory(gateway, "modern") as agent,
    ):
        for _ in range(60):
            await seen_by_server(agent, "new", {})
    spans = take()
    traces = {span.trace for span in spans}
    assert 0 < len(traces) < 60 and len(spans) == 2 * len(traces)
    for trace in traces:
        asked, (sent,) = of_trace(spans, trace)
        assert asked.name == "tools/call call_tool_write"
        assert sent.parent == asked.span and asked.parent == ""


def asked_about() -> FastMCP:
    """A server that says what context it was called with, in `_meta` and in headers."""
    server = FastMCP("elsewhere")

    @server.tool
    def context(ctx: Context) -> str:
        assert ctx.request_context is not None
        meta = ctx.request_context.meta or {}
        headers = get_http_headers(include_all=True)
        return json.dumps({"meta": meta.get("traceparent"), "header": headers.get("traceparent")})

    @server.prompt
    def greeting() -> str:
        return "Good day."

    @server.resource("data://towers/lighthouse-keeper-7781")
    def towers() -> str:
        return "three"

    return server


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_over_http_gets_the_context_in_its_header_too(transport: Any, tmp_path: Path) -> None:
    """Servers that are traced by their web framework look there; the older transport has it in `_meta` alone."""
    tracing, take = traced()
    async with listening(asked_about().http_app(transport=transport)) as base:
        url = f"{base}/{'mcp' if transport == 'http' else 'sse'}"
        async with (
            settled(tmp_path, {"far": {"url": url}}, tracing=tracing) as gateway,
            in_memory(gateway, "modern") as agent,
        ):
            trace, _, meta = mark(501)
            arguments = {"name": "far:context"}
            answer = await agent.request("tools/call", name="call_tool_write", arguments=arguments, _meta=meta)
            told = json.loads(answer["result"]["content"][0]["text"])
            _, (sent,) = of_trace(take(), trace)
            expected = f"00-{trace}-{sent.span}-01"
            assert told == {"meta": expected, "header": expected if transport == "http" else None}
            assert sent.facts["server.address"] == "127.0.0.1"
            assert sent.facts["network.protocol.name"] == "http"
            assert str(sent.facts["server.port"]) in base

            await agent.request("prompts/get", name="far__greeting", _meta=mark(502)[2])
            asked, (sent,) = of_trace(take(), mark(502)[0])
            assert (asked.name, sent.name, sent.parent) == ("prompts/get greeting", "prompts/get greeting", asked.span)

            uri = (await agent.request("resources/list"))["result"]["resources"][0]["uri"]
            await agent.request("resources/read", uri=uri, _meta=mark(503)[2])
            spans = take()
            asked, (sent,) = of_trace(spans, mark(503)[0])
            assert (asked.name, sent.name) == ("resources/read", "resources/read")
            assert SECRET not in repr(spans), "a URI may hold anything"


async def test_a_call_by_the_broker_or_by_rest_is_a_trace_too(tmp_path: Path, ledger: Path) -> None:
    """Programs that speak plain HTTP have nothing but the header."""
    tracing, take = traced()
    async with listening(asked_about().http_app()) as elsewhere:
        servers = {"far": {"url": f"{elsewhere}/mcp", "proxy": True}}
        async with (
            settled(tmp_path, servers, tracing=tracing) as gateway,
            served(gateway) as base,
            plain_client(timeout=30) as client,
        ):
            token = (gateway.settings.data_dir / "operator.token").read_text("ascii").strip()
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "context", "arguments": {}}}
            for number, path, json_body in (
                (601, "/api/mcp/far/proxy", body),
                (602, "/api/v1/call", {"name": "far:context", "arguments": {}}),
            ):
                trace, span, headers = mark(number)
                headers = {**headers, "authorization": f"Bearer {token}"} if number == 602 else headers
                reply = await client.post(base + path, json=json_body, headers=headers)
                assert reply.status_code == 200, reply.text
                asked, (sent,) = of_trace(take(), trace)
                assert (asked.name, asked.parent, sent.parent) == ("tools/call context", span, asked.span)
                assert f"00-{trace}-{sent.span}-01" in reply.text


IMPORTED = """
import sys
from smart_mcp_proxy.cli.commands.operate import serving, serving_http
from smart_mcp_proxy.gateway import app
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "prometheus"))])
"""


def test_nothing_is_imported_where_nothing_is_asked_for() -> None:
    """Neither the SDK nor an exporter; the API comes with FastMCP in any case."""
    found = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
