"""Small stand-ins for what the gateway's parts meet: a clock, servers that answer at once, a notebook."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from trusting import TrustingCatalog

from smart_mcp_proxy.catalog import Catalog, approval_digest, change_hash
from smart_mcp_proxy.errors import ProxyError, UpstreamError
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.indexing.documents import build_tool_document
from smart_mcp_proxy.gateway.indexing.index_sync import FOLLOW_S, IndexSync, Sight
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.indexing.list_sync import TOOLS, AskPolicy, ListSync, Pace
from smart_mcp_proxy.gateway.results.outputs import Outputs
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.gateway.sessions.tool_surface import Routing, ToolSurface
from smart_mcp_proxy.gateway.shared.agent_tools import AgentTool, OwnTools, ToolList
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.gateway.shared.client_behavior import ClientBehavior
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ContentKind, OnMessage, OnProgress, ServerState, ServerStatus, ToolKey, ToolRecord
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.search import Bm25fEngine, SearchIndex
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.upstream import ToolListing

NAME_LIMIT = 60


def definition(
    name: str, description: str = "", hints: Mapping[str, bool] | None = None, **fields: Any
) -> dict[str, Any]:
    """A tool as a server lists it."""
    made = {"name": name, "description": description or f"Does {name}.", "inputSchema": {"type": "object"}} | fields
    return made | ({"annotations": dict(hints)} if hints is not None else {})


def record_of(made: Mapping[str, Any], server: str = "alpha", id: int = 1) -> ToolRecord:
    """The record that the catalog would hold for a definition."""
    full_hash = change_hash(server, made)
    return ToolRecord(
        id=id,
        key=ToolKey(server, made["name"]),
        listed_name=f"{server}__{made['name']}",
        raw=msgspec.json.encode(made),
        change_hash=full_hash,
        digest=approval_digest(full_hash),
        annotations=made.get("annotations", {}),
    )


def config(name: str, **fields: Any) -> ServerConfig:
    """A configured server that nobody starts."""
    return ServerConfig(name=name, transport="stdio", command="true", **fields)


class HandClock:
    """Monotonic seconds, turned by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Notebook:
    """Keeps the activity it is told."""

    def __init__(self) -> None:
        self.lines: list[Activity] = []

    def record(self, activity: Activity) -> None:
        self.lines.append(activity)


@dataclass
class FakeUpstream:
    """A connected server: lists what stands in `tools`, answers calls with `answer`.

    Attributes:
        name: Configured name.
        tools: Its present list.
        answer: The result of every call as JSON text, or the error that calls end with.
        list_error: What a listing ends with, if anything.
        gate: A listing or call waits until it is open.
        problems: What its listing leaves out.
        listings: How many listings were begun.
        sent: Method and params of every request, in order.
        busy: Set when a listing or call has begun.
        contents: What it lists besides tools, by kind, or the error that such a listing ends with.
        awaited: Set when somebody waits for its connection.
        moved: Set at its next change of state.
    """

    name: str = "alpha"
    tools: list[dict[str, Any]] = field(default_factory=list)
    answer: bytes | ProxyError = b'{"content":[]}'
    list_error: Exception | None = None
    gate: asyncio.Event | None = None
    problems: tuple[str, ...] = ()
    listings: int = 0
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    busy: asyncio.Event = field(default_factory=asyncio.Event)
    contents: dict[str, Sequence[dict[str, Any]] | ProxyError] = field(default_factory=dict)
    awaited: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    on_progress: OnProgress | None = None
    timeout_s: float | None = None
    status: ServerStatus = field(default_factory=lambda: ServerStatus("", "stdio", ServerState.READY))

    is_personal = False

    def __post_init__(self) -> None:
        self.status = msgspec.structs.replace(self.status, name=self.name)
        self.config = config(self.name)

    @property
    def is_ready(self) -> bool:
        return self.status.state is ServerState.READY

    def move(self, state: ServerState, **changes: Any) -> ServerStatus:
        """Puts the server into a state and returns its new status."""
        self.status = msgspec.structs.replace(self.status, state=state, **changes)
        self.moved.set()
        self.moved = asyncio.Event()
        return self.status

    async def list_tools(self) -> ToolListing:
        self.listings += 1
        listed = tuple(self.tools)
        await self._wait()
        if self.list_error is not None:
            raise self.list_error
        return ToolListing(listed, self.problems)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_message: OnMessage | None = None,
    ) -> RawResult:
        self.sent.append((method, dict(params)))
        self.timeout_s = timeout_s
        self.on_progress = on_progress
        await self._wait()
        if isinstance(self.answer, ProxyError):
            raise self.answer
        return RawResult(self.answer)

    async def list_contents(self, kind: ContentKind) -> ToolListing:
        answer = self.contents.get(kind, ())
        if isinstance(answer, ProxyError):
            raise answer
        return ToolListing(tuple(answer))

    async def ready(self, timeout_s: float) -> bool:
        while not self.is_ready:
            self.awaited.set()
            await self.moved.wait()
        return True

    def not_ready(self) -> UpstreamError:
        return UpstreamError(f"Server '{self.name}' is not ready.")

    async def _wait(self) -> None:
        self.busy.set()
        if self.gate is not None:
            await self.gate.wait()


class FakeFleet:
    """Servers by name."""

    def __init__(self, *upstreams: FakeUpstream) -> None:
        self.upstreams = {upstream.name: upstream for upstream in upstreams}

    def find(self, name: str, person: str) -> FakeUpstream | None:
        return self.upstreams.get(name)

    def __iter__(self) -> Iterator[FakeUpstream]:
        return iter(self.upstreams.values())


@dataclass
class Parts:
    """A catalog in a temporary directory, indexed, with the parts that stand on it."""

    catalog: Catalog
    index: SearchIndex
    visible: CatalogView
    clock: HandClock
    outputs: Outputs
    notebook: Notebook

    async def sync(self, server: str, definitions: Iterable[dict[str, Any]]) -> None:
        """Makes a server's tools these, in catalog and index."""
        diff = await self.catalog.sync(server, list(definitions))
        seen = [record for record in (*diff.added, *diff.changed) if self.visible.sees(record)]
        self.index.update(map(build_tool_document, seen), diff.removed)


NO_CALLS: Any = SimpleNamespace(path=SimpleNamespace(limits=CallLimits()))
"""For lists of tools, none of which is called."""


def surface_of(parts: Parts, *tools: AgentTool[Any]) -> ToolSurface:
    """The whole catalog with some tools of the gateway's own, without calls, searches that answer, and toolsets."""
    none: Any = None
    retrieval: Any = SimpleNamespace(catalog_tokens=lambda: 0)
    return ToolSurface(parts.visible, retrieval, NO_CALLS, OwnTools(tools), none, "", 0)


def agent_with(tools: ToolList, on_first_answer: Callable[[], None] = lambda: None) -> Agent:
    """The same tools for everybody."""
    none: Any = None
    routing = Routing(Settings(), none, none, ClientBehavior(), time.monotonic, passthrough=lambda reach: tools)
    return Agent(routing, on_first_answer, none)


@asynccontextmanager
async def opened_parts(data_dir: Path, servers: Mapping[str, ServerConfig]) -> Any:
    """Parts over an empty catalog."""
    clock = HandClock()
    index = SearchIndex(Bm25fEngine())
    async with TrustingCatalog.open(data_dir, name_limit=NAME_LIMIT) as catalog:
        visible = CatalogView(catalog, servers, index.nearest_names)
        yield Parts(catalog, index, visible, clock, Outputs(clock), Notebook())


class ToolWork:
    """What follows servers' tools, put together as the gateway does it."""

    def __init__(
        self,
        fleet: Any,
        catalog: Catalog,
        index: SearchIndex,
        sees: Callable[[ToolRecord], bool],
        clock: Callable[[], float] = time.monotonic,
        *,
        review: AskPolicy | None = None,
        pace: Pace | None = None,
        follow_s: float = FOLLOW_S,
        uses_examples: bool = False,
    ) -> None:
        self.catalog = catalog
        self.changes = Changes()
        self.lists = ListState(fleet, catalog, self.changes, clock=clock)
        self.index_sync = IndexSync(
            catalog, index, Sight(sees), self.changes, follow_s=follow_s, uses_examples=uses_examples
        )
        bring = self.index_sync.catch_up
        self.sync = ListSync(self.lists, fleet, catalog, TOOLS, bring, review=review, pace=pace or Pace())

    async def forget(self, keep: Collection[str]) -> None:
        """The configuration has these servers alone."""
        self.sync.forget(keep)
        await self.catalog.forget_servers(keep)
        await self.index_sync.catch_up()

    async def close(self) -> None:
        await self.sync.close()
        await self.index_sync.close()
