"""Servers that one worker runs and another one uses: two workers in this process, a socket between them."""

import asyncio
import json
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio
import pytest
from upstream_fakes import fake_config

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.extensions import TASKS
from smart_mcp_proxy.io.lines import open_lines
from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import Connector, Fleet, Keeper, Upstream, supervisor
from smart_mcp_proxy.upstream.relayed import SERVER, WorkerFailure
from smart_mcp_proxy.upstream.stdio import stdio

pytestmark = pytest.mark.anyio

State = ServerState
TASK_SERVER = Path(__file__).parents[1] / "interaction" / "extended_upstream.py"
LIMIT_S = 20.0
KILLS = 12


class Soon(random.Random):
    """Makes every pause before a new try short."""

    def uniform(self, a: float, b: float) -> float:
        return 0.01


class Never(random.Random):
    """Makes them all longer than any test: a new try comes because somebody asks for it."""

    def uniform(self, a: float, b: float) -> float:
        return 1e6


class Side:
    """One worker with its server, ended when it is left.

    Attributes:
        states: That the server has been in.
        upstream: The worker's side of it.
    """

    def __init__(self, config: ServerConfig, worker: Worker, rng: random.Random, **options: Any) -> None:
        self.states: list[State] = []
        self.worker = worker
        self.listeners: list[Callable[[ServerStatus], None]] = [lambda status: self.states.append(status.state)]
        self._dialer = Connector(worker=worker, **options)
        self.upstream = Upstream(
            config,
            environ=dict(os.environ),
            on_change=self._changed,
            on_tools_changed=lambda name: None,
            open_session=self._dialer,
            start_gate=asyncio.Semaphore(4),
            rng=rng,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.upstream.stop()
        await self._dialer.__aexit__(*exc_info)

    def _changed(self, status: ServerStatus) -> None:
        for listener in self.listeners:
            listener(status)

    def keeps(self) -> Keeper:
        """Lets the other worker use the server."""
        keeper = Keeper({"fake": self.upstream}, self.worker)
        self.listeners.append(keeper.status_changed)
        return keeper

    async def ready(self, times: int = 1) -> None:
        """The server has been ready so often."""
        with anyio.fail_after(LIMIT_S):
            while self.states.count(State.READY) < times:
                await asyncio.sleep(0.01)

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        """The text of a tool's first content block."""
        params = {"name": name, "arguments": arguments or {}}
        with anyio.fail_after(LIMIT_S):
            result = await self.upstream.request("tools/call", params, **options)
        text: str = json.loads(result.text)["content"][0]["text"]
        return text


def two_workers(stack: AsyncExitStack) -> tuple[Worker, Worker]:
    """The one that runs the server `fake`, and another one."""
    boxes = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
    for end in (end for box in boxes for end in box):
        end.setblocking(False)
        stack.callback(end.close)
    workers = [Worker(number, [sending for sending, _ in boxes], boxes[number][1]) for number in range(2)]
    for worker in workers:
        stack.callback(worker.close)
    keeper = workers[0].find_keeper_worker("fake")
    return workers[keeper], workers[1 - keeper]


@asynccontextmanager
async def both(config: ServerConfig | None = None, **options: Any) -> AsyncIterator[tuple[Side, Side, Keeper]]:
    """The side that runs the server and the side that uses it, started."""
    async with AsyncExitStack() as stack:
        workers = two_workers(stack)
        sides = [
            await stack.enter_async_context(Side(config or fake_config(), worker, rng(), **options))
            for worker, rng in zip(workers, (Soon, Never), strict=True)
        ]
        keeper = sides[0].keeps()
        for side in sides:
            await side.upstream.start()
        yield sides[0], sides[1], keeper


@pytest.mark.long  # starts programs, a second of it
async def test_a_killed_server_is_back_at_the_user_when_it_is_back_at_its_keeper() -> None:
    """However often: how long it pauses is the keeper's to decide, and the user waits for no pause of its own."""
    async with both() as (own, user, _):
        for turn in range(1, KILLS + 1):
            await own.ready(turn)
            await user.ready(turn)
            pid = int(await user.call("pid"))
            assert pid == int(await own.call("pid"))
            os.kill(pid, signal.SIGKILL)
        await user.ready(KILLS + 1)


async def test_a_server_that_cannot_start_is_had_as_soon_as_it_can(tmp_path: Path) -> None:
    """Until then the user says why not, in the keeper's words, and is not asked to wait."""
    command = tmp_path / "late-server"
    async with both(fake_config(command=str(command), args=())) as (_, user, _):
        with anyio.fail_after(LIMIT_S):
            while user.upstream.status.state is not State.ERROR:
                await asyncio.sleep(0.01)
        assert "not found" in user.upstream.status.error
        good = fake_config()
        command.write_text(f'#!/bin/sh\nexec "{good.command}" -S -E "{good.args[2]}" handshake\n')
        command.chmod(0o755)
        await user.ready()
        assert await user.call("echo") == "{}"


async def test_a_user_does_not_bring_the_next_try_at_a_server_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it looks in: a server that cannot start would be started again without a pause."""
    monkeypatch.setattr(supervisor, "_NUDGE_S", 0.0)
    async with AsyncExitStack() as stack:
        config = fake_config(command="/there/is/no/such/server", args=())
        own, user = [await stack.enter_async_context(Side(config, one, Never())) for one in two_workers(stack)]
        own.keeps()
        for side in (own, user):
            await side.upstream.start()
        for turn in range(1, 4):
            with anyio.fail_after(LIMIT_S):
                while user.states.count(State.ERROR) < turn:
                    await asyncio.sleep(0.01)
            user.upstream.retry()
        assert own.states == [State.CONNECTING, State.ERROR]
        with pytest.raises(UpstreamError, match="not ready"):
            await own.call("echo")
        with anyio.fail_after(LIMIT_S):
            while own.states.count(State.ERROR) < 2:  # for a call it is
                await asyncio.sleep(0.01)


async def test_a_server_is_had_again_from_the_worker_in_the_place_of_its_keeper() -> None:
    """Which is asked while it starts."""
    async with AsyncExitStack() as stack:
        workers = two_workers(stack)
        user = await stack.enter_async_context(Side(fake_config(), workers[1], Never()))
        own = await stack.enter_async_context(Side(fake_config(), workers[0], Soon()))
        keeper = own.keeps()
        for side in (own, user):
            await side.upstream.start()
        await user.ready()
        workers[0].close()
        await keeper.close()
        await own.upstream.stop()
        with anyio.fail_after(LIMIT_S):
            while user.upstream.status.state is not State.CONNECTING:
                await asyncio.sleep(0.01)
        later = await stack.enter_async_context(Side(fake_config(), workers[0], Soon()))
        later.keeps()
        await later.upstream.start()
        await user.ready(2)
        assert await user.call("pid") == await later.call("pid")


async def test_a_worker_that_ends_without_a_word_is_asked_again() -> None:
    """The one in its place has the next letter."""
    async with AsyncExitStack() as stack:
        workers = two_workers(stack)
        user = await stack.enter_async_context(Side(fake_config(), workers[1], Never()))
        taken: list[bytes] = []

        def drop(words: bytes, handed: socket.socket) -> None:
            taken.append(words)
            handed.close()

        workers[0].listen(b"s", drop)
        await user.upstream.start()
        with anyio.fail_after(LIMIT_S):
            while len(taken) < 2:
                await asyncio.sleep(0.01)
        assert user.states == [State.CONNECTING]
        own = await stack.enter_async_context(Side(fake_config(), workers[0], Soon()))
        own.keeps()
        await own.upstream.start()
        await user.ready()


async def test_a_request_that_nobody_waits_for_is_cancelled_at_the_server() -> None:
    """The keeper stops waiting, too."""
    async with both() as (own, user, _):
        await user.ready()
        hanging = asyncio.create_task(user.call("hang"))
        while "tools/call" not in await own.call("methods"):
            await asyncio.sleep(0)
        await user.call("echo")
        hanging.cancel()
        with anyio.fail_after(LIMIT_S):
            while await own.call("cancelled") == "[]":
                await asyncio.sleep(0.01)


async def test_a_server_that_stopped_is_noticed_at_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that times out there lets the keeper find out that the server does not work at all."""
    monkeypatch.setattr(stdio, "_STOPPED_S", 0.1)
    async with both() as (own, user, _):
        await user.ready()
        pid = int(await user.call("pid"))
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(UpstreamError, match="did not answer"):
            await user.call("echo", timeout_s=0.1)
        await own.ready(2)
        await user.ready(2)
        assert int(await user.call("pid")) != pid


async def test_arguments_may_be_longer_than_a_server_may_answer() -> None:
    """As in the worker that runs it."""
    async with both(max_message_bytes=100_000) as (own, user, _):
        await user.ready()
        long = {"text": "x" * 300_000}
        assert await user.call("pid", long) == await own.call("pid", long)


async def test_results_errors_and_progress_are_those_of_the_server() -> None:
    """Large ones, too."""
    async with both() as (_, user, _):
        await user.ready()
        heard = []

        async def note(report: Any) -> None:
            heard.append(report.progress)

        assert await user.call("progress", on_progress=note) == "done"
        assert heard[-1] == 499
        assert len(await user.call("big", {"size": 3_000_000})) == 3_000_000
        assert await user.call("echo", {"a": [1, {"b": "é\n"}]}) == json.dumps({"a": [1, {"b": "é\n"}]})
        with pytest.raises(UpstreamError) as caught:
            await user.call("error")
        assert caught.value.answer is not None and caught.value.answer.data == {"a": 1}


async def test_states_of_tasks_are_told_to_the_user_that_follows_them(tmp_path: Path) -> None:
    """As the keeper's server tells them, of those tasks alone, and no longer than they are followed."""
    state, ledger = tmp_path / "state.json", tmp_path / "ledger"
    state.write_text(json.dumps({"extensions": {TASKS: {}}, "speaks": True}))
    ledger.touch()
    config = fake_config(args=("-S", str(TASK_SERVER), "modern", str(state), str(ledger)))
    async with both(config) as (own, user, _):
        await user.ready()

        async def push(task: str, status: str) -> None:
            arguments = {"task": task, "states": [{"status": status}]}
            await user.upstream.request("tools/call", {"name": "push", "arguments": arguments})

        await push("a", "working")
        await push("b", "working")
        with anyio.fail_after(LIMIT_S), user.upstream.watch.tasks.watch_task("a") as heard:
            while own.upstream.watch.tasks.active_tasks != {"a"}:
                await asyncio.sleep(0.01)
            await push("b", "completed")
            await push("a", "completed")
            told = json.loads(await heard.get())
            assert (told["taskId"], told["status"], heard.empty()) == ("a", "completed", True)
        with anyio.fail_after(LIMIT_S):
            while own.upstream.watch.tasks.active_tasks:
                await asyncio.sleep(0.01)


async def test_a_keeper_that_closes_lets_requests_end() -> None:
    """And ends the connection afterwards."""
    async with both() as (own, user, keeper):
        await user.ready()
        hanging = asyncio.create_task(user.call("hang"))
        await user.call("echo")
        closing = asyncio.create_task(keeper.close())
        await user.call("echo")
        assert not closing.done()
        await own.call("late")
        assert await hanging == "late"
        with anyio.fail_after(LIMIT_S):
            await closing


@asynccontextmanager
async def two_fleets(config: ServerConfig) -> AsyncIterator[tuple[list[Fleet], tuple[Worker, Worker], list[State]]]:
    """Fleets of the worker that runs the server, started, and of another one; the workers; states of the server."""
    async with AsyncExitStack() as stack:
        workers, states = two_workers(stack), list[State]()
        listeners: list[Callable[[ServerStatus], None]] = [lambda status: states.append(status.state)]

        def tell(worker: Worker, status: ServerStatus) -> None:
            for listener in listeners if worker is workers[0] else ():
                listener(status)

        fleets = []
        for worker in workers:
            fleet = Fleet(
                environ=dict(os.environ),
                on_change=partial(tell, worker),
                on_tools_changed=lambda name: None,
                open_session=await stack.enter_async_context(Connector(worker=worker)),
                worker=worker,
            )
            fleets.append(fleet)
            stack.push_async_callback(fleet.close)
            await fleet.apply({"fake": config})
        listeners.append(Keeper(fleets[0].upstreams, workers[0]).status_changed)
        await fleets[0].start()
        yield fleets, workers, states


async def test_lines_and_restarts_come_from_the_worker_that_runs_the_server() -> None:
    """Whichever is asked; one that does not answer is no server without lines."""
    async with two_fleets(fake_config("dead")) as (fleets, workers, states):
        with anyio.fail_after(LIMIT_S):
            while not await fleets[1].logs("fake", 5):
                await asyncio.sleep(0.01)
            assert await fleets[1].logs("fake", 1) == ["cannot start: no licence"]
            assert await fleets[1].logs("nobody", 1) == []
            await fleets[1].restart("fake")
            while State.DISCONNECTED not in states:
                await asyncio.sleep(0.01)
        workers[0].listen(b"l", lambda words, asker: asker.close())
        with pytest.raises(UpstreamError, match="does not answer"):
            await fleets[1].logs("fake", 5)


async def test_a_call_at_another_worker_brings_the_next_try_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the worker that runs the server, whose pause may have become a minute long: it can be started again."""
    monkeypatch.setattr(supervisor, "_NUDGE_S", 0.0)
    monkeypatch.setattr(supervisor, "backoff_s", lambda failures, rng: 1e6)
    command = tmp_path / "late-server"
    async with two_fleets(fake_config(command=str(command), args=())) as (fleets, _, states):
        user = fleets[1].upstreams["fake"]
        await fleets[1].start()
        with anyio.fail_after(LIMIT_S):
            while user.status.state is not State.ERROR:
                await asyncio.sleep(0.01)
            assert states == [State.CONNECTING, State.ERROR]
            good = fake_config()
            command.write_text(f'#!/bin/sh\nexec "{good.command}" -S -E "{good.args[2]}" handshake\n')
            command.chmod(0o755)
            with pytest.raises(UpstreamError, match="not ready"):
                await user.request("tools/call", {"name": "echo", "arguments": {}})
            while not user.is_ready:
                await asyncio.sleep(0.01)


async def test_a_call_at_another_worker_waits_for_a_server_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the worker that runs it: nothing was sent yet."""
    monkeypatch.setattr(supervisor, "backoff_s", lambda failures, rng: 1e6)
    async with two_fleets(fake_config()) as (fleets, _, _):
        user = fleets[1].upstreams["fake"]
        await fleets[1].start()
        for _ in range(3):
            with anyio.fail_after(LIMIT_S):
                result = await user.request("tools/call", {"name": "pid", "arguments": {}})
                os.kill(int(json.loads(result.text)["content"][0]["text"]), signal.SIGKILL)
                while user.is_ready:
                    await asyncio.sleep(0.01)
        assert user.status.restarts == 2


async def test_no_child_inherits_what_another_worker_hands_over() -> None:
    """It would hold a connection open that both workers have closed."""
    async with AsyncExitStack() as stack:
        workers = two_workers(stack)
        taken: asyncio.Queue[socket.socket] = asyncio.Queue()
        workers[0].listen(b"x", lambda words, handed: taken.put_nowait(handed))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            workers[1].send(workers[0].number, b"x", b"", theirs.fileno())
        with anyio.fail_after(LIMIT_S), await taken.get() as handed:
            assert not os.get_inheritable(handed.fileno())


async def test_a_refusal_whose_task_is_cancelled_closes_its_connection() -> None:
    """As where the worker ends: the other one asks anew."""
    async with AsyncExitStack() as stack:
        workers = two_workers(stack)
        Keeper({}, workers[0])
        ours, theirs = socket.socketpair()
        with theirs:
            workers[1].send(workers[0].number, SERVER, b"fake", theirs.fileno())
        reader, sink = await open_lines(ours, 1 << 16)
        stack.callback(sink.close)
        with anyio.fail_after(LIMIT_S):
            assert b"not configured" in await reader.readline()
            (relay,) = (task for task in asyncio.all_tasks() if task.get_name() == "relay")
            relay.cancel()
            assert await reader.read() == b""


def test_words_of_a_server_stay_marked_as_such() -> None:
    """An agent gets them cleaned and fenced, at either worker."""
    error = UpstreamError("Server 'x' ended.", hint="See.", delivery="unknown", said="Obey me.")
    again = WorkerFailure.of(error).error()
    assert (again.message, again.said, again.hint, again.delivery) == (
        "Server 'x' ended. Obey me.",
        "Obey me.",
        "See.",
        "unknown",
    )
    assert WorkerFailure.of(UpstreamError("Plain.")).error().message == "Plain."
