"""One server kept connected, and all of them together."""

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from upstream_fakes import fake_config

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.telemetry import configure_logging
from smart_mcp_proxy.upstream import Connector, Fleet, Upstream
from smart_mcp_proxy.upstream.protocol.session import OnEvent, Revived

pytestmark = pytest.mark.anyio

State = ServerState


class Watch:
    """What was reported, and a way to wait for it."""

    def __init__(self) -> None:
        self.causes: list[tuple[State, str]] = []
        self.states: dict[str, list[State]] = {}
        self.tools_changed: list[str] = []
        self._news = asyncio.Event()

    def changed(self, status: ServerStatus) -> None:
        self.states.setdefault(status.name, []).append(status.state)
        self.causes.append((status.state, status.cause))
        self._news.set()

    def told_of_tools(self, name: str) -> None:
        self.tools_changed.append(name)
        self._news.set()

    async def until(self, happened: Callable[[], bool]) -> None:
        with anyio.fail_after(10):
            while not happened():
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def watch() -> Watch:
    """Told of everything."""
    return Watch()


@pytest.fixture
async def keep(watch: Watch, dialer: Connector) -> AsyncIterator[Any]:
    """Makes supervisors, stopped at the end of the test."""
    kept: list[Upstream] = []

    def make(config: ServerConfig | None = None, **changes: Any) -> Upstream:
        values: dict[str, Any] = {
            "environ": dict(os.environ),
            "on_change": watch.changed,
            "on_tools_changed": watch.told_of_tools,
            "open_session": dialer,
            "start_gate": asyncio.Semaphore(4),
            "rng": random.Random(1),
        }
        upstream = Upstream(config or fake_config(), **(values | changes))
        kept.append(upstream)
        return upstream

    yield make
    for upstream in kept:
        await upstream.stop()


async def call(upstream: Upstream, name: str, **options: Any) -> Any:
    """The text of a tool's first content block."""
    text = (await upstream.request("tools/call", {"name": name, "arguments": {}}, **options)).text
    return json.loads(text)["content"][0]["text"]


async def test_a_call_while_connecting_waits_for_readiness(keep, watch):
    """The first call after a start need not be lucky."""
    upstream = keep()
    await upstream.start()
    assert upstream.status.state is State.CONNECTING
    assert await call(upstream, "echo") == "{}"
    assert watch.states["fake"] == [State.CONNECTING, State.READY]
    assert watch.tools_changed == ["fake"]
    status = upstream.status
    assert (status.era, status.protocol_version, status.server_info) == ("handshake", "2025-11-25", "fake 1")


async def test_a_call_that_waits_for_readiness_keeps_its_limit(keep):
    """And nothing is sent afterwards."""
    upstream = keep(fake_config("mute"))
    await upstream.start()
    with anyio.fail_after(20), pytest.raises(UpstreamError, match=r"not ready \(connecting\)") as caught:
        await call(upstream, "echo", timeout_s=0.1)
    assert caught.value.delivery == "not_sent"


async def test_a_killed_server_comes_back(keep, watch):
    """The call under way fails as unknown, the next connection is counted, and tools are listed anew."""
    upstream = keep()
    await upstream.start()
    pid = int(await call(upstream, "pid"))
    hanging = asyncio.ensure_future(call(upstream, "hang"))
    await call(upstream, "echo")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(UpstreamError, match="ended with signal 9") as caught:
        await hanging
    assert caught.value.delivery == "unknown"
    await watch.until(lambda: watch.states["fake"].count(State.READY) == 2)
    assert watch.states["fake"] == [State.CONNECTING, State.READY, State.ERROR, State.CONNECTING, State.READY]
    assert int(await call(upstream, "pid")) != pid
    assert upstream.status.restarts == 1
    assert watch.tools_changed == ["fake", "fake"]


class Patient(random.Random):
    """Makes every pause before a new try longer than any test."""

    def uniform(self, a: float, b: float) -> float:
        return 1e6


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("mode", ["handshake", "modern"])
async def test_a_call_that_finds_its_server_gone_waits_for_it_to_be_back(keep, watch, mode, end):
    """Some programs end after each answer; nothing was sent yet, and calls that come together share the start."""
    upstream = keep(fake_config(mode), rng=Patient())
    await upstream.start()
    for turn in range(1, 4):
        os.kill(int(await call(upstream, "pid")), end)
        await watch.until(lambda turn=turn: watch.states["fake"].count(State.ERROR) == turn)
        with anyio.fail_after(20):
            assert await asyncio.gather(*(call(upstream, "echo") for _ in range(3))) == ["{}"] * 3
    assert upstream.status.restarts == 3


async def test_a_server_that_does_not_come_back_is_waited_for_once(keep, watch, tmp_path):
    """Its next call fails at once, and lists never bring a try forward."""
    command = tmp_path / "server"
    command.write_text(f"#!/bin/sh\nexec '{fake_config().command}' -S -E '{fake_config().args[2]}' handshake\n")
    command.chmod(0o755)
    upstream = keep(fake_config(command=str(command), args=()), rng=Patient())
    await upstream.start()
    pid = int(await call(upstream, "pid"))
    command.write_text("#!/bin/sh\nexit 3\n")
    os.kill(pid, signal.SIGKILL)
    await watch.until(lambda: State.ERROR in watch.states["fake"])
    with pytest.raises(UpstreamError, match="signal 9"):
        await upstream.list_tools()
    with anyio.fail_after(20), pytest.raises(UpstreamError, match="exit code 3") as caught:
        await call(upstream, "echo")
    assert caught.value.delivery == "not_sent"
    states = list(watch.states["fake"])
    with pytest.raises(UpstreamError, match="exit code 3"):
        await call(upstream, "echo")
    assert watch.states["fake"] == states == [State.CONNECTING, State.READY, State.ERROR, State.CONNECTING, State.ERROR]


async def test_a_known_server_that_ends_is_told_what_it_lacks(keep, watch):
    """Before anything else: it may not say so itself."""
    dead = fake_config("dead")
    upstream = keep(replace(dead, args=(*dead.args, "@modelcontextprotocol/server-brave-search")))
    await upstream.start()
    await watch.until(lambda: State.ERROR in watch.states["fake"])
    assert upstream.status.hint.startswith("It is known to need BRAVE_API_KEY in its environment. See what it printed")


async def test_a_server_that_ends_at_once_is_tried_again_and_again(keep, watch):
    """With its reason in the status, its output in the logs, and calls failing at once."""
    upstream = keep(fake_config("dead"))
    await upstream.start()
    await watch.until(lambda: watch.states["fake"].count(State.ERROR) == 2)
    assert upstream.status.error == "Server 'fake' ended with exit code 3. It wrote: cannot start: no licence"
    assert "mcpproxy server logs fake" in upstream.status.hint
    assert upstream.logs(1) == ["cannot start: no licence"]
    with anyio.fail_after(20), pytest.raises(UpstreamError, match=r"not ready \(error\)") as caught:
        await call(upstream, "echo")
    assert caught.value.delivery == "not_sent"


async def test_what_a_server_wrote_last_is_shown_without_secrets_or_terminal_commands(keep, watch):
    """On one line of a bounded length; empty lines at the end do not count, and what it wrote is in its log whole."""
    program = (
        "import os, sys\n"
        "sys.stderr.write('first\\n' + '\\x1b[31mbad key ' + os.environ['KEY'] + '\\r' + 'x' * 900 + '\\n \\n')\n"
        "sys.exit(1)"
    )
    config = fake_config(args=("-S", "-c", program), env={"KEY": "hunter22hunter22"})
    upstream = keep(config)
    await upstream.start()
    await watch.until(lambda: State.ERROR in watch.states["fake"])
    beginning = "Server 'fake' ended with exit code 1. It wrote: bad key [hidden]\\rxxx"
    assert upstream.status.error.startswith(beginning)
    assert len(upstream.status.error) < 300


async def test_the_state_of_a_crashed_program_quotes_the_reason_and_not_the_last_line(keep, watch):
    """Node writes its version last."""
    written = "Error: ACME_KEY is missing\n    at main (/app/cli.js:34:15)\n\nNode.js v24.21.0\n"
    upstream = keep(fake_config(args=("-S", "-c", f"import sys; sys.stderr.write({written!r}); sys.exit(1)")))
    await upstream.start()
    await watch.until(lambda: State.ERROR in watch.states["fake"])
    assert upstream.status.error == "Server 'fake' ended with exit code 1. It wrote: Error: ACME_KEY is missing"


async def test_usage_on_stdout_explains_the_end(keep, watch):
    """Some programs write it there and not to stderr."""
    code = "import sys; print('usage: prog --token TOKEN'); sys.exit(2)"
    upstream = keep(fake_config(args=("-S", "-c", code)))
    await upstream.start()
    await watch.until(lambda: State.ERROR in watch.states["fake"])
    assert upstream.status.error == "Server 'fake' ended with exit code 2. It wrote: usage: prog --token TOKEN"


async def test_the_cause_stays_visible_while_a_server_is_tried_again(keep, watch):
    """Of one that fails at once people would see `connecting` alone; a new start and success clear it."""
    upstream = keep(fake_config("dead"))
    await upstream.start()
    await watch.until(lambda: watch.states["fake"].count(State.ERROR) == 2)
    why = "Server 'fake' ended with exit code 3. It wrote: cannot start: no licence"
    assert watch.causes[:3] == [
        (State.CONNECTING, ""),
        (State.ERROR, why),
        (State.CONNECTING, f"The last try failed: {why}"),
    ]
    await upstream.stop()
    upstream.config = fake_config()
    await upstream.start()
    assert await call(upstream, "echo") == "{}"
    assert watch.causes[-2:] == [(State.CONNECTING, ""), (State.READY, "")]


async def test_a_failure_is_logged_once_although_the_last_words_differ(keep, watch, caplog):
    """Many servers write the time or their process id."""
    program = "import os, sys; sys.stderr.write(f'no luck, {os.getpid()}'); sys.exit(1)"
    upstream = keep(fake_config(args=("-S", "-c", program)))
    await upstream.start()
    await watch.until(lambda: watch.states["fake"].count(State.ERROR) == 2)
    told = [record for record in caplog.records if "ended with exit code 1" in record.getMessage()]
    assert [record.levelname for record in told].count("WARNING") == 1


async def test_what_was_written_on_an_earlier_connection_explains_no_later_failure(keep, watch, tmp_path):
    """A command that vanished has written nothing."""
    command = tmp_path / "server"
    command.write_text('#!/bin/sh\necho no licence >&2; rm -- "$0"; exit 3\n')
    command.chmod(0o755)
    upstream = keep(fake_config(command=str(command), args=()))
    await upstream.start()
    await watch.until(lambda: watch.states["fake"].count(State.ERROR) == 2)
    assert "not found" in upstream.status.error
    assert "licence" not in upstream.status.error
    assert "no licence" in upstream.logs(10)


async def test_a_missing_command_that_appears_later_is_found(keep, watch, tmp_path):
    """Without a restart of the gateway."""
    command = tmp_path / "late-server"
    upstream = keep(fake_config(command=str(command), args=("handshake",)))
    await upstream.start()
    await watch.until(lambda: State.ERROR in watch.states["fake"])
    assert "not found" in upstream.status.error
    good = fake_config()
    script = f'#!/bin/sh\nexec "{good.command}" -S -E "{good.args[2]}" "$1"\n'
    command.write_text(script)
    command.chmod(0o755)
    await watch.until(lambda: State.READY in watch.states["fake"])


async def test_an_unset_variable_waits_for_the_user(keep, watch):
    """No retry can help; the variable is named."""
    upstream = keep(fake_config(env={"TOKEN": "${MISSING_TOKEN}"}))
    await upstream.start()
    await watch.until(lambda: State.NEEDS_ENV in watch.states["fake"])
    assert "MISSING_TOKEN" in upstream.status.error
    with pytest.raises(UpstreamError, match="MISSING_TOKEN"):
        await call(upstream, "echo")
    await upstream.stop()
    assert upstream.status.state is State.DISCONNECTED


async def test_a_disabled_server_is_not_started(keep, watch):
    """A call says so, with the command that changes it."""
    upstream = keep(fake_config(disabled=True))
    await upstream.start()
    assert watch.states["fake"] == [State.DISABLED]
    with pytest.raises(UpstreamError, match="mcpproxy server enable"):
        await call(upstream, "echo")


async def test_a_server_that_wants_a_sign_in_is_not_stormed(keep, watch):
    """One try, then a long pause."""
    tries = 0

    async def refuse(config: ServerConfig, *, environ: Mapping[str, str], era: Any, on_event: OnEvent) -> Any:
        nonlocal tries
        tries += 1
        raise UpstreamAuthError("Server 'fake' answered with HTTP 401.", hint="Sign in.")

    upstream = keep(open_session=refuse)
    await upstream.start()
    await watch.until(lambda: State.NEEDS_AUTH in watch.states["fake"])
    with pytest.raises(UpstreamAuthError, match="Sign in"):
        await call(upstream, "echo")
    assert tries == 1


@pytest.mark.parametrize(
    ("fault", "advice"),
    [(ImportError("no module of that name"), "restart the gateway"), (OSError(24, "Too many open files"), "its log")],
)
async def test_a_fault_of_the_gateways_own_is_told_and_the_server_is_tried_again(keep, watch, caplog, fault, advice):
    """Else it would be `connecting` for good: an upgrade replaces files, and descriptors run out for a moment."""
    opened = iter([fault, fault, RefusingOnce("modern")])

    async def open_session(config: ServerConfig, *, environ: Mapping[str, str], era: Any, on_event: OnEvent) -> Any:
        if isinstance(met := next(opened), Exception):
            raise met
        return met

    upstream = keep(open_session=open_session)
    await upstream.start()
    for tries in (1, 2):
        await watch.until(lambda: watch.states["fake"].count(State.ERROR) == tries)  # noqa: B023
        assert str(fault) in upstream.status.error
        assert advice in upstream.status.hint
        upstream.try_again()
    assert await upstream.ready(5)
    told = [record for record in caplog.records if str(fault) in record.message and record.levelname == "ERROR"]
    assert len(told) == 1
    assert told[0].exc_info


async def test_a_fault_of_the_gateways_own_shows_no_secret(keep, watch, tmp_path):
    """Such an error may quote what it was given."""

    async def open_session(config: ServerConfig, *, environ: Mapping[str, str], era: Any, on_event: OnEvent) -> Any:
        raise ValueError(f"invalid value {config.env['KEY']!r}")

    log = tmp_path / "log"
    configure_logging("INFO", file=log)
    config = replace(fake_config(), env={"KEY": "${TOKEN}"})
    upstream = keep(config, open_session=open_session, environ={**os.environ, "TOKEN": "s3cr3t-t0ken-of-4cme"})
    await upstream.start()
    await watch.until(lambda: State.ERROR in watch.states["fake"])
    assert "invalid value" in upstream.status.error
    written = log.read_text("utf-8")
    assert "ValueError: invalid value" in written
    assert "s3cr3t" not in upstream.status.error + written


class SigningOut:
    """A session whose server asks for a sign-in in the middle of it."""

    era = "modern"
    protocol_version = "2026-07-28"
    server_info = run = ""
    folders = ()
    capabilities: Mapping[str, Any] = {"tools": {}}

    def __init__(self) -> None:
        self.is_closed = asyncio.Event()

    async def request(self, method: str, params: Mapping[str, Any], **options: Any) -> RawResult:
        raise UpstreamAuthError("Server 'fake' answered with HTTP 401.", hint="Sign in.", delivery="unknown")

    async def notify(self, method: str, params: Mapping[str, Any]) -> None: ...

    async def close(self) -> None:
        self.is_closed.set()

    async def wait_closed(self) -> UpstreamError:
        await self.is_closed.wait()
        return UpstreamError("Server 'fake' was stopped.")


class RefusingOnce(SigningOut):
    """A session whose server refuses one tool, or one moment, with 401, and nothing else."""

    def __init__(self, era: str) -> None:
        super().__init__()
        self.era = era
        self.asked: list[str] = []
        self.was_checked = asyncio.Event()

    async def request(self, method: str, params: Mapping[str, Any], **options: Any) -> RawResult:
        self.asked.append(method)
        if method == "tools/call":
            return await super().request(method, params, **options)
        self.was_checked.set()
        return RawResult(b"{}")


@pytest.mark.parametrize(("era", "check"), [("handshake", "ping"), ("modern", "server/discover")])
async def test_a_401_to_one_call_takes_no_other_calls_with_it(keep, watch, era, check):
    """The server is asked whether it refuses all: while it does not, it stays ready, and the caller alone is told."""
    session = RefusingOnce(era)

    async def open_session(config: ServerConfig, *, environ: Mapping[str, str], era: Any, on_event: OnEvent) -> Any:
        return session

    upstream = keep(open_session=open_session)
    await upstream.start()
    assert await upstream.ready(5)
    for count in (1, 2):
        with pytest.raises(UpstreamAuthError, match="HTTP 401"):
            await call(upstream, "echo")
        with anyio.fail_after(20):
            await session.was_checked.wait()
        session.was_checked.clear()
        await anyio.wait_all_tasks_blocked()
        assert session.asked == ["tools/call", check] * count
    assert watch.states["fake"] == [State.CONNECTING, State.READY]
    assert not session.is_closed.is_set()


async def test_a_server_that_let_us_in_before_is_tried_again_soon_after_a_401(keep, watch):
    """A configured token that is refused for a moment costs seconds, not a minute."""
    links = [SigningOut(), RefusingOnce("modern")]
    opened = iter(links)

    async def open_session(config: ServerConfig, *, environ: Mapping[str, str], era: Any, on_event: OnEvent) -> Any:
        return next(opened)

    upstream = keep(open_session=open_session)
    await upstream.start()
    assert await upstream.ready(5)
    with pytest.raises(UpstreamAuthError, match="HTTP 401"):
        await call(upstream, "echo")
    await watch.until(lambda: watch.states["fake"].count(State.READY) == 2)
    assert State.NEEDS_AUTH in watch.states["fake"]


async def test_a_server_that_speaks_again_after_a_silence_is_announced_as_ready(keep, watch):
    """Whoever held back calls because of the silence begins anew."""
    heard: list[OnEvent] = []
    session = RefusingOnce("modern")

    async def open_session(config: ServerConfig, *, environ: Mapping[str, str], era: Any, on_event: OnEvent) -> Any:
        heard.append(on_event)
        return session

    upstream = keep(open_session=open_session)
    await upstream.start()
    assert await upstream.ready(5)
    heard[0](Revived())
    assert watch.states["fake"] == [State.CONNECTING, State.READY, State.READY]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="stopping is seen in /proc only")
async def test_a_stopped_child_that_goes_on_is_in_use_again_at_once(keep, watch):
    """Calls time out while it is stopped; its next word counts, and not the pause that was meant for a failing one."""
    upstream = keep(fake_config())
    await upstream.start()
    assert await upstream.ready(10)
    pid = int(await call(upstream, "pid"))
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(UpstreamTimeoutError):
        await call(upstream, "echo", timeout_s=0.1)
    os.kill(pid, signal.SIGCONT)
    await watch.until(lambda: watch.states["fake"].count(State.READY) == 2)
    assert State.ERROR not in watch.states["fake"]
    assert int(await call(upstream, "pid")) == pid


@pytest.mark.long  # starts and ends processes, seconds of it
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="stopping is seen in /proc only")
async def test_a_child_that_stays_stopped_is_replaced(keep, watch):
    """Not after the time that a busy one gets: a stopped one does not work on anything."""
    upstream = keep(fake_config(limits=ServerLimits(init_s=1000, list_s=4, call_s=4)))
    await upstream.start()
    assert await upstream.ready(10)
    pid = int(await call(upstream, "pid"))
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(UpstreamTimeoutError):
        await call(upstream, "echo", timeout_s=0.1)
    await watch.until(lambda: watch.states["fake"].count(State.READY) == 2)
    assert int(await call(upstream, "pid")) != pid


@pytest.mark.parametrize("ask", [lambda one: call(one, "echo"), lambda one: one.list_tools()], ids=["call", "list"])
async def test_a_server_that_asks_for_a_sign_in_later_needs_one_from_then_on(keep, watch, ask):
    """Its state says so, its session is closed, and later calls are told at once."""
    session = SigningOut()
    opened = iter([session])

    async def open_session(config: ServerConfig, *, environ: Mapping[str, str], era: Any, on_event: OnEvent) -> Any:
        for one in opened:
            return one
        raise UpstreamAuthError("Server 'fake' answered with HTTP 401.", hint="Sign in.")

    upstream = keep(open_session=open_session)
    await upstream.start()
    assert await upstream.ready(5)
    with pytest.raises(UpstreamAuthError, match="HTTP 401") as caught:
        await ask(upstream)
    assert caught.value.delivery == "unknown"
    await watch.until(lambda: State.NEEDS_AUTH in watch.states["fake"])
    assert watch.states["fake"][:3] == [State.CONNECTING, State.READY, State.NEEDS_AUTH]
    assert (upstream.status.error, upstream.status.hint) == ("Server 'fake' answered with HTTP 401.", "Sign in.")
    assert session.is_closed.is_set()
    with pytest.raises(UpstreamAuthError, match="not ready") as caught:
        await call(upstream, "echo")
    assert caught.value.delivery == "not_sent"


async def test_tools_are_listed_leniently(keep):
    """All pages; the odd one is left out and named."""
    upstream = keep()
    await upstream.start()
    listing = await upstream.list_tools()
    assert [definition["name"] for definition in listing.definitions] == ["echo", "second"]
    assert listing.problems == ("Server 'fake': tool 'bad' is left out, its inputSchema is null instead of an object.",)


async def test_a_server_whose_pages_go_round_is_listed(keep):
    """The listing ends."""
    upstream = keep(fake_config("loop"))
    await upstream.start()
    listing = await upstream.list_tools()
    assert len(listing.definitions) == 1


async def test_a_changed_tool_list_is_passed_on(keep, watch):
    """By the server's name."""
    upstream = keep()
    await upstream.start()
    await call(upstream, "change")
    assert watch.tools_changed == ["fake", "fake"]


async def test_stopping_fails_calls_with_an_error(keep):
    """Never with the supervisor's own cancellation."""
    upstream = keep()
    await upstream.start()
    hanging = asyncio.ensure_future(call(upstream, "hang"))
    await call(upstream, "echo")
    await upstream.stop()
    with pytest.raises(UpstreamError, match="was stopped"):
        await hanging
    assert upstream.status.state is State.DISCONNECTED


async def test_a_restart_makes_a_new_process(keep):
    """And leaves the old one behind."""
    upstream = keep()
    await upstream.start()
    before = await call(upstream, "pid")
    await upstream.restart()
    assert await call(upstream, "pid") != before


async def test_listeners_that_fail_stop_nothing(keep):
    """Their failure is theirs."""

    def fail(_: object) -> None:
        raise ValueError("listener is broken")

    upstream = keep(on_change=fail, on_tools_changed=fail)
    await upstream.start()
    assert await call(upstream, "echo") == "{}"


async def test_secrets_appear_neither_in_logs_nor_in_errors(keep, watch):
    """Also when the server prints them itself."""
    code = "import os,sys; sys.stderr.write('token is ' + os.environ['TOKEN'] + '\\n'); sys.exit(1)"
    upstream = keep(
        fake_config(args=("-S", "-E", "-c", code), env={"TOKEN": "${FAKE_TOKEN}"}),
        environ={**os.environ, "FAKE_TOKEN": "s3cr3t-value"},
    )
    await upstream.start()
    await watch.until(lambda: State.ERROR in watch.states["fake"])
    assert set(upstream.logs(5)) == {"token is [hidden]"}


@pytest.fixture
async def new_fleet(watch: Watch, dialer: Connector) -> Callable[..., Fleet]:
    """Makes empty fleets."""
    return partial(
        Fleet,
        environ=dict(os.environ),
        on_change=watch.changed,
        on_tools_changed=watch.told_of_tools,
        open_session=dialer,
    )


@pytest.fixture
async def fleet(new_fleet: Callable[..., Fleet]) -> AsyncIterator[Fleet]:
    """An empty fleet, closed at the end of the test."""
    fleet = new_fleet()
    yield fleet
    await fleet.close()


def configs(*names: str, **changes: Any) -> dict[str, ServerConfig]:
    """Configured servers of these names."""
    return {name: fake_config(name=name, **changes) for name in names}


async def test_applying_restarts_only_what_changed(fleet, watch):
    """The others keep their processes."""
    await fleet.apply(configs("a", "b", "c"))
    assert not watch.states
    await fleet.start()
    pids = {upstream.name: await call(upstream, "pid") for upstream in fleet}
    await fleet.apply(configs("a") | configs("b", env={"X": "1"}) | configs("d"))
    assert sorted(upstream.name for upstream in fleet) == ["a", "b", "d"]
    assert fleet.upstreams.get("c") is None
    assert await call(fleet.upstreams.get("a"), "pid") == pids["a"]
    assert await call(fleet.upstreams.get("b"), "pid") != pids["b"]
    assert await call(fleet.upstreams.get("d"), "echo") == "{}"
    assert watch.states["a"] == [State.CONNECTING, State.READY]


@pytest.mark.long  # a third of a second of processor time
async def test_only_so_many_servers_start_up_at_a_time(watch, dialer, new_fleet):
    """The next begins when one is ready or has failed."""
    running, most = 0, 0

    async def counted(config: ServerConfig, *, environ: Mapping[str, str], era: Any, on_event: OnEvent) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            return await dialer(config, environ=environ, era=era, on_event=on_event)
        finally:
            running -= 1

    fleet = new_fleet(start_parallel=2, open_session=counted)
    await fleet.apply(configs("a", "b", "c", "d") | configs("e", mode="dead"))
    await fleet.start()
    await watch.until(lambda: all(State.READY in watch.states[name] for name in "abcd"))
    assert most == 2
    await fleet.close()


async def test_closing_ends_all_servers_at_once(fleet):
    """Stubborn ones side by side, within the time of one."""
    code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    limits = ServerLimits(init_s=30)
    await fleet.apply(configs("good") | configs("x", "y", "z", args=("-S", "-E", "-c", code), limits=limits))
    await fleet.start()
    await call(fleet.upstreams.get("good"), "echo")
    with anyio.fail_after(30):
        await fleet.close()
    assert {upstream.status.state for upstream in fleet} == {State.DISCONNECTED}


@pytest.mark.long
async def test_three_stubborn_servers_are_ended_in_the_time_of_one(watch, new_fleet):
    """Each is given its grace period, side by side."""
    code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    spent = []
    for names in ("x", "xyz"):
        fleet = new_fleet()
        await fleet.apply(configs(*names, args=("-S", "-E", "-c", code), limits=ServerLimits(init_s=30)))
        await fleet.start()
        await watch.until(lambda names=names: all(State.CONNECTING in watch.states.get(name, []) for name in names))
        began = time.monotonic()
        await fleet.close()
        spent.append(time.monotonic() - began)
    assert spent[1] < 2 * spent[0] + 1, spent


async def test_a_slow_server_delays_no_other(fleet):
    """It runs into its own limit, with a clear error."""
    limits = ServerLimits(init_s=1, call_s=1)
    await fleet.apply(configs("mute", mode="mute", limits=limits) | configs("good"))
    await fleet.start()
    assert await call(fleet.upstreams.get("good"), "echo") == "{}"
    with pytest.raises((UpstreamTimeoutError, UpstreamError), match="not ready"):
        await call(fleet.upstreams.get("mute"), "echo")
