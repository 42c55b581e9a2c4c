"""A change of the list of tools runs the operator's command, and the gateway never feels it."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway_fakes import HandClock

from smart_mcp_proxy.gateway.sessions.list_changed_hook import ListChangedHook
from smart_mcp_proxy.io.watchdog import Watchdog

# Marked long: starts programs.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/home/operator", "LC_ALL": "C"}
LIMIT_S = 60.0
PAUSE_S = 5.0


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Both event loops the gateway runs on: each has its own way with processes."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


class Hours(HandClock):
    """Time that passes at once, but no run reaches its limit before the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self.limit = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds == LIMIT_S:
            await self.limit.wait()
            return
        self.pauses.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)


class Letters:
    """A named pipe: what commands write to it, a test reads line by line."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # also for writing: it never ends, no writer waits
        self._bytes = b""

    def close(self) -> None:
        os.close(self._pipe)

    def arrived(self) -> list[str]:
        """What came and was not read yet."""
        with contextlib.suppress(BlockingIOError):  # it is empty
            while True:
                self._bytes += os.read(self._pipe, 65_536)
        *lines, self._bytes = self._bytes.split(b"\n")
        return [line.decode() for line in lines]

    async def next(self, count: int = 1) -> list[str]:
        """The next lines, once so many are there."""
        lines: list[str] = []
        with anyio.fail_after(20):
            while len(lines) < count:
                await anyio.wait_readable(self._pipe)
                lines += self.arrived()
        return lines

    def send(self, line: str) -> None:
        """Writes a line that a command reads."""
        os.write(self._pipe, f"{line}\n".encode())


@pytest.fixture
def letters(tmp_path: Path) -> Iterator[Letters]:
    opened = Letters(tmp_path / "letters")
    yield opened
    opened.close()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Letters]:
    """What a command reads to know that it may end."""
    opened = Letters(tmp_path / "gate")
    yield opened
    opened.close()


class Hooks:
    """Makes hooks that run shell scripts, and closes them."""

    def __init__(self, hours: Hours, folder: Path, watchdog: Watchdog) -> None:
        self.watchdog = watchdog
        self.hours = hours
        self.folder = folder
        self.opened: list[ListChangedHook] = []

    def script(self, text: str, *arguments: str) -> ListChangedHook:
        """A hook whose program is this script; `$L` in it is the pipe of letters, `$G` the gate."""
        path = self.folder / "notify me"
        path.write_text(f"#!/bin/sh\nL='{self.folder}/letters' G='{self.folder}/gate'\n{text}\n")
        path.chmod(0o700)
        return self.hook([str(path), *arguments])

    def hook(self, argv: list[str], environ: dict[str, str] = ENVIRON) -> ListChangedHook:
        made = ListChangedHook(
            argv, environ, self.watchdog, limit_s=LIMIT_S, pause_s=PAUSE_S, clock=self.hours, sleep=self.hours.sleep
        )
        self.opened.append(made)
        return made


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[Hooks]:
    async with Watchdog() as watchdog:
        made = Hooks(Hours(), tmp_path, watchdog)
        yield made
        for hook in made.opened:
            await hook.close()


async def idle() -> None:
    """Returns when no command runs or is due any more."""
    tasks = {task for task in asyncio.all_tasks() if task.get_name() == "list-changed command"}
    with anyio.fail_after(20):
        await asyncio.gather(*tasks)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends while it is read
        return False


async def dead(*pids: int) -> None:
    """Returns when none of them runs."""
    with anyio.fail_after(20):
        while any(map(is_alive, pids)):
            await anyio.lowlevel.checkpoint()


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records if record.name == "mcpproxy.hook"]


async def test_the_arguments_reach_the_program_as_they_are(hooks: Hooks, letters: Letters) -> None:
    """No shell looks at them."""
    arguments = [
        "two  words",
        "it's",
        '"',
        "; exit 7",
        "$HOME",
        "$(id)",
        "`id`",
        "*",
        "~",
        "| cat > /dev/null",
        "",
        "é",
    ]
    hooks.script('for each; do printf "<%s>\\n" "$each"; done > "$L"', *arguments).fire()
    await idle()
    assert letters.arrived() == [f"<{each}>" for each in arguments]


async def test_firing_starts_nothing_by_itself(hooks: Hooks, letters: Letters) -> None:
    """Whoever reports a change goes on before the program is even started."""
    hook = hooks.script('echo run > "$L"')
    hook.fire()
    assert letters.arrived() == []
    assert await letters.next() == ["run"]


async def test_changes_of_one_moment_share_a_run(hooks: Hooks, letters: Letters) -> None:
    """It starts after the last of them, so it misses none."""
    hook = hooks.script('echo run > "$L"')
    for _ in range(100):
        hook.fire()
    await idle()
    assert letters.arrived() == ["run"]


async def test_changes_during_a_run_share_one_more(hooks: Hooks, letters: Letters, gate: Letters) -> None:
    """A burst of a hundred makes two runs, one after the other."""
    hook = hooks.script('echo start > "$L"; read line < "$G"; echo end > "$L"')
    hook.fire()
    lines = await letters.next()
    for _ in range(99):
        hook.fire()
        await anyio.lowlevel.checkpoint()
    assert letters.arrived() == []
    gate.send("go")
    lines += await letters.next(2)
    gate.send("go")
    await idle()
    assert lines + letters.arrived() == ["start", "end", "start", "end"]


async def test_starts_are_a_pause_apart(hooks: Hooks, letters: Letters) -> None:
    """Counted from start to start; a change after a longer rest does not wait."""
    hook = hooks.script('echo run > "$L"')
    for rest_s in (0.0, 0.0, 3.0, PAUSE_S, 1000.0):
        hooks.hours.now_s += rest_s
        hook.fire()
        await idle()
    assert hooks.hours.pauses == [0.0, 5.0, 2.0, 0.0, 0.0]
    assert letters.arrived() == ["run"] * 5


async def test_a_hanging_command_is_killed_with_all_it_started(
    hooks: Hooks, letters: Letters, caplog: pytest.LogCaptureFixture
) -> None:
    """Politeness is not asked for: both ignore SIGTERM. The next change runs it again."""
    hook = hooks.script('trap "" TERM; sleep 600 & echo $$ > "$L"; echo $! > "$L"; wait')
    hook.fire()
    pids = [int(line) for line in await letters.next(2)]
    assert all(map(is_alive, pids))
    hooks.hours.limit.set()
    await idle()
    await dead(*pids)
    assert "was killed: it took longer than 60 s" in caplog.text
    assert levels(caplog) == ["WARNING"]
    hooks.hours.limit.clear()
    hook.fire()
    assert len(await letters.next(2)) == 2


async def test_closing_ends_a_run(hooks: Hooks, letters: Letters, caplog: pytest.LogCaptureFixture) -> None:
    """With all it started, although it runs in a session of its own; that is no failure to report."""
    hook = hooks.script('trap "" TERM; sleep 600 & echo $$ > "$L"; echo $! > "$L"; wait')
    hook.fire()
    leader, grandchild = [int(line) for line in await letters.next(2)]
    assert os.getsid(leader) == os.getsid(grandchild) == leader
    hook.fire()
    with anyio.fail_after(20):
        await hook.close()
    await dead(leader, grandchild)
    assert levels(caplog) == []
    hook.fire()
    await idle()
    assert letters.arrived() == []
    assert repr(hook).endswith("notify me, closed>")


async def test_closing_in_the_middle_of_a_start_leaves_nothing(hooks: Hooks, tmp_path: Path) -> None:
    """At whichever step of it: neither the program nor what that could start in the meantime."""
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    with contextlib.closing(os.fdopen(held, "rb", buffering=0)) as pipe:
        for steps in range(16):
            hook = hooks.script(f"exec 3> '{tmp_path}/held'; sleep 600 & wait")
            hook.fire()
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            with anyio.fail_after(20):
                await hook.close()
        with anyio.fail_after(20):
            while pipe.read(1) is None:  # not yet at its end: somebody holds it
                await anyio.lowlevel.checkpoint()


async def test_closing_does_not_wait_for_a_pause(hooks: Hooks, letters: Letters) -> None:
    """A run that is due is left out."""
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    hooks.hours.sleep = sleep  # type: ignore[method-assign]
    hook = hooks.script('echo run > "$L"')
    hook.fire()
    with anyio.fail_after(20):
        await waiting.wait()
        await hook.close()
    assert letters.arrived() == []


async def test_what_a_command_leaves_behind_ends_with_it(hooks: Hooks, letters: Letters) -> None:
    """Or every change would add a process."""
    hook = hooks.script('sleep 600 & echo $! > "$L"')
    hook.fire()
    await idle()
    await dead(*map(int, letters.arrived()))


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["no-such-program"], "the command 'no-such-program' cannot be started: No such file or directory"),
        (["/"], "the command '/' cannot be started: Permission denied"),
        (["sh", "-c", "exit 3"], "the command 'sh' failed with exit code 3"),
        (["sh", "-c", "kill -9 $$"], "the command 'sh' was ended by signal 9"),
    ],
)
async def test_a_failure_is_one_warning_until_it_changes(
    hooks: Hooks, caplog: pytest.LogCaptureFixture, argv: list[str], reason: str
) -> None:
    """It names program, reason and setting; the arguments, which may hold secrets, it does not show."""
    caplog.set_level("DEBUG", "mcpproxy.hook")
    hook = hooks.hook(argv)
    for _ in range(3):
        hook.fire()
        await idle()
    assert levels(caplog) == ["WARNING", "DEBUG", "DEBUG"]
    assert caplog.messages[0] == f"{reason}; check MCPPROXY_LIST_CHANGED_EXEC"


async def test_a_failure_after_a_success_is_news_again(
    hooks: Hooks, letters: Letters, gate: Letters, caplog: pytest.LogCaptureFixture
) -> None:
    """And so is one of another kind."""
    caplog.set_level("DEBUG", "mcpproxy.hook")
    hook = hooks.script('read code < "$G"; exit "$code"')
    for code in (1, 2, 0, 1):
        gate.send(str(code))
        hook.fire()
        await idle()
    (hooks.folder / "notify me").unlink()
    hook.fire()
    await idle()
    assert levels(caplog) == ["WARNING", "DEBUG", "WARNING", "WARNING"]
    assert "cannot be started" in caplog.messages[-1]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes cannot be found by their environment")
async def test_a_gateway_that_is_killed_while_it_starts_a_run_leaves_none(
    tmp_path: Path, letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is there, the gateway has not heard so, and its watchdog is the one that is left."""
    start, is_released = asyncio.create_subprocess_exec, asyncio.Event()
    begun: list[asyncio.subprocess.Process] = []

    async def start_unheard(*argv: str, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*argv, **options)
        if argv[0] == str(tmp_path / "notify me"):
            begun.append(process)
            await is_released.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_unheard)
    async with Watchdog() as watchdog:
        hooks = Hooks(Hours(), tmp_path, watchdog)
        hooks.script('echo begun > "$L"\nsleep 600').fire()
        assert await letters.next() == ["begun"]
    try:
        with anyio.fail_after(20):
            assert await begun[0].wait() == -signal.SIGKILL
    finally:
        is_released.set()
        await hooks.opened[0].close()


async def test_the_environment_is_what_servers_inherit(
    hooks: Hooks, letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither our settings nor our tokens, in whichever way we have them."""
    monkeypatch.setenv("MCPPROXY_CANARY", "canary")
    environ = ENVIRON | {"MCPPROXY_AUTH_TOKEN": "canary", "OPENAI_API_KEY": "canary", "PYTHONPATH": "canary"}
    hooks.hook(["sh", "-c", f"env > '{letters.path}'"], environ).fire()
    await idle()
    lines = letters.arrived()
    seen = dict(line.partition("=")[::2] for line in lines)
    assert {name: seen[name] for name in ENVIRON} == ENVIRON
    mark = {"SMART_MCP_PROXY_START"}  # every server carries one, too
    assert seen.keys() - ENVIRON.keys() - mark <= {"PWD", "SHLVL", "OLDPWD", "_"}  # of the shell itself
    assert "canary" not in "".join(lines)


async def test_what_it_prints_goes_nowhere(hooks: Hooks, letters: Letters, capfd: pytest.CaptureFixture[str]) -> None:
    """Our stdout belongs to the protocol."""
    hooks.script('echo loud; echo loud >&2; echo end > "$L"').fire()
    assert await letters.next() == ["end"]
    await idle()
    assert tuple(capfd.readouterr()) == ("", "")
