"""One server shown as it is: its list in both eras, what is sent, and when a change is worth telling."""

import asyncio
from typing import Any

import anyio
import pytest
from gateway_fakes import FakeFleet, FakeUpstream, Parts, config, definition
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from smart_mcp_proxy.errors import ConfigError, UpstreamError
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.sessions.passthrough import Passthrough
from smart_mcp_proxy.gateway.shared.sessions import Audience
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.servers import ToolFilter
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream.protocol.session import rpc_error

pytestmark = pytest.mark.anyio

CALLER = Caller("ann", {"example.org/a": 1}, None)
NEEDS_N = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
IN_HEADER = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


class Ticker:
    """Reports a change of the catalog when it is told to."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.waiting = asyncio.Event()

    def tick(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        self.waiting.set()
        await self._event.wait()


class PassthroughSetup:
    """The fake server alpha, passed through."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.alpha = FakeUpstream("alpha")
        self.ticker = Ticker()
        self.is_listed = True
        fleet: Any = FakeFleet(self.alpha)
        notebook: Any = parts.notebook
        ticker: Any = self.ticker
        calls = Calls(RequestPath(fleet, notebook, CallLimits(), parts.clock), parts.visible, parts.outputs)
        self.tools = Passthrough("alpha", parts.visible, calls, ticker, lambda: self.is_listed)

    async def change(self, *tools: dict[str, Any]) -> None:
        """The server's tools are these now, and the catalog says so."""
        await self.parts.sync("alpha", tools)
        self.ticker.tick()


@pytest.fixture
def setup(parts: Parts) -> PassthroughSetup:
    return PassthroughSetup(parts)


async def test_definitions_are_the_servers_own_objects(setup: PassthroughSetup) -> None:
    """Unknown members included; of other servers nothing, and nothing of the gateway's."""
    whole = definition("a", odd=[1], _meta={"k": None}, outputSchema={"type": "object"})
    await setup.parts.sync("beta", [definition("foreign")])
    await setup.change(whole, definition("b"))
    assert setup.tools.definitions("modern") == setup.tools.definitions("handshake") == [whole, definition("b")]
    assert [setup.tools.has(name) for name in ("a", "b", "foreign", "alpha:a", "retrieve_tools")] == [1, 1, 0, 0, 0]
    assert setup.tools.input_schema("a") == {"type": "object"}
    assert setup.tools.input_schema("foreign") is None


@pytest.mark.parametrize("schema", [{"type": "array"}, {"anyOf": [{"type": "object"}]}, True, None, {}])
async def test_an_output_schema_that_is_no_object_stays_out_of_the_older_list(
    setup: PassthroughSetup, schema: Any
) -> None:
    """Clients of that era refuse the whole list for it; the modern list keeps it."""
    await setup.change(definition("a", outputSchema=schema))
    assert setup.tools.definitions("handshake") == [definition("a")]
    assert setup.tools.definitions("modern") == [definition("a", outputSchema=schema)]


async def test_the_configuration_still_says_what_is_shown(setup: PassthroughSetup) -> None:
    """A tool that it leaves out is neither listed nor known."""
    await setup.change(definition("a"), definition("b"))
    assert setup.tools.has("b")
    excluding = config("alpha", tools=ToolFilter(exclude=("b",)))
    setup.parts.visible.reconfigure({"alpha": excluding})
    assert [tool["name"] for tool in setup.tools.definitions("modern")] == ["a"]
    assert not setup.tools.has("b")


async def test_arguments_go_to_the_server_as_they_are(setup: PassthroughSetup) -> None:
    """It judges them itself; the call is written down like any other."""
    await setup.change(definition("a", inputSchema=NEEDS_N))
    assert (await setup.tools.call("a", {"n": "three"}, CALLER)).text == b'{"content":[]}'
    params = {"name": "a", "arguments": {"n": "three"}, "_meta": {"example.org/a": 1}}
    assert setup.alpha.sent == [("tools/call", params)]
    (line,) = setup.parts.notebook.lines
    assert (line.subject, line.outcome, line.principal) == ("alpha:a", "ok", "ann")


@pytest.mark.parametrize("data", [None, {"lamp": [3, None]}, "text"])
async def test_a_json_rpc_error_of_the_server_stays_one(setup: PassthroughSetup, data: Any) -> None:
    """With code, message and data."""
    await setup.change(definition("a"))
    setup.alpha.answer = rpc_error("alpha", "tools/call", -32021, "no", data)
    with pytest.raises(MCPError) as caught:
        await setup.tools.call("a", {}, CALLER)
    assert (caught.value.error.code, caught.value.error.message, caught.value.error.data) == (-32021, "no", data)


async def test_a_server_that_cannot_be_reached_is_no_json_rpc_error(setup: PassthroughSetup) -> None:
    """That is the gateway's own answer, and tells whether the call may have run."""
    await setup.change(definition("a"))
    setup.alpha.answer = UpstreamError("Server 'alpha' is gone.", delivery="unknown")
    with pytest.raises(UpstreamError, match="gone"):
        await setup.tools.call("a", {}, CALLER)


async def test_tools_with_arguments_in_headers_are_known(setup: PassthroughSetup) -> None:
    """The fast path leaves their calls to the SDK."""
    await setup.change(definition("a", inputSchema=IN_HEADER), definition("b", inputSchema=NEEDS_N))
    assert [setup.tools.demands_headers(name) for name in ("a", "b", "c")] == [True, False, False]


async def test_a_first_list_is_waited_for(setup: PassthroughSetup) -> None:
    """Until the server was listed, or has failed; what is stored is shown without waiting."""
    setup.is_listed = False
    with anyio.fail_after(20):
        waiting = asyncio.ensure_future(setup.tools.wait_listed())
        await setup.ticker.waiting.wait()
        assert not waiting.done()
        await setup.change(definition("a"))
        await waiting
        await setup.tools.wait_listed()


async def test_a_server_without_tools_is_not_waited_for(setup: PassthroughSetup) -> None:
    """An empty list is one too."""
    with anyio.fail_after(20):
        await setup.tools.wait_listed()
    assert setup.tools.definitions("modern") == []


async def test_each_change_of_a_shown_list_is_told_once(setup: PassthroughSetup) -> None:
    """The first fill, before anybody saw a list, and news that change nothing are not."""
    told: list[str] = []

    async def tell() -> None:
        told.append("changed")

    audience = Audience(setup.tools, tell, on_told=lambda: told.append("noted"))
    await setup.change(definition("a"))
    await audience.refresh()
    assert told == []
    audience.note_shown()
    for count, tools in enumerate(([definition("a"), definition("b")], [definition("a", "Other words.")]), 1):
        await setup.change(*tools)
        await audience.refresh()
        await setup.parts.sync("beta", [definition(f"foreign_{count}")])
        await audience.refresh()
        assert told == ["noted", "changed"] * count


async def test_only_a_configured_server_can_be_passed_through(tmp_path: Any) -> None:
    """A typo stops the start; the message knows the names."""
    servers = {"alpha": config("alpha")}
    with pytest.raises(ConfigError, match=r"'alhpa' is not configured.*Known: alpha"):
        async with open_gateway(Settings(data_dir=tmp_path), servers, environ={}, passthrough="alhpa"):
            pass


async def test_the_other_servers_keep_their_stored_tools(parts: Parts, tmp_path: Any) -> None:
    """They are not started, and a gateway that serves all of them finds their lists again."""
    await parts.sync("alpha", [definition("a")])
    await parts.sync("beta", [definition("b")])
    servers = {name: replace(config(name), disabled=True) for name in ("alpha", "beta")}
    async with open_gateway(Settings(data_dir=tmp_path), servers, environ={}, passthrough="alpha") as gateway:
        assert [upstream.status.name for upstream in gateway.upstreams.fleet] == ["alpha"]
        await gateway.apply(servers)
        assert {key.server for key in gateway.catalog.snapshot.by_key} == {"alpha", "beta"}
