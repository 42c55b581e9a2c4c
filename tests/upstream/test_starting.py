"""Programs that take their time to start: one start, as long as they live, in the way of nobody else."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from turned_clock import TurnedClock
from upstream_fakes import fake_config

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.upstream import Connector, Upstream
from smart_mcp_proxy.upstream.starting import ServerStart, StartTurn, describe_start

pytestmark = pytest.mark.anyio

State = ServerState
SLOW_SERVER = Path(__file__).with_name("slow_server.py")


class World:
    """Servers that start, the clock that they are measured by, and what is heard of them."""

    def __init__(self, folder: Path, dialer: Connector, clock: TurnedClock) -> None:
        self.folder = folder
        self.clock = clock
        self.gate = asyncio.Semaphore(1)
        self.states: dict[str, list[State]] = {}
        self.kept: list[Upstream] = []
        self._dialer = dialer
        os.mkfifo(folder / "go")

    async def start(self, *words: str, config: ServerConfig | None = None, **changes: Any) -> Upstream:
        args = ("-S", "-E", str(SLOW_SERVER), str(self.folder), "handshake", *words)
        values: dict[str, Any] = {"name": "slow", "args": args, "limits": ServerLimits(init_s=300)}
        upstream = Upstream(
            config or fake_config(**(values | changes)),
            environ=dict(os.environ),
            on_change=self._changed,
            on_tools_changed=lambda name: None,
            open_session=self._dialer,
            start_gate=self.gate,
            rng=random.Random(1),
            clock=lambda: asyncio.get_running_loop().time(),
        )
        self.kept.append(upstream)
        await upstream.start()
        return upstream

    def _changed(self, status: ServerStatus) -> None:
        self.states.setdefault(status.name, []).append(status.state)

    async def until(self, happened: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not happened():
                await anyio.lowlevel.checkpoint()

    async def began(self, count: int = 1) -> None:
        await self.until(lambda: self.starts == count)

    @property
    def starts(self) -> int:
        file = self.folder / "starts"
        return len(file.read_text().splitlines()) if file.exists() else 0

    async def let_go(self) -> None:
        """The program has what it needs."""
        await asyncio.to_thread((self.folder / "go").write_bytes, b"")


@pytest.fixture
async def world(tmp_path: Path, dialer: Connector, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A place for slow servers; they end with it."""
    opened = World(tmp_path, dialer, TurnedClock(monkeypatch))
    yield opened
    for upstream in opened.kept:
        await upstream.stop()


async def text_of(upstream: Upstream, tool: str) -> Any:
    """The text of a tool's first content block."""
    result = await upstream.request("tools/call", {"name": tool, "arguments": {}})
    return json.loads(result.text)["content"][0]["text"]


async def test_a_program_that_answers_right_before_the_limit_is_started_once(world: World) -> None:
    """As long as it lives nobody kills it."""
    slow = await world.start("boot")
    await world.until(lambda: slow.logs(1) == ["boot"])
    await world.clock.turn(295)
    assert slow.status.state is State.CONNECTING
    await world.let_go()
    await world.until(lambda: slow.is_ready)
    assert world.starts == 1
    assert world.states["slow"] == [State.CONNECTING, State.READY]
    assert (slow.status.error, slow.status.hint) == ("", "")


async def test_its_state_says_how_long_it_takes_and_what_it_wrote_last(world: World) -> None:
    """So that a download is told from a program that hangs."""
    slow = await world.start("fetching 1 of 9", "fetching 2 of 9")
    await world.until(lambda: slow.logs(1) == ["fetching 2 of 9"])
    await world.clock.turn(42)
    assert slow.status.error == (
        "It has not answered yet, 42 s after its start (at most 300 s). It last wrote: fetching 2 of 9"
    )
    assert slow.status.hint == "Its program runs and is waited for: a first start may have to download or compile."


async def test_a_program_that_writes_nothing_is_waited_for_as_well(world: World) -> None:
    slow = await world.start()
    await world.began()
    await world.clock.turn(200)
    assert slow.status.error.endswith("(at most 300 s). It has written nothing to stderr.")
    await world.let_go()
    await world.until(lambda: slow.is_ready)
    assert world.starts == 1


async def test_a_call_meanwhile_is_not_sent_and_ends_after_20_s(world: World) -> None:
    """However long the start may take, an agent is not kept waiting."""
    slow = await world.start("boot")
    await world.until(lambda: slow.logs(1) == ["boot"])
    call = asyncio.ensure_future(text_of(slow, "finish"))
    await world.clock.turn(19)
    assert not call.done()
    await world.clock.turn(2)
    with pytest.raises(UpstreamError) as caught:
        await call
    assert caught.value.delivery == "not_sent"
    assert caught.value.message.startswith("Server 'slow' is not ready (connecting): It has not answered yet, 21 s")
    await world.let_go()
    assert await text_of(slow, "finish") == "finished"
    assert world.starts == 1


@pytest.mark.long  # a third of a second of processor time
async def test_the_end_of_the_limit_names_the_setting_that_helps(world: World) -> None:
    """Raising it starts the program again at once, and it holds for that start."""
    slow = await world.start("boot", limits=ServerLimits(init_s=50))
    await world.until(lambda: slow.logs(1) == ["boot"])
    await world.clock.turn(51)
    await world.until(lambda: State.ERROR in world.states["slow"])
    assert slow.status.error == "Server 'slow' did not answer 'initialize' within 50 s. It wrote: boot"
    assert slow.status.hint == (
        "Its program ran all that time and was ended. If it needs longer to start: "
        "mcpproxy server patch slow limits.init_s=100"
    )
    slow.limit(replace(slow.config, limits=ServerLimits(init_s=100)))
    await world.began(2)
    await world.clock.turn(90)
    await world.let_go()
    await world.until(lambda: slow.is_ready)
    assert world.starts == 2


async def test_a_program_that_dies_while_it_starts_is_not_waited_for(world: World) -> None:
    """The limit is for those that live."""
    dead = await world.start(config=fake_config("dead", name="dead", limits=ServerLimits(init_s=300)))
    await world.until(lambda: State.ERROR in world.states["dead"])
    assert "ended with exit code 3" in dead.status.error


async def test_a_slow_start_gives_its_place_back_after_10_s(world: World) -> None:
    """And only once, although it still ends after that."""
    slow = await world.start("boot")
    await world.until(lambda: slow.logs(1) == ["boot"])
    other = await world.start(config=fake_config(name="other"))
    await world.clock.turn(9)
    assert other.status.error == "It waits for its turn to start."
    await world.clock.turn(2)
    await world.until(lambda: other.is_ready)
    assert slow.status.state is State.CONNECTING
    await world.let_go()
    await world.until(lambda: slow.is_ready)
    assert world.gate._value == 1


async def test_a_quick_start_gives_its_place_back_at_its_end(world: World) -> None:
    async with StartTurn(world.gate):
        assert world.gate.locked()
    assert world.gate._value == 1
    await world.clock.turn(11)
    assert world.gate._value == 1


def test_over_http_nothing_is_said_of_a_program() -> None:
    """There is none."""
    status = ServerStatus("s", "http", State.CONNECTING)
    told = describe_start(status, ServerStart(100.0, 20.0), 104.4, "")
    error, hint = told.error, told.hint
    assert (error, hint) == ("It has not answered yet, 4 s after its start (at most 20 s).", "")
    assert describe_start(status, None, 0.0, "") == status
