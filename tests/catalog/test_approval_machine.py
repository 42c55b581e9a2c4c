"""The guarantee under anything that can happen: a machine that lists, approves, blocks, restarts and forgets at random.

Two catalogs on one store take turns, each with what it last saw of the other, and now and then a file is lost.
Whatever happens, neither ever holds a definition that was not agreed to since, and no call of one is sent; and once it
has looked, it holds all that was, and sends those calls.
"""

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Set
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from store_places import NAME_LIMIT, StorePlace

from smart_mcp_proxy.catalog import DATABASE_NAME, Catalog, approval_digest, change_hash
from smart_mcp_proxy.catalog.recovery.rollback_guard import CHECKPOINT_NAME
from smart_mcp_proxy.errors import RefusedError, ToolNotFoundError
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.results.outputs import Outputs
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest, ServerState, ServerStatus, Submission, ToolKey, WithheldState
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import Activity

T = TypeVar("T")

FIELDS: tuple[dict[str, Any], ...] = (
    {},
    {"description": "Reads."},
    {"description": "Reads. Then sends it."},
    {"inputSchema": {"type": "object", "properties": {"x": {"description": "A file."}}}},
    {"outputSchema": {"type": "object"}},
    {"annotations": {"destructiveHint": True}},
    {"annotations": {"readOnlyHint": True}},
    {"_meta": {"v": 1}, "title": "T"},
    {"title": "T"},
    {"icons": [{"src": "https://example.com/icon.png"}]},
    {"x-unknown": ["Anything."]},
    {
        "title": "T",
        "description": "Reads.",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "icons": [{"src": "https://example.com/icon.png"}],
        "_meta": {"v": 1},
        "x-unknown": ["Anything."],
    },
)
SERVERS, NAMES = ("s", "t"), ("a", "b", "c")
MEMORY = Path("/dev/shm")
"""What is shown here does not hang on a disk, and thousands of commits need not wait for one."""
STEPS_AT_A_TIME = 200
LOSSES = ("removed", "emptied", "older copy", "checkpoint spoiled")
processes = st.integers(0, 1)
keys = st.builds(ToolKey, st.sampled_from(SERVERS), st.sampled_from(NAMES))
lists = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(range(len(FIELDS))), max_size=len(NAMES))


def likes(submission: Submission) -> bool:
    """A policy that approves some definitions."""
    return int(submission.change_hash[0], 16) % 3 == 0


class Connected:
    """A server that is ready and notes what it is sent."""

    own = None
    status = ServerStatus("s", "stdio", ServerState.READY)
    is_ready = True
    is_personal = False

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def request(self, method: str, params: Mapping[str, Any], **_: Any) -> RawResult:
        self.sent.append(params["name"])
        return RawResult(b'{"content":[]}')


class Unread:
    """An activity record that nobody reads, and the index that no call looks at."""

    def record(self, activity: Activity) -> None:
        """Forgets it."""

    def nearest(self, name: str, n: int, *, allowed: Set[int] | None) -> list[int]:
        return []


async def called(catalog: Catalog, request: CallRequest) -> bool:
    """Whether the gateway's one path of a call sends this one."""
    upstream, unread = Connected(), Unread()
    fleet: Any = SimpleNamespace(upstreams=dict.fromkeys(SERVERS, upstream))
    index: Any = unread
    visible = CatalogView(catalog, {name: ServerConfig(name, "stdio", command="c") for name in SERVERS}, unread.nearest)
    nobody: Any = SimpleNamespace(upstreams={})  # no list of a connection is awaited
    lists = ListState(nobody, catalog, Changes())
    calls = Calls(RequestPath(fleet, index, CallLimits()), visible, Outputs(time.monotonic), lists=lists)
    try:
        await calls.call(request)
    except (ToolNotFoundError, RefusedError):
        assert not upstream.sent
        return False
    return True


class Machine(RuleBasedStateMachine):
    """The catalogs, and beside them what the user agreed to, kept by hand.

    Args:
        url: Of an empty catalog's database; None for a file.
    """

    def __init__(self, url: str | None = None) -> None:
        super().__init__()
        self.url = url
        self.directory = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.runner = asyncio.Runner()
        self.stacks: list[AsyncExitStack] = []
        self.catalogs: list[Catalog] = []
        self.listed: dict[ToolKey, str] = {}
        self.approved: dict[ToolKey, str] = {}
        self.former: defaultdict[ToolKey, set[str]] = defaultdict(set)
        self.agreed: defaultdict[ToolKey, set[str]] = defaultdict(set)
        self.blocked: set[ToolKey] = set()
        self.heard: set[str] = set()
        self.own: list[dict[str, dict[ToolKey, str]]] = [{}, {}]
        self.is_closed = False
        for _ in (0, 1):
            self.stacks.append(AsyncExitStack())
            self.catalogs.append(self.run(self.open(self.stacks[-1])))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def open(self, stack: AsyncExitStack, *, reset: bool = False) -> Catalog:
        directory = Path(self.directory.name)
        opened = Catalog.open(directory, url=self.url, name_limit=NAME_LIMIT, reset=reset)
        return await stack.enter_async_context(opened)

    def teardown(self) -> None:
        for catalog in self.catalogs:
            self.run(catalog.refresh())
            self.holds_exactly_what_is_agreed(catalog)
        for stack in self.stacks:
            self.run(stack.aclose())
        self.runner.close()
        self.directory.cleanup()

    # --- what happens

    @rule(process=processes, server=st.sampled_from(SERVERS), tools=lists, has_policy=st.booleans())
    def a_server_lists(self, process: int, server: str, tools: dict[str, int], has_policy: bool) -> None:
        made = [{"name": name, **FIELDS[variant]} for name, variant in tools.items()]
        hashes = {ToolKey(server, each["name"]): change_hash(server, each) for each in made}
        for key, hash_ in hashes.items():
            is_first = server not in self.heard and key not in self.approved
            is_trusted = likes(Submission(key, hash_, {}, None)) if has_policy else is_first
            is_trusted = is_trusted or hash_ in self.former[key]
            if key not in self.blocked and is_trusted and not self.is_closed:
                self.agree(key, hash_)
        self.heard.add(server)
        self.listed = {key: hash_ for key, hash_ in self.listed.items() if key.server != server} | hashes
        self.own[process][server] = hashes
        self.run(self.catalogs[process].sync(server, made, likes if has_policy else None))

    @rule(process=processes, key=keys)
    def the_user_approves_what_one_process_shows(self, process: int, key: ToolKey) -> None:
        withheld = self.catalogs[process].snapshot.withheld.get(key)
        if withheld is not None:
            self.approve(process, key, withheld.record.change_hash)

    @rule(process=processes, key=keys, variant=st.sampled_from(range(len(FIELDS))))
    def the_user_approves_what_may_have_moved(self, process: int, key: ToolKey, variant: int) -> None:
        self.approve(process, key, change_hash(key.server, {"name": key.tool, **FIELDS[variant]}))

    @rule(process=processes, key=keys)
    def the_user_blocks(self, process: int, key: ToolKey) -> None:
        self.blocked.add(key)
        self.former[key].clear()
        self.run(self.catalogs[process].block(key, "user"))

    @rule(process=processes, key=keys)
    def the_user_unblocks(self, process: int, key: ToolKey) -> None:
        was_blocked = key in self.blocked
        self.blocked.discard(key)
        assert self.run(self.catalogs[process].unblock(key, "user")) == was_blocked

    @rule(process=processes, kind=st.integers(0, 7))
    def a_process_restarts(self, process: int, kind: int) -> None:
        if kind > 1:
            return  # opening takes longer than all else together
        reset = kind == 1
        self.run(self.stacks[process].aclose())
        self.stacks[process] = AsyncExitStack()
        self.own[process].clear()
        if reset:
            self.listed.clear()
        self.catalogs[process] = self.run(self.open(self.stacks[process], reset=reset))

    @rule(kind=st.integers(0, 31), key=keys)
    def the_file_is_lost(self, kind: int, key: ToolKey) -> None:
        if kind >= len(LOSSES) or self.url is not None:
            return  # as above, and what follows is soon the same
        for stack in self.stacks:
            self.run(stack.aclose())
        self.lose(LOSSES[kind], key)
        self.stacks = [AsyncExitStack(), AsyncExitStack()]
        self.catalogs = [self.run(self.open(stack)) for stack in self.stacks]
        for kept in (self.listed, self.approved, self.former, self.agreed, self.blocked, self.heard, *self.own):
            kept.clear()
        self.is_closed = True

    def lose(self, how: str, key: ToolKey) -> None:
        """Loses what is stored, at least one block."""
        directory = Path(self.directory.name)
        older = (directory / DATABASE_NAME).read_bytes()
        stack = AsyncExitStack()
        self.run(self.run(self.open(stack)).block(key, "user"))
        self.run(stack.aclose())
        if how == "checkpoint spoiled":
            (directory / CHECKPOINT_NAME).write_bytes(b"")
            return
        for path in directory.glob(f"{DATABASE_NAME}*"):
            path.unlink()
        if how != "removed":
            (directory / DATABASE_NAME).write_bytes(older if how == "older copy" else b"")

    @rule(process=processes)
    def the_user_approves_all_that_one_process_shows(self, process: int) -> None:
        withheld = self.catalogs[process].snapshot.withheld
        seen = {
            key: each.record.change_hash for key, each in withheld.items() if each.state is not WithheldState.BLOCKED
        }
        done = self.run(self.catalogs[process].approve(seen, "user", reopens=True))
        assert done == {key for key, hash_ in seen.items() if self.listed.get(key) == hash_}
        for key in done:
            self.agree(key, seen[key])
        self.blocked -= done
        self.is_closed = False

    @rule(process=processes, server=st.sampled_from(SERVERS))
    def a_server_is_removed(self, process: int, server: str) -> None:
        self.listed = {key: hash_ for key, hash_ in self.listed.items() if key.server != server}
        self.own[process].pop(server, None)
        self.run(self.catalogs[process].forget_servers([name for name in SERVERS if name != server]))

    @rule(process=processes)
    def a_process_looks(self, process: int) -> None:
        self.run(self.catalogs[process].refresh())
        self.holds_exactly_what_is_agreed(self.catalogs[process])

    def approve(self, process: int, key: ToolKey, hash_: str) -> None:
        done = self.run(self.catalogs[process].approve({key: hash_}, "user"))
        assert (key in done) == (self.listed.get(key) == hash_)
        if key in done:
            self.agree(key, hash_)
            self.blocked.discard(key)

    def agree(self, key: ToolKey, hash_: str) -> None:
        before = self.approved.get(key)
        if before not in (None, hash_) and key not in self.blocked:
            self.former[key].add(before)
        self.approved[key] = hash_
        self.agreed[key].add(hash_)

    @rule(
        process=processes, key=keys, variant=st.none() | st.sampled_from(range(len(FIELDS))), has_looked=st.booleans()
    )
    def an_agent_calls(self, process: int, key: ToolKey, variant: int | None, has_looked: bool) -> None:
        """By a definition it saw at some time, or by name alone; what is sent is what was agreed to."""
        catalog = self.catalogs[process]
        if has_looked:
            self.run(catalog.refresh())
        found = catalog.snapshot.by_key.get(key)
        hash_ = found.change_hash if found is not None else ""
        pinned = hash_ if variant is None else change_hash(key.server, {"name": key.tool, **FIELDS[variant]})
        digest = None if variant is None else approval_digest(pinned)
        is_sent = self.run(called(catalog, CallRequest(str(key), {}, None, is_checked=False, digest=digest)))
        heard = self.own[process].get(key.server)
        assert not is_sent or (pinned == hash_ and pinned in self.agreed[key]), key
        assert not is_sent or heard is None or heard.get(key) == pinned, key
        if has_looked:
            is_wanted = pinned != "" and self.wanted().get(key) == pinned
            assert is_sent == (is_wanted and (heard is None or heard.get(key) == pinned)), key

    # --- what always holds

    @invariant()
    def nothing_is_shown_that_was_never_agreed_to(self) -> None:
        for catalog in self.catalogs:
            snapshot = catalog.snapshot
            for record in (*snapshot.by_id.values(), *snapshot.by_key.values(), *snapshot.by_listed.values()):
                assert record.change_hash in self.agreed[record.key], record.key
            assert not snapshot.by_key.keys() & snapshot.withheld.keys()

    def wanted(self) -> dict[ToolKey, str]:
        """What agents are to see."""
        agreed = {key: hash_ for key, hash_ in self.listed.items() if self.approved.get(key) == hash_}
        return {key: hash_ for key, hash_ in agreed.items() if key not in self.blocked}

    def holds_exactly_what_is_agreed(self, catalog: Catalog) -> None:
        wanted = self.wanted()
        snapshot = catalog.snapshot
        assert catalog.is_closed == self.is_closed
        assert {key: record.change_hash for key, record in snapshot.by_key.items()} == wanted
        assert snapshot.withheld.keys() == self.listed.keys() - wanted.keys()


def run_steps(steps: int, place: Callable[[], StorePlace]) -> None:
    """Runs the machine for so many steps in all, each run in a new place."""
    run_state_machine_as_test(
        lambda: Machine(place().url),
        settings=settings(
            max_examples=steps // STEPS_AT_A_TIME,
            stateful_step_count=STEPS_AT_A_TIME,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.long
def test_nothing_is_ever_shown_that_was_not_agreed_to(store_place: Callable[[], StorePlace]) -> None:
    """2,000 steps, the same on each run in CI; on a server, where each takes longer, as many as fit."""
    run_steps(2_000 if store_place().url is None else 600, store_place)


@pytest.mark.soak
def test_nothing_is_ever_shown_that_was_not_agreed_to_in_the_long_run(store_place: Callable[[], StorePlace]) -> None:
    """100,000 steps, and 10,000 on a server."""
    run_steps(100_000 if store_place().url is None else 10_000, store_place)
