"""Two gateway processes on one data directory, in front of a server that turns: what their agents see and reach.

Each process has its own connection to the server, hears of changes at its own time, and is asked by its own user;
one of them dies at any moment. Beside them stands what the users agreed to, kept by hand.
"""

import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from agents import Agent, Era
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from transports import on_stdio, rest_at, spawned

from smart_mcp_proxy.catalog import approval_digest, change_hash
from smart_mcp_proxy.web.serve import socket_path

UPSTREAM = Path(__file__).parent / "following_upstream.py"
MEMORY = Path("/dev/shm")
"""Short paths, for the sockets; and hundreds of starts need not wait for a disk."""
DEADLINE_S = 60.0
ERAS: tuple[Era, Era] = ("handshake", "modern")
NAMES = ("a", "b", "c")
CANONICAL = [f"s:{name}" for name in NAMES]
PLAIN: dict[str, Any] = {"description": "Does a thing.", "inputSchema": {"type": "object"}}
SECRET = "xyzzy"
"""In every definition but the first: no word of it may reach an agent before it is agreed to."""
FIELDS: tuple[dict[str, Any], ...] = (
    {"description": f"Does a thing. {SECRET}"},
    {"title": SECRET},
    {"inputSchema": {"type": "object", "properties": {"x": {"type": "string", "description": SECRET}}}},
    {"inputSchema": {"type": "object", "properties": {"x": {"enum": [SECRET]}}}},
    {"outputSchema": {"type": "object", "description": SECRET}},
    {"annotations": {"readOnlyHint": True, "title": SECRET}},
    {"annotations": {"destructiveHint": True, "title": SECRET}},
    {"icons": [{"src": f"https://example.com/{SECRET}.png"}]},
    {"_meta": {"note": SECRET}},
    {SECRET: 1},
)
TOGETHER: dict[str, Any] = {key: value for change in FIELDS for key, value in change.items()}
VARIANTS = (PLAIN, *(PLAIN | change for change in FIELDS), PLAIN | TOGETHER)
FIRST = {"a": 0, "b": 0}
"""The list that the server is trusted with."""

Lists = Mapping[str, int]
"""By the tools' names, which variant of its definition the server lists."""


def listed(lists: Lists) -> list[dict[str, Any]]:
    """The tools of a list."""
    return [{"name": name, **VARIANTS[variant]} for name, variant in sorted(lists.items())]


def hash_of(tool: Mapping[str, Any]) -> str:
    """What approving this definition takes."""
    return change_hash("s", tool)


WHAT = ("lists", "turns and reverts", "approves", "approves what has moved", "blocks", "unblocks", "dies", "settles")


class Step(NamedTuple):
    """Something that happens in a story.

    Attributes:
        what: One of `WHAT`.
        process: Which of the two it happens at.
        name: Of a tool.
        lists: What the server lists then.
    """

    what: str
    process: int
    name: str
    lists: Lists


@dataclass
class Process:
    """A gateway process, its agent and its user."""

    child: asyncio.subprocess.Process
    agent: Agent
    user: httpx2.AsyncClient


@dataclass
class Story:
    """The server, both gateways, and what was agreed to."""

    directory: Path
    lists: Lists = field(default_factory=lambda: dict(FIRST))
    processes: dict[int, Process] = field(default_factory=dict)
    approved: dict[str, str] = field(default_factory=dict)
    agreed: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    blocked: set[str] = field(default_factory=set)
    stacks: dict[int, AsyncExitStack] = field(default_factory=dict)

    async def tell(self, steps: Sequence[Step]) -> None:
        """All of it, from the first start on; at the end both processes agree with what was agreed to."""
        self.write(FIRST)
        try:
            await asyncio.gather(*(self.start(number) for number in (0, 1)))
            for tool in listed(FIRST):
                self.agree(tool["name"], hash_of(tool))
            await self.settle()
            for step in steps:
                await self.take(step)
                for process in self.processes.values():
                    await self.look(process)
            await self.settle()
        finally:
            for number in (*self.stacks,):
                await self.kill(number)

    # --- what happens

    async def take(self, step: Step) -> None:
        """One step."""
        match step.what:
            case "lists":
                self.write(step.lists)
            case "turns and reverts":
                before = self.lists
                self.write(step.lists)
                await until(partial(self.was_told, self.processes[step.process]))
                self.write(before)
            case "approves":
                seen = await self.waiting(step.process)
                await self.approve(step.process, {name: hash_ for name, hash_ in seen.items() if name == step.name})
            case "approves what has moved":
                seen = await self.waiting(step.process)
                self.write(step.lists)
                await self.approve(step.process, seen)
            case "blocks" | "unblocks":
                await self.block(step.process, step.name, lifts=step.what == "unblocks")
            case "dies":
                await self.kill(step.process)
                await self.start(step.process)
            case "settles":
                await self.settle()

    def write(self, lists: Lists) -> None:
        """The server lists other tools now, and says so when it notices."""
        self.lists = lists
        part = self.directory / "tools.part"
        part.write_text(json.dumps(listed(lists)))
        part.replace(self.directory / "tools")

    async def start(self, number: int) -> None:
        """One of the two processes begins."""
        data_dir, stack = self.directory / "data", AsyncExitStack()
        entry = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(self.directory)]}
        self.stacks[number] = stack
        child = await stack.enter_async_context(spawned(data_dir, {"s": entry}))
        agent = await stack.enter_async_context(on_stdio(child, ERAS[number]))
        socket = socket_path(data_dir, child.pid)
        await until(socket.exists)
        self.processes[number] = Process(child, agent, await stack.enter_async_context(rest_at(socket)))

    async def kill(self, number: int) -> None:
        """It ends as by kill -9."""
        if (process := self.processes.pop(number, None)) is not None:
            process.child.kill()
        await self.stacks.pop(number).aclose()

    async def waiting(self, number: int) -> dict[str, str]:
        """The hashes that the user of a process is shown, by tool."""
        answer = (await self.processes[number].user.get("approvals")).raise_for_status().json()
        return {tool["tool"]: tool["hash"] for tool in answer["tools"]}

    async def approve(self, number: int, seen: Mapping[str, str]) -> None:
        """Its user approves what was seen, in one go."""
        if not seen:
            return
        tools = [{"name": f"s:{name}", "hash": hash_} for name, hash_ in seen.items()]
        reply = await self.processes[number].user.post("approvals/approve", json={"tools": tools})
        assert reply.status_code in (200, 404, 409), reply.text
        for name in reply.json()["approved"] if reply.status_code == 200 else ():
            tool = name.removeprefix("s:")
            self.agree(tool, seen[tool])
            self.blocked.discard(tool)

    async def block(self, number: int, name: str, *, lifts: bool) -> None:
        """Its user switches a tool off, or on again."""
        reply = await self.processes[number].user.post(
            f"approvals/{'unblock' if lifts else 'block'}", json={"name": f"s:{name}"}
        )
        assert reply.status_code in (200, 404), reply.text
        if reply.status_code == 200:
            (self.blocked.discard if lifts else self.blocked.add)(name)

    def agree(self, name: str, hash_: str) -> None:
        self.approved[name] = hash_
        self.agreed[name].add(hash_)

    # --- what always holds

    async def look(self, process: Process) -> dict[str, str]:
        """The digests of all that an agent sees of the server; nothing of it was never agreed to."""
        described = (await process.agent.call("describe_tool", names=CANONICAL))["structuredContent"]
        found = (await process.agent.call("retrieve_tools", query="does a thing", limit=50))["structuredContent"]
        for tool in (*described.get("tools", ()), *found["tools"]):
            assert tool["digest"] in {approval_digest(hash_) for hash_ in self.agreed[tool["name"][2:]]}, tool
        shown = {tool["name"][2:]: tool["digest"] for tool in described.get("tools", ())}
        if not any(self.agreed[name] - {hash_of({"name": name, **PLAIN})} for name in NAMES):
            assert SECRET not in json.dumps([described, found])
        return shown

    def wanted(self) -> dict[str, str]:
        """The hashes of what agents may see now."""
        hashes = {tool["name"]: hash_of(tool) for tool in listed(self.lists)}
        return {
            name: hash_
            for name, hash_ in hashes.items()
            if self.approved.get(name) == hash_ and name not in self.blocked
        }

    async def settle(self) -> None:
        """Once both have heard the present list they show exactly what is agreed to, and reach nothing else."""
        wanted = self.wanted()
        digests = {name: approval_digest(hash_) for name, hash_ in wanted.items()}
        for process in self.processes.values():
            await until(partial(self.was_told, process))
            await until(partial(self.shows, process, digests))
        before = len(self.ledger())
        for process in self.processes.values():
            for name in NAMES:
                if name in wanted:
                    await until(partial(self.answers, process, name))
                else:
                    assert not await self.answers(process, name), name
        for definition in self.ledger()[before:]:
            assert wanted.get(definition["name"]) == hash_of(definition), definition

    async def was_told(self, process: Process) -> bool:
        told = self.directory / f"told-{process.child.pid}"
        return told.exists() and told.read_text() == (self.directory / "tools").read_text()

    async def shows(self, process: Process, digests: Mapping[str, str]) -> bool:
        return await self.look(process) == digests

    async def answers(self, process: Process, name: str) -> bool:
        result = await process.agent.call("call_tool_destructive", name=f"s:{name}", args={})
        return not result.get("isError")

    def ledger(self) -> list[dict[str, Any]]:
        """The definitions that calls have reached."""
        path = self.directory / "ledger"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def until(is_true: Callable[[], Any]) -> None:
    """Returns when something outside this process has become true."""
    async with asyncio.timeout(DEADLINE_S):
        while not (await found if asyncio.iscoroutine(found := is_true()) else found):
            await asyncio.sleep(0.02)


STEPS = st.builds(
    Step,
    st.sampled_from(WHAT),
    st.integers(0, 1),
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, len(VARIANTS) - 1)),
)


def tell_stories(count: int) -> None:
    """So many stories, each on a data directory of its own."""

    @settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],  # a story that fails is short enough
    )
    @given(st.lists(STEPS, min_size=2, max_size=8))
    def tell(steps: list[Step]) -> None:
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
            story = Story(Path(directory))
            asyncio.run(story.tell(steps))
            lengths.append((len(steps), len(story.ledger())))

    lengths: list[tuple[int, int]] = []
    assert len({hash_of({"name": "a", **variant}) for variant in VARIANTS}) == len(VARIANTS), (
        "each is another definition"
    )
    tell()
    steps, calls = map(sum, zip(*lengths, strict=True))
    print(f"\n{len(lengths)} stories of two processes, {steps} steps, {calls} calls that reached the server")


STORY = [
    Step("lists", 0, "a", {"a": 2, "b": 0, "c": 0}),
    Step("settles", 0, "a", {}),
    Step("approves what has moved", 0, "a", {"a": 1, "b": 0, "c": 3}),
    Step("turns and reverts", 1, "b", {"a": 1, "b": 11}),
    Step("settles", 0, "a", {}),
    Step("approves", 1, "c", {}),
    Step("blocks", 0, "b", {}),
    Step("dies", 1, "a", {}),
    Step("unblocks", 1, "b", {}),
    Step("dies", 0, "a", {}),
]
"""One in which everything happens; the random ones are for `make soak`."""


@pytest.mark.requirement("approval-processes")
@pytest.mark.long
def test_of_two_processes_neither_shows_or_calls_what_was_not_agreed_to() -> None:
    """Lists that change in any field and back, an approval that comes too late, a block, kill -9."""
    assert {step.what for step in STORY} == {*WHAT}
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        story = Story(Path(directory))
        asyncio.run(story.tell(STORY))
        assert story.ledger()


@pytest.mark.soak
def test_of_two_processes_neither_shows_or_calls_what_was_not_agreed_to_in_the_long_run() -> None:
    """200 stories."""
    tell_stories(200)
