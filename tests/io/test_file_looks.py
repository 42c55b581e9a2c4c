"""Waiting until a file changes: told once it does, by a thread that sleeps while nobody waits."""

import asyncio
import threading
from pathlib import Path

import pytest

from smart_mcp_proxy.io import file_looks as looks
from smart_mcp_proxy.io.file_looks import FileLooks

pytestmark = pytest.mark.anyio

LIMIT_S = 10


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "LOOK_S", 0.005)


async def test_who_waits_is_told_of_the_change(tmp_path: Path) -> None:
    """Each of several, with what is there now; the others go on waiting."""
    own, files = FileLooks(), [tmp_path / "one", tmp_path / "two"]
    waiting = [asyncio.ensure_future(own.wait(path.exists, False)) for path in files]
    files[0].touch()
    async with asyncio.timeout(LIMIT_S):
        assert await waiting[0] is True
    assert not waiting[1].done()
    files[1].touch()
    async with asyncio.timeout(LIMIT_S):
        assert await waiting[1] is True


async def test_what_has_changed_already_is_told_at_the_next_look(tmp_path: Path) -> None:
    """And a wait that is limited ends with what was known."""
    own = FileLooks()
    async with asyncio.timeout(LIMIT_S):
        assert await own.wait(lambda: 2, 1) == 2
        assert await own.wait(lambda: 2, 2, 0.02) == 2


async def test_nothing_is_looked_at_when_nobody_waits(tmp_path: Path) -> None:
    """The thread is kept, and so is a wait after one that was given up."""
    own, seen = FileLooks(), []

    def stamp() -> int:
        seen.append(threading.current_thread().name)
        return 1

    given_up = asyncio.ensure_future(own.wait(stamp, 1))
    async with asyncio.timeout(LIMIT_S):
        while len(seen) < 3:
            await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        await own.wait(lambda: 1, 0)  # the look under way when it was given up is over
        count = len(seen)
        for _ in range(3):
            await own.wait(lambda: 1, 0)
    assert len(seen) == count
    assert set(seen) == {"file looks"}
    assert repr(own) == "<FileLooks for 0>"
