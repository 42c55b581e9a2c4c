"""Announcements equal changes: a client is told once for each other list, and never for the same one."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway_fakes import Parts, agent_with, config, definition, opened_parts, surface_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient
from smart_mcp_proxy.gateway.sessions.tool_surface import PooledTools
from smart_mcp_proxy.gateway.shared.client_behavior import ClientBehavior
from smart_mcp_proxy.gateway.shared.sessions import Route, Session
from smart_mcp_proxy.models import LOCAL, Hit
from smart_mcp_proxy.pool import Pool
from smart_mcp_proxy.servers import Profile

NAMES = [f"tool_{number}" for number in range(6)]
LIMIT = 3
DAY_S = 86_400.0

Step = Callable[["Viewer"], Awaitable[None]]


class Viewer:
    """A client with a pool of three, which looks at its list after every step.

    Args:
        parts: A catalog with the server `alpha`.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.told = 0
        client = HandshakeClient("c", "1", "", LOCAL, self._hear)
        self.session = Session(
            client,
            Route("DYNAMIC", ""),
            self._open_list,
            ClientBehavior(parts.clock).watch("c"),
            on_told=int,
            on_close=print,
        )
        self.session.note_listed()

    async def _hear(self) -> None:
        self.told += 1

    def _open_list(self, on_change: Callable[[], None]) -> PooledTools:
        self.tools = PooledTools(surface_of(self.parts), Pool(LIMIT), self.parts.clock, lambda: None)
        return self.tools

    def seen(self) -> list[Any]:
        """What a list would hold now."""
        return list(self.tools.definitions("handshake"))


def search(numbers: list[int]) -> Step:
    """A search that finds these tools, as far as there are any."""

    async def step(client: Viewer) -> None:
        records = [client.parts.visible.find(f"alpha:{NAMES[number]}") for number in numbers]
        found = [(Hit(record.id, 1.0 - place / 10), record) for place, record in enumerate(records) if record]
        await client.tools.register(found, None, "local")

    return step


def relist(wordings: dict[int, str]) -> Step:
    """The server lists these tools, with these words; the same ones again change nothing."""

    async def step(client: Viewer) -> None:
        await client.parts.sync("alpha", [definition(NAMES[number], words) for number, words in wordings.items()])

    return step


def configure(hidden: set[int]) -> Step:
    """The configuration hides these tools."""

    async def step(client: Viewer) -> None:
        shown = tuple(name for number, name in enumerate(NAMES) if number not in hidden)
        client.parts.visible.reconfigure({"alpha": config("alpha")}, Profile("p", ("alpha",), shown or ("none",), ()))

    return step


def wait(seconds: float) -> Step:
    """Time passes, in whichever direction."""

    async def step(client: Viewer) -> None:
        client.parts.clock.now_s += seconds

    return step


numbers = st.integers(0, len(NAMES) - 1)
steps = st.one_of(
    st.builds(search, st.lists(numbers, max_size=5, unique=True)),
    st.builds(relist, st.dictionaries(numbers, st.sampled_from(["Says a.", "Says b."]), max_size=len(NAMES))),
    st.builds(configure, st.sets(numbers)),
    st.builds(wait, st.sampled_from([1.0, 1800.0, DAY_S, -DAY_S])),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=12))
@pytest.mark.long  # many generated examples
def test_a_client_is_told_exactly_when_its_list_is_another_one(taken: list[Step]) -> None:
    """Whatever changes it: searches, evictions, the server, the configuration; and however the clock jumps."""

    async def live(directory: Path) -> None:
        async with opened_parts(directory, {"alpha": config("alpha")}) as parts:
            await parts.sync("alpha", [definition(name) for name in NAMES])
            client = Viewer(parts)
            for step in taken:
                before, told = client.seen(), client.told
                await step(client)
                await client.session.refresh()
                await client.session.refresh()
                assert client.told - told == int(client.seen() != before)
                assert len(client.seen()) <= LIMIT

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(live(Path(directory)))


@pytest.mark.anyio
async def test_what_changes_back_before_anybody_looks_is_not_told(tmp_path: Path) -> None:
    """The list is the one that the client knows."""
    async with opened_parts(tmp_path, {"alpha": config("alpha")}) as parts:
        await parts.sync("alpha", [definition(name) for name in NAMES])
        client = Viewer(parts)
        await search([0])(client)
        await client.session.refresh()
        for hidden in ({0}, set()):
            await configure(hidden)(client)
        await client.session.refresh()
        assert client.told == 1


class Slow(Viewer):
    """A client that does not read what it is told until the test says so."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.reads = asyncio.Event()

    async def _hear(self) -> None:
        self.told += 1
        await self.reads.wait()


@pytest.mark.anyio
async def test_a_client_that_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    """Others hear of each change at once; it is told of all that came meanwhile once, when it reads again."""
    async with opened_parts(tmp_path, {"alpha": config("alpha")}) as parts:
        await parts.sync("alpha", [definition(name) for name in NAMES])
        slow, quick = Slow(parts), Viewer(parts)
        agent = agent_with(quick.tools)
        agent._sessions |= {slow.session, quick.session}
        for number, told in ((0, 1), (1, 2), (2, 3)):
            for client in (slow, quick):
                await search([number])(client)
            agent.refresh()
            with anyio.fail_after(20):
                while quick.told < told:
                    await asyncio.sleep(0)
        assert (slow.told, quick.told) == (1, 3)
        slow.reads.set()
        with anyio.fail_after(20):
            while slow.session.is_behind:
                await asyncio.sleep(0)
        assert (slow.told, quick.told) == (2, 3)
