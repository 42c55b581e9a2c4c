"""kill -9 at any moment of indexing and calls: what was acknowledged is there, and the next start is a clean one."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from worlds import ENVIRON, SmallServer, end, is_alive, until

from smart_mcp_proxy.catalog.store.versions import LATEST_VERSION
from smart_mcp_proxy.gateway.activity.write_ahead_log import FOLDER, find_abandoned_journals, read_journal

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LIFE = Path(__file__).parent / "life.py"
ORPHAN_S = 5.0


class Lives:
    """Gateway processes on one data directory, one after the other.

    Args:
        directory: Of everything.
        parent: Begins them.
    """

    def __init__(self, directory: Path, small: SmallServer, parent: asyncio.subprocess.Process) -> None:
        self._data_dir = directory / "data"
        self._journal = directory / "journal"
        self._world = small
        self._parent = parent
        self._last: int | None = None
        self.obstinate = 0
        """How many processes there were that only SIGKILL ends."""

    async def begin(self) -> int:
        """The id of a new one."""
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.write(b"\n")
        self._last = int(await self._parent.stdout.readline())
        return self._last

    def end(self) -> None:
        """Ends the one that a failed test left: it would hold the pipes of its parent open."""
        if self._last is not None:
            end([self._last])

    async def kill(self, pid: int) -> None:
        """Ends it; nothing it started may be left, nor what that started."""
        self.obstinate += sum(map(is_alive, self._world.pids()))
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not any(map(is_alive, [pid, *self._world.pids()])), ORPHAN_S)
        # A thread that is in a system call ends a moment after its process, and with it the lock.
        journals = list((self._data_dir / FOLDER).glob("*.[01]"))
        await until(lambda: len(find_abandoned_journals(self._data_dir)) == len(journals), ORPHAN_S)

    def facts(self) -> list[dict[str, Any]]:
        """What was acknowledged so far."""
        return [json.loads(line) for line in self._journal.read_text().splitlines()] if self._journal.exists() else []

    def check(self) -> None:
        """The file is sound; it and the journals hold every answer, and it one whole version of the tools."""
        facts = self.facts()
        if not (self._data_dir / "proxy.db").exists():
            assert not facts
            return
        with closing(sqlite3.connect(self._data_dir / "proxy.db")) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            if file.execute("PRAGMA user_version").fetchone()[0] < LATEST_VERSION:
                assert not facts
                return
            on_record = self._on_record(file) + self._in_journals()
            names = [row[0] for row in file.execute("SELECT name FROM tools ORDER BY id")]
        assert {answer for fact in facts for answer in fact.items() if answer[0] != "version"} <= set(on_record)
        numbers = sorted(int(name.removeprefix("tool_")) for name in names if name != "echo")
        stored = numbers[0] if numbers else 0
        assert numbers == list(range(stored, stored + 8)) * bool(numbers), "half a version"
        assert stored >= max((fact["version"] for fact in facts if "version" in fact), default=0)
        assert not list(self._data_dir.glob("*.corrupt-*"))

    def is_recovered(self) -> bool:
        """Whether nothing is left behind in a journal of a dead process."""
        return not find_abandoned_journals(self._data_dir)

    def check_records(self, facts: list[dict[str, Any]]) -> None:
        """Each of these answered searches and calls has exactly one record in the file."""
        with closing(sqlite3.connect(self._data_dir / "proxy.db")) as file:
            on_record = Counter(self._on_record(file))
        for fact in facts:
            for answer in fact.items():
                assert answer[0] == "version" or on_record[answer] == 1, answer

    @staticmethod
    def _on_record(file: sqlite3.Connection) -> list[tuple[str, str]]:
        rows = file.execute("SELECT kind, subject, detail FROM activity WHERE kind IN ('search', 'call')")
        return [(kind, subject if kind == "search" else json.loads(detail)["reason"]) for kind, subject, detail in rows]

    def _in_journals(self) -> list[tuple[str, str]]:
        records = [record for file in find_abandoned_journals(self._data_dir) for record in read_journal(file)]
        return [(one.kind, one.subject if one.kind == "search" else one.detail["reason"]) for one in records]


@asynccontextmanager
async def opened_lives(directory: Path) -> AsyncIterator[Lives]:
    """The parent of all lives."""
    small = SmallServer(directory / "world", "obstinate")
    with (directory / "log").open("ab") as log:
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, str(LIFE), directory / "data", small.directory, directory / "journal"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=ENVIRON | {"OPENBLAS_NUM_THREADS": "1"},
        )
    try:
        lives = Lives(directory, small, parent)
        yield lives
    finally:
        lives.end()
        parent.kill()
        await parent.wait()
        end(small.pids())


async def killed_again_and_again(directory: Path, kills: int) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    async with opened_lives(directory) as lives:
        pid, begun = await lives.begin(), monotonic()
        await until(lambda: any("version" in fact for fact in lives.facts()))
        longest_s = 1.5 * (monotonic() - begun)  # a busy machine needs longer to come to where it can be killed
        await lives.kill(pid)
        for _ in range(kills):
            pid = await lives.begin()
            await asyncio.sleep(rng.uniform(0.01, longest_s))  # at any moment is what this is about
            assert is_alive(pid), (directory / "log").read_text()
            await lives.kill(pid)
            lives.check()
        pid = await lives.begin()
        known = len(lives.facts())
        await until(lambda: len(lives.facts()) > known and lives.is_recovered())
        await lives.kill(pid)
        lives.check()
        answered = lives.facts()
        pid = await lives.begin()
        await until(lives.is_recovered)
        lives.check_records(answered)
        await lives.kill(pid)
        versions = sum("version" in fact for fact in lives.facts())
        answers = len(lives.facts()) - versions
        print(
            f"\nseed {seed}: {kills + 3} kills, {versions} versions and {answers} answers kept;"
            f" {lives.obstinate} obstinate processes ended with them"
        )
        assert versions and answers > kills / 2
        assert lives.obstinate >= 2, "at least the life that was waited for had a server with a child"


async def test_twenty_kills_lose_nothing(tmp_path: Path) -> None:
    """Nor do they leave a process behind for 5 s, not even a child's child that ignores SIGTERM."""
    await killed_again_and_again(tmp_path, 20)


@pytest.mark.soak
async def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    """The same for longer."""
    await killed_again_and_again(tmp_path, 200)
