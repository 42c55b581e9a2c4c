"""Workers that are started and replaced: what their children inherit, and what becomes of failed starts."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from test_workers import Served, message, served, sessions_of_both
from worlds import DEADLINE_S, end, is_replaced, started, until

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


WHOLE = '{"mcpServers": {}}'
CHANGED = """
import asyncio, errno, os, sys
from smart_mcp_proxy.cli import main
from smart_mcp_proxy.cli.commands.operate import workers

os.environ.pop("MCPPROXY_CONFIG_JSON")
refusing = sys.argv.pop(1)
start, starts = asyncio.create_subprocess_exec, []

async def changed(*words, **more):
    workers._HEALTHY_S = 0.0 if len(starts) < 2 else 1000.0
    starts.append(words)
    if os.path.exists(refusing):
        with open(refusing + ".times", "a") as times:
            times.write(".")
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return await start(*words, **more)

workers._PAUSE_S = 0.1
asyncio.create_subprocess_exec = changed
main()
"""
"""A gateway that takes its first two workers for healthy at once, and no others; it starts none while a file is there.

Its argument is the file; the one beside it grows by a byte with each refusal.
"""


@asynccontextmanager
async def _started(tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Such a gateway, with two workers; it has no servers."""
    file, main = tmp_path / "servers.json", ("-c", CHANGED, str(tmp_path / "refusing"))
    file.write_text(WHOLE)
    words = ("--http", "--port", "0", "--workers", "2", "--json")
    async with started(tmp_path / "data", {}, *words, main=main, CONFIG_PATH=str(file)) as process:
        yield process


@asynccontextmanager
async def _serving(tmp_path: Path) -> AsyncIterator[Served]:
    """Such a gateway that has said that it serves."""
    async with _started(tmp_path) as process:
        assert process.stdout is not None
        report = json.loads(await asyncio.wait_for(process.stdout.readline(), DEADLINE_S))
        yield Served(report["url"], process, {})


def _first(gateway: Served) -> int:
    """Process id of worker 0."""
    return next(pid for pid in gateway.workers() if b'"number": 0' in Path(f"/proc/{pid}/cmdline").read_bytes())


def _imports(pid: int) -> bool:
    """Whether a worker has begun to import the gateway, which takes a second."""
    with suppress(OSError):  # it has ended
        return b"/msgspec/" in Path(f"/proc/{pid}/maps").read_bytes()
    return False


async def test_a_replacement_that_cannot_start_is_tried_again(tmp_path: Path) -> None:
    """The system refuses the process, then the file is half saved; the other worker serves on, and a stop is at once.

    The parent says each once. Of a worker that cannot start the next try may be half a minute away.
    """
    log, refusing, file = tmp_path / "log", tmp_path / "refusing", tmp_path / "servers.json"
    async with _serving(tmp_path) as gateway:
        _, kept = await sessions_of_both(gateway.url)

        def lose() -> int:
            victim = _first(gateway)
            os.kill(victim, signal.SIGKILL)
            return victim

        async def is_refused(times: int) -> None:
            counted = refusing.with_name("refusing.times")
            await until(lambda: counted.exists() and counted.stat().st_size >= times)

        async def is_whole_again(victim: int) -> None:
            assert (await kept.post(message("ping", {}))).status_code == 200
            await until(lambda: is_replaced(victim, gateway.workers()))
            assert len(await sessions_of_both(gateway.url)) == 2
            assert (await kept.post(message("ping", {}))).status_code == 200

        refusing.touch()
        victim = lose()
        await is_refused(3)
        assert log.read_text().count("worker 0 cannot be started: Resource temporarily unavailable;") == 1
        refusing.unlink()
        await is_whole_again(victim)

        file.write_text(WHOLE[:-3])
        victim = lose()
        await until(lambda: "worker 0 ended with status 2;" in log.read_text())
        file.write_text(WHOLE)
        await is_whole_again(victim)

        refusing.touch()
        lose()
        await is_refused(6)
        gateway.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(gateway.process.wait(), 15) == 0
    assert log.read_text().count("worker 0 ended with status 2;") == 1
    assert "Traceback" not in log.read_text()


async def test_a_first_process_that_the_system_refuses_is_an_error(tmp_path: Path) -> None:
    """Told as any other, after a few tries."""
    (tmp_path / "refusing").touch()
    async with _started(tmp_path) as process:
        assert process.stdout is not None
        said = json.loads(await asyncio.wait_for(process.stdout.read(), DEADLINE_S))
        assert await process.wait() == 1
    assert said["error"]["message"] == "Workers cannot be started: Resource temporarily unavailable."
    log = (tmp_path / "log").read_text()
    assert "error: Workers cannot be started: Resource temporarily unavailable." in log
    assert "Traceback" not in log


async def test_a_start_that_is_interrupted_ends_without_a_traceback(tmp_path: Path) -> None:
    """Of workers that are still being imported; Ctrl-C has its status all the same."""
    async with _started(tmp_path) as process:
        gateway = Served("", process, {})
        await until(lambda: sum(map(_imports, gateway.workers())) == 2)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 128 + signal.SIGINT
    assert "Traceback" not in (tmp_path / "log").read_text()


HASTY = """
from smart_mcp_proxy.cli import main
from smart_mcp_proxy.cli.commands.operate import workers

workers._BEAT_S = 0.25
main()
"""
"""A gateway that takes a worker for hanging after 3 seconds."""


async def test_a_worker_that_hangs_is_replaced(tmp_path: Path) -> None:
    """Its sessions begin anew; the other worker and its sessions notice nothing."""
    async with served(tmp_path, main=("-c", HASTY)) as gateway:
        lost, kept = await sessions_of_both(gateway.url)
        victim = _first(gateway)
        os.kill(victim, signal.SIGSTOP)
        try:
            await until(lambda: is_replaced(victim, gateway.workers()))
        finally:
            end([victim], "smart_mcp_proxy.cli.commands.operate.worker")
        log = (tmp_path / "log").read_text()
        assert "worker 0 has not answered for 3 s and is ended" in log
        assert (await kept.post(message("ping", {}))).status_code == 200
        assert (await lost.post(message("ping", {}))).status_code == 404
        assert len(await sessions_of_both(gateway.url)) == 2
        assert log.count("is ended") == 1


async def test_a_replacement_reports_a_start_that_was_not_reported(tmp_path: Path) -> None:
    """Worker 0 died before it came to that."""
    async with _started(tmp_path) as process:
        assert process.stdout is not None
        gateway = Served("", process, {})
        await until(lambda: len(gateway.workers()) == 2)
        os.kill(_first(gateway), signal.SIGKILL)
        report = json.loads(await asyncio.wait_for(process.stdout.readline(), DEADLINE_S))
        assert report["servers"] == []


async def test_workers_load_nothing_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a server may write: what it puts there under the name of a module would run with the user's rights."""
    work, mark = tmp_path / "work", tmp_path / "loaded"
    work.mkdir()
    (work / "msgspec.py").write_text(f"open({str(mark)!r}, 'w').close()\nraise ImportError('planted')\n")
    monkeypatch.chdir(work)
    words = ("--http", "--port", "0", "--workers", "2", "--json")
    async with started(tmp_path / "data", {}, *words, main=("-P", "-m", "smart_mcp_proxy")) as process:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), DEADLINE_S)
        assert not mark.exists()
