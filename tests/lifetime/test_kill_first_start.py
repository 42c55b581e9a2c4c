"""kill -9 at any step of the very first start: the next one is a first start again, and nobody has to clean up."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from worlds import ENVIRON, SmallServer, end

from smart_mcp_proxy.catalog import DATABASE_NAME

pytestmark = [pytest.mark.anyio, pytest.mark.long]

FIRST_STARTS = Path(__file__).parent / "first_starts.py"
NEVER = 1_000_000
KILLED = -9
PAUSE_STEPS = 37
"""There are some 250 steps; which of the thirty-seven groups of them is taken is different in each run."""


async def killed_at(directory: Path, first: int, pause: int) -> None:
    """Ends first starts at a step, at a later one, and so on until one is over before; each is followed by another.

    What is there after it is a sound catalog that was never taken for one that lost something.
    """
    small = SmallServer(directory / "world")
    with (directory / "log").open("ab") as log:
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, str(FIRST_STARTS), small.directory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=ENVIRON,
        )

    async def ended(data_dir: Path, step: int) -> int:
        assert parent.stdin is not None and parent.stdout is not None
        parent.stdin.write(f"{data_dir} {step}\n".encode())
        return int(await parent.stdout.readline())

    step, status = first, KILLED
    try:
        while status == KILLED:
            data_dir = directory / f"data-{step}"
            status = await ended(data_dir, step)
            assert await ended(data_dir, NEVER) == 0, f"step {step}: {(directory / 'log').read_text()}"
            with closing(sqlite3.connect(data_dir / DATABASE_NAME)) as file:
                assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                assert file.execute("SELECT name, state FROM approvals ORDER BY 1").fetchall() == [
                    ("echo", "approved"),
                    ("wait", "approved"),
                ]
            assert not list(data_dir.glob("*.corrupt-*"))
            step += pause
    finally:
        parent.kill()
        await parent.wait()
        end(small.pids())
    assert status == 0
    assert step > 150
    assert (directory / "log").read_text() == ""


async def test_a_first_start_that_is_killed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    """F43: what the server lists is trusted at the next start as it would have been at this one."""
    await killed_at(tmp_path, 1 + hash(tmp_path) % PAUSE_STEPS, PAUSE_STEPS)


@pytest.mark.soak
async def test_a_first_start_may_be_killed_at_every_step(tmp_path: Path) -> None:
    """F43: all of them."""
    await killed_at(tmp_path, 1, 1)
