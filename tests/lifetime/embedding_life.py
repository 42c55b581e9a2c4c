"""Lives of a keeper of vectors, begun by a line on stdin and ended by kill -9. Usage: embedding_life.py DATA LEDGER

In each life the tools change again and again. The embedder is slow, and writes every text into the ledger, on disk,
before it embeds it; what the catalog has acknowledged is written there as well, and every vector that is linked to a
wrong tool. Everything is imported once: a life is a fork of this process, and its id is printed.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "gateway")]

from keeper_fakes import SOON_S, EmbeddingSetup, opened_setup, vector_of

from smart_mcp_proxy.gateway.indexing.embedding import EmbeddingPace
from smart_mcp_proxy.search.embedding import build_embedding_text, text_hash
from smart_mcp_proxy.search.vectors import sidecar
from smart_mcp_proxy.search.vectors.faiss_edge import write_index

DIMENSION = 384
EMBEDDER_ID = "slow:384"
TOOLS = 40
CHANGED_TOOLS = 15
STEADY_TOOLS = 5
TEXT_S = 0.002
DISK_S = 0.03
PACE = EmbeddingPace(look_s=SOON_S, poll_s=SOON_S, settle_s=0.0)


def names_of(version: int) -> list[str]:
    """The tools in one version: most of them stay, some are new."""
    return [f"tool_{version * CHANGED_TOOLS + number}" for number in range(TOOLS)]


def descriptions_of(version: int) -> dict[str, str]:
    """Tools that stay, under the ids they have, and read otherwise in each version."""
    return {f"steady_{number}": f"Does number {number + version}." for number in range(STEADY_TOOLS)}


def write_index_slowly(path: Path, *content: Any) -> None:
    """Leaves time for a kill between the two halves of a side-car."""
    write_index(path, *content)
    time.sleep(DISK_S)


class SlowEmbedder:
    """Embeds by hashing words; told of each text the ledger knows before."""

    id = EMBEDDER_ID
    dimension = DIMENSION

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        for text in texts:
            self._ledger.write(embedded=text_hash(text), text=text)
            time.sleep(TEXT_S)
        return np.array([vector_of(text, DIMENSION) for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return vector_of(text, DIMENSION)


class Ledger:
    """Facts, one a line, on disk before the next step.

    Args:
        path: Appended to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, **fact: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(fact) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def last_version(self) -> int:
        facts = map(json.loads, self._path.read_text().splitlines()) if self._path.exists() else ()
        return max((fact["version"] for fact in facts if "version" in fact), default=0)


def acknowledge_what_is_stored(setup: EmbeddingSetup, ledger: Ledger) -> None:
    store = setup.catalog.store_vectors

    async def store_vectors(embedder: str, made: Mapping[str, bytes]) -> None:
        await store(embedder, made)
        ledger.write(stored=list(made))

    setup.catalog.store_vectors = store_vectors  # type: ignore[method-assign]


async def live(data_dir: Path, ledger: Ledger) -> None:
    async with opened_setup(data_dir, lambda: SlowEmbedder(ledger), pace=PACE, clock=time.monotonic) as setup:
        acknowledge_what_is_stored(setup, ledger)
        for version in count(ledger.last_version() + 1):
            await setup.listed(*names_of(version), **descriptions_of(version))
            await setup.ranking()
            linked = setup.linked()
            for tool in setup.index.documents.values():
                if not np.array_equal(linked[tool.name], vector_of(build_embedding_text(tool), DIMENSION)):
                    ledger.write(wrong=tool.name)
            ledger.write(version=version)


def main() -> None:
    sidecar.write_index = write_index_slowly
    data_dir, ledger = Path(sys.argv[1]), Ledger(Path(sys.argv[2]))
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            asyncio.run(live(data_dir, ledger))
            os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
