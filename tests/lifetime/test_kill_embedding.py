"""kill -9 at any moment of embedding and of writing the side-car: no vector is lost, made twice or given to another."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from numpy.typing import NDArray
from worlds import ENVIRON, is_alive, until

from smart_mcp_proxy.search.vectors.sidecar import SIDECAR_NAME, load

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LIFE = Path(__file__).parent / "embedding_life.py"
EMBEDDER_ID, DIMENSION = "slow:384", 384
LEAST_LIFE_S = 0.7
"""Lives last up to this, or on a slow machine twice as long as the first one, which lasts until it has a side-car."""


def vector_of(text: str) -> NDArray[np.float32]:
    """What the embedder of those lives makes of a text."""
    vector = np.zeros(DIMENSION, np.float32)
    for word in text.lower().split():
        vector[crc32(word.encode()) % DIMENSION] += 1
    vector[0] += 1
    unit: NDArray[np.float32] = vector / np.float32(np.linalg.norm(vector))
    return unit


class Lives:
    """Keepers of vectors on one data directory, one after the other.

    Args:
        directory: Of everything.
        parent: Begins them.
    """

    def __init__(self, directory: Path, parent: asyncio.subprocess.Process) -> None:
        self._data_dir = directory / "data"
        self.sidecar = self._data_dir / SIDECAR_NAME
        self._ledger = directory / "ledger"
        self._parent = parent
        self._seen = 0
        self._in_file: set[str] = set()
        self.sidecars = set[int]()

    async def begin(self) -> int:
        """The id of a new one."""
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.write(b"\n")
        return int(await self._parent.stdout.readline())

    async def live_until(self, is_true: Callable[[], bool]) -> float:
        """Seconds until then in a new life, which is killed."""
        pid, begun_s = await self.begin(), time.monotonic()
        await until(is_true)
        taken_s = time.monotonic() - begun_s
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not is_alive(pid))
        self.check()
        return taken_s

    def facts(self) -> list[dict[str, Any]]:
        """What the ledger says so far."""
        return [json.loads(line) for line in self._ledger.read_text().splitlines()] if self._ledger.exists() else []

    def count_versions(self) -> int:
        return sum("version" in fact for fact in self.facts())

    def check(self) -> None:
        """Every acknowledged vector is in the file, none was made although it was there, and all are of their text."""
        facts = self.facts()
        texts = {fact["embedded"]: fact["text"] for fact in facts if "embedded" in fact}
        acknowledged: set[str] = set()
        for fact in facts:
            assert fact.get("embedded") not in acknowledged, "made again within a life"
            acknowledged |= set(fact.get("stored", ()))
        made_since = {fact["embedded"] for fact in facts[self._seen :] if "embedded" in fact}
        assert not made_since & self._in_file, "made again after a restart"
        assert not [fact for fact in facts if "wrong" in fact]
        stored = self._stored()
        assert acknowledged <= stored.keys(), "lost"
        for hash, data in stored.items():
            assert np.array_equal(np.frombuffer(data, np.float32), vector_of(texts[hash])), "of another text"
        self._check_sidecar(texts)
        self._seen, self._in_file = len(facts), set(stored)

    def _stored(self) -> dict[str, bytes]:
        if not (self._data_dir / "proxy.db").exists():
            return {}
        with closing(sqlite3.connect(self._data_dir / "proxy.db")) as file:
            assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            if not file.execute("SELECT 1 FROM sqlite_master WHERE name = 'vectors'").fetchone():
                return {}
            return dict(file.execute("SELECT definition_hash, vector FROM vectors"))

    def _check_sidecar(self, texts: dict[str, str]) -> None:
        if not self.sidecar.exists():
            return
        sidecar = load(self.sidecar, EMBEDDER_ID, DIMENSION)
        assert sidecar is not None, "half a side-car"
        for hash, vector in zip(sidecar.hashes, sidecar.vectors, strict=True):
            assert np.array_equal(vector, vector_of(texts[hash])), "of another text"
        self.sidecars.add(self.sidecar.stat().st_mtime_ns)


@asynccontextmanager
async def opened_lives(directory: Path) -> AsyncIterator[Lives]:
    """The parent of all lives."""
    with (directory / "log").open("ab") as log:
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, str(LIFE), directory / "data", directory / "ledger"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=ENVIRON | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
    try:
        yield Lives(directory, parent)
    finally:
        parent.kill()
        await parent.wait()


async def killed_again_and_again(directory: Path, kills: int) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    async with opened_lives(directory) as lives:
        longest_s = max(LEAST_LIFE_S, 2 * await lives.live_until(lives.sidecar.exists))
        for _ in range(kills):
            pid = await lives.begin()
            await asyncio.sleep(rng.uniform(0.01, longest_s))  # at any moment is what this is about
            assert is_alive(pid), (directory / "log").read_text()
            os.kill(pid, signal.SIGKILL)
            await until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
            lives.check()
        known = lives.count_versions()
        await lives.live_until(lambda: lives.count_versions() > known)
        embedded = sum("embedded" in fact for fact in lives.facts())
        print(
            f"\nseed {seed}: {kills + 2} kills, {embedded} texts embedded, {lives.count_versions()} versions,"
            f" {len(lives.sidecars)} files"
        )
        assert embedded > 3 * kills
        assert len(lives.sidecars) > kills / 4


async def test_eight_kills_lose_no_vector(tmp_path: Path) -> None:
    """Nor is one made twice, or linked to a tool of another text."""
    await killed_again_and_again(tmp_path, 8)


@pytest.mark.soak
async def test_two_hundred_kills_lose_no_vector(tmp_path: Path) -> None:
    """The same for longer."""
    await killed_again_and_again(tmp_path, 200)
