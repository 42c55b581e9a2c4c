"""An embedder that hashes words, and a keeper of vectors at work on one data directory."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import anyio
import numpy as np
from gateway_fakes import NAME_LIMIT, FakeFleet, FakeUpstream, HandClock, ToolWork, config, definition
from numpy.typing import NDArray
from trusting import TrustingCatalog

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.gateway.indexing.embedding import Embedding, EmbeddingPace, VectorSetup
from smart_mcp_proxy.gateway.indexing.list_sync import Pace
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search import Bm25fEngine, Engine, SearchIndex
from smart_mcp_proxy.search.embedding import Embedder
from smart_mcp_proxy.search.vectors.vectors import VectorIndex

DIMENSION = 32
NEVER_S = 3600.0
SOON_S = 0.01
PACE = EmbeddingPace(look_s=SOON_S, poll_s=SOON_S, settle_s=0.0)


def vector_of(text: str, dimension: int = DIMENSION) -> NDArray[np.float32]:
    """Words by their hash, the same in every process."""
    vector = np.zeros(dimension, np.float32)
    for word in text.lower().split():
        vector[crc32(word.encode()) % dimension] += 1
    vector[0] += 1  # no text is without a vector
    unit: NDArray[np.float32] = vector / np.float32(np.linalg.norm(vector))
    return unit


class WordEmbedder:
    """Embeds by hashing words, and keeps account.

    Attributes:
        texts: What it was given to embed, in order.
        gate: Closed, texts wait at it.
        busy: Set when texts have come.
        errors: What the next calls end with.
        bad: A text with this word in it always fails.
    """

    dimension = DIMENSION

    def __init__(self, id: str = "words:1") -> None:
        self.id = id
        self.texts: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.busy = threading.Event()
        self.errors: list[EmbeddingError] = []
        self.bad = ""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.busy.set()
        self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        if self.bad and any(self.bad in text for text in texts):
            raise EmbeddingError("This text is not to my taste.")
        self.texts += texts
        return np.array([vector_of(text) for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return vector_of(text)


class SwitchedEngine(Bm25fEngine):
    """Takes over from the words once all tools have vectors; ranks as they do.

    Args:
        embedder: Whose vectors they are.
        vectors: By tool id.
        present: The engine that ranked before.
        documents: Those that it had.
    """

    name = "switched"

    def __init__(
        self, embedder: Embedder, vectors: VectorIndex, present: Engine, documents: Mapping[int, Document]
    ) -> None:
        super().__init__()
        self.update(documents.values(), ())
        self.vectors = vectors
        self.embedder = embedder


def gone(id: str) -> Embedder:
    """No former embedder opens."""
    raise EmbeddingError(f"{id} is gone.")


class EmbeddingSetup:
    """A keeper of vectors in front of one server, `alpha`."""

    def __init__(self, catalog: Catalog, index: SearchIndex, work: ToolWork, alpha: FakeUpstream) -> None:
        self.catalog = catalog
        self.index = index
        self.work = work
        self.alpha = alpha
        self.slept_s: list[float] = []
        self.is_awake = asyncio.Event()
        self.is_awake.set()
        self.embedding: Embedding

    async def sleep(self, seconds: float) -> None:
        """Waits for nothing but the others, or as long as it is not awake."""
        self.slept_s.append(seconds)
        await self.is_awake.wait()
        await asyncio.sleep(SOON_S)

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Returns once something has come about in another thread."""
        with anyio.fail_after(20):
            while not is_true():
                await asyncio.sleep(SOON_S)

    async def listed(self, *names: str, **more: str) -> None:
        """The server has these tools now, and the index too; `more` by name with their description."""
        self.alpha.tools = [*map(definition, names), *(definition(name, text) for name, text in more.items())]
        listings = self.alpha.listings
        self.work.sync.list_soon("alpha")
        await self.until(lambda: self.alpha.listings > listings)
        await self.until(lambda: {tool.name for tool in self.index.documents.values()} == {*names, *more})

    async def ranking(self) -> None:
        """Every tool has its vector, and vectors rank."""
        await self.until(lambda: self.embedding.is_complete and not self.embedding.degradations)

    def linked(self) -> dict[str, NDArray[np.float32]]:
        """The vectors that searches use, by name of the tool."""
        engine: Any = self.index.engine
        ids, rows = engine.vectors.take(self.index.documents)
        return {self.index.documents[id].name: row for id, row in zip(ids, rows, strict=True)}


@asynccontextmanager
async def opened_setup(
    data_dir: Path,
    open_embedder: Callable[[], Embedder],
    *names: str,
    pace: EmbeddingPace = PACE,
    clock: Callable[[], float] | None = None,
    url: str | None = None,
    wall_clock: Callable[[], float] = time.time,
    reopen_embedder: Callable[[str], Embedder] = gone,
    is_light: bool = False,
    news: str = "",
) -> AsyncIterator[EmbeddingSetup]:
    """A keeper over the tools `names` of the server; without names, over those that are stored."""
    clock = clock or HandClock()
    async with AsyncExitStack() as stack:
        opened = TrustingCatalog.open(data_dir, url=url, name_limit=NAME_LIMIT, clock=wall_clock)
        catalog = await stack.enter_async_context(opened)
        index = SearchIndex(Bm25fEngine())
        visible = CatalogView(catalog, {"alpha": config("alpha")}, index.nearest_names)
        alpha = FakeUpstream("alpha")
        fleet = FakeFleet(alpha)
        work = ToolWork(fleet, catalog, index, visible.sees, clock, pace=Pace(merge_s=0), follow_s=SOON_S)
        setup = EmbeddingSetup(catalog, index, work, alpha)
        vectors = VectorSetup(open_embedder, reopen_embedder, SwitchedEngine, is_light, news)
        setup.embedding = Embedding(
            catalog, work.index_sync, data_dir, vectors, clock=clock, sleep=setup.sleep, pace=pace
        )
        work.index_sync.start()
        stack.push_async_callback(work.close)
        if names:
            await setup.listed(*names)
        setup.embedding.start()
        stack.push_async_callback(setup.embedding.close)
        yield setup
