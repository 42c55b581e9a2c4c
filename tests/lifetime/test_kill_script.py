"""The end of a gateway in the middle of a script: no process of it is left, and its agent hears what is known."""

import os
import signal
from pathlib import Path

import pytest
from worlds import Client, SmallServer, connected, error_of, is_alive, until

pytestmark = [pytest.mark.anyio, pytest.mark.long]

ORPHAN_S = 8.0
BUSY = {
    "python": "call_tool('up:wait', {'text': 'begun'})\nwhile True: pass",
    "javascript": "await call_tool('up:wait', {text: 'begun'}); while (true) {}",
}
LANGUAGES = pytest.mark.parametrize("language", ["python", "javascript"])


def descendants(pid: int) -> set[int]:
    """Every process that descends from `pid`."""
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended while it was looked at
            continue
        if parent == pid:
            found |= {int(stat.parent.name), *descendants(int(stat.parent.name))}
    return found


async def computing(client: Client, small: SmallServer, language: str) -> tuple[int, set[int]]:
    """A script that has made its call and computes without end; its request, and all processes of the gateway."""
    request_id = client.call("code_execution", {"code": BUSY[language], "language": language})
    await until(lambda: "begun" in small.waiting())
    small.let_go("begun")
    return request_id, descendants(client.process.pid)


@LANGUAGES
async def test_kill_leaves_no_script_behind(tmp_path: Path, language: str) -> None:
    """The gateway cannot end it any more; the watchdog does, though the script never looks at its pipes."""
    small = SmallServer(tmp_path / "world")
    async with connected(tmp_path / "data", small, CODE="both") as client:
        _, pids = await computing(client, small, language)
        assert len(pids) >= 3  # the server, the watchdog, the script
        os.kill(client.process.pid, signal.SIGKILL)
        await until(lambda: not any(map(is_alive, pids)), ORPHAN_S)


@pytest.mark.parametrize("language", ["python", pytest.param("javascript", marks=pytest.mark.soak)])
async def test_a_stop_gives_a_script_up_and_says_so(tmp_path: Path, language: str) -> None:
    """After the time that every call gets; its call was made, so it may not simply be run again.

    The call is given up in the same way for both languages, and each script computes for those ten seconds.
    """
    small = SmallServer(tmp_path / "world")
    async with connected(tmp_path / "data", small, CODE="both") as client:
        request_id, pids = await computing(client, small, language)
        client.process.send_signal(signal.SIGTERM)
        error = error_of(await client.result(request_id))
        assert (error["code"], error["delivery"]) == ("shutting_down", "unknown")
        assert (await client.ended(8.0))[0] == 0
        await until(lambda: not any(map(is_alive, pids)), ORPHAN_S)
    assert "Traceback" not in (tmp_path / "log").read_text()
