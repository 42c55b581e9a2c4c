"""The `proxy` tool's view of the gateway: one caller's, through the paths that all calls go."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gateway_fakes import FakeFleet, FakeUpstream, Parts, config, definition, opened_parts

from smart_mcp_proxy.errors import RequestError, ToolNotFoundError, UpstreamError
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.tools.proxy import ProxyTool
from smart_mcp_proxy.raw_result import RawResult

pytestmark = pytest.mark.anyio

SERVERS = {"alpha": config("alpha"), "beta": config("beta", disabled=True)}


class FakeContents:
    """One resource and one prompt of `alpha`, known under names of the gateway's."""

    def of(self, kind: str) -> dict[str, Any]:
        raw = json.dumps({"name": "plan", "uri": "own://plan"}).encode()
        item = SimpleNamespace(server="alpha", name="greet", record=SimpleNamespace(raw=raw))
        return (
            {"gate://alpha/plan": item} if kind == "resources" else {"alpha__greet": item} if kind == "prompts" else {}
        )

    def resource(self, uri: str) -> Any:
        return SimpleNamespace(server="alpha", name="own://plan", record=None)

    def prompt(self, name: str) -> Any:
        assert name in ("alpha__greet", "alpha:greet")
        return SimpleNamespace(server="alpha", name="greet", record=None)

    def select_uri_builder(self, target: Any) -> Callable[[str, str], str]:
        return lambda server, uri: uri.replace("own://", f"gate://{server}/")


class FakeAsks:
    """Answers every request alike, and remembers it."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = json.dumps(answer).encode()
        self.asked: list[Any] = []

    async def find(self, contents: Any, uri: str, principal: str) -> Any:
        return contents.resource(uri)

    async def ask(self, ask: Any) -> RawResult:
        self.asked.append(ask)
        return RawResult(self.answer)


class FakeToolList:
    """Remembers which tools were called."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def note_called(self, record: Any) -> None:
        self.called.append(str(record.key))


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with opened_parts(tmp_path, SERVERS) as opened:
        await opened.sync(
            "alpha",
            [definition("look", hints={"readOnlyHint": True}), definition("erase", hints={"destructiveHint": True})],
        )
        await opened.sync("beta", [definition("hidden")])
        yield opened


def made(parts: Parts, upstream: FakeUpstream | None = None, asks: FakeAsks | None = None, **options: Any) -> ProxyTool:
    fleet: Any = FakeFleet(upstream or FakeUpstream())
    recorder: Any = parts.notebook
    calls = Calls(RequestPath(fleet, recorder, CallLimits(), parts.clock), parts.visible, parts.outputs)
    contents: Any = FakeContents()
    asked: Any = asks or FakeAsks({"contents": []})
    return ProxyTool("everything", parts.visible, calls, contents, asked, recorder, parts.clock, **options)


async def ask(proxy: ProxyTool, tools: FakeToolList | None = None, **arguments: Any) -> dict[str, Any]:
    found: Any = tools
    result: dict[str, Any] = json.loads((await proxy.call(arguments, Caller("ann", {}, None, "s1", found))).text)
    return result


async def test_each_tool_is_called_as_it_asks_to_be(parts: Parts) -> None:
    """The tool itself is marked destructive, so no client lets it pass unseen; policy still sees what each tool is."""
    upstream, tools = FakeUpstream(), FakeToolList()
    proxy = made(parts, upstream)
    for name in ("alpha:look", "alpha__erase"):
        await ask(proxy, tools, action="call", type="tool", path=name, args={"a": 1})
    assert [params["name"] for _, params in upstream.sent] == ["look", "erase"]
    assert tools.called == ["alpha:look", "alpha:erase"]
    lines = [(line.kind, line.subject, line.principal, line.detail["variant"]) for line in parts.notebook.lines]
    assert lines == [("call", "alpha:look", "ann", "read"), ("call", "alpha:erase", "ann", "destructive")]


async def test_looking_is_on_record_and_a_call_is_so_once(parts: Parts) -> None:
    """With who looked, at what, and how it ended."""
    proxy = made(parts)
    await ask(proxy, action="list", type="tool")
    with pytest.raises(ToolNotFoundError):
        await ask(proxy, action="info", type="tool", path="alpha:lok")
    await ask(proxy, action="batch", operations=[{"action": "list", "type": "prompt"}])
    assert [(line.kind, line.subject, line.outcome, dict(line.detail)) for line in parts.notebook.lines] == [
        ("search", "", "ok", {"tool": "everything", "action": "list", "type": "tool"}),
        ("search", "alpha:lok", "tool_not_found", {"tool": "everything", "action": "info", "type": "tool"}),
        ("search", "", "ok", {"tool": "everything", "action": "batch", "operations": 1}),
    ]


async def test_what_is_switched_off_is_not_there(parts: Parts) -> None:
    """Not in the list, and to call it is refused as it is everywhere."""
    proxy = made(parts)
    [block] = (await ask(proxy, action="list", type="tool"))["content"]
    assert [tool["name"] for tool in json.loads(block["resource"]["text"])] == ["alpha__erase", "alpha__look"]
    [block] = (await ask(proxy, action="list", type="tool", filter={"server": "beta"}))["content"]
    assert block["resource"]["text"] == "[]"


@pytest.mark.parametrize("path", ["everything", "proxy", "call_tool_write"])
async def test_it_reaches_neither_itself_nor_the_gateways_other_tools(parts: Parts, path: str) -> None:
    """Under its own name, whatever that is."""
    for arguments in ({"action": "call", "args": {}}, {"action": "info"}):
        with pytest.raises(RequestError, match="gateway's own"):
            await ask(made(parts), type="tool", path=path, **arguments)


async def test_a_resource_comes_under_the_gateways_uris(parts: Parts) -> None:
    """As tools' output is: it becomes the output of one."""
    answer = {"contents": [{"uri": "own://plan", "text": "alert"}, {"uri": None, "text": "b"}]}
    asks = FakeAsks(answer)
    result = await ask(made(parts, asks=asks), action="call", type="resource", path="gate://alpha/plan")
    assert [block["resource"]["uri"] for block in result["content"]] == ["gate://alpha/plan", None]
    assert result["content"][0]["resource"]["text"] == "alert"
    [asked] = asks.asked
    assert (asked.method, asked.params, asked.caller.principal) == ("resources/read", {"uri": "own://plan"}, "ann")


async def test_a_prompt_is_asked_for_by_its_own_name(parts: Parts) -> None:
    """With arguments only where there are some."""
    asks = FakeAsks({"messages": []})
    for path, args in (("alpha__greet", {"who": "Ada"}), ("alpha:greet", {})):
        await ask(made(parts, asks=asks), action="call", type="prompt", path=path, args=args)
    assert [each.params for each in asks.asked] == [{"name": "greet", "arguments": {"who": "Ada"}}, {"name": "greet"}]


async def test_an_answer_that_is_no_resource_is_the_servers_fault(parts: Parts) -> None:
    """It is told so, and as executed."""
    asks = FakeAsks({"contents": "none"})
    with pytest.raises(UpstreamError) as caught:
        await ask(made(parts, asks=asks), action="call", type="resource", path="gate://alpha/plan")
    assert caught.value.delivery == "executed"
