"""Embeds every searchable tool in the background; vectors rank once all tools have one."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

import msgspec
from anyio import move_on_after, to_thread

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import CatalogError, EmbeddingError, MissingExtraError, ProxyError
from smart_mcp_proxy.gateway.indexing.daemon import run_in_daemon
from smart_mcp_proxy.gateway.indexing.index_sync import IndexSync
from smart_mcp_proxy.gateway.indexing.vector_fill import VectorFill, Wanted
from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search import Engine
from smart_mcp_proxy.search.embedding import Embedder, build_embedding_text, format_pace, text_hash
from smart_mcp_proxy.search.vectors.links import VectorLinks
from smart_mcp_proxy.search.vectors.sidecar import SIDECAR_NAME, load, save
from smart_mcp_proxy.search.vectors.vectors import VectorIndex
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.states import backoff_s

log = get_logger("embedding")


class VectorSetup(msgspec.Struct, frozen=True):
    """Factories for the embedder and the engine that uses its vectors.

    Attributes:
        open_embedder: Loads the model, or tries the service; blocks.
        reopen_embedder: The same for the embedder that had this id before the settings changed.
        make_engine: An engine that ranks by these vectors, and by words where there are none, in place of the one that
            has these documents at present.
        is_light: Whether vectors are there so soon that words until then are no degradation, and so cheap that a
            side-car, which needs Faiss, saves nothing.
        news: Said where a catalog that no embedder has seen yet gets its first vectors; empty: nothing is.
    """

    open_embedder: Callable[[], Embedder]
    reopen_embedder: Callable[[str], Embedder]
    make_engine: Callable[[Embedder, VectorIndex, Engine, Mapping[int, Document]], Engine]
    is_light: bool = False
    news: str = ""


class EmbeddingPace(msgspec.Struct, frozen=True):
    """Intervals of the embedding worker.

    Attributes:
        look_s: How often changes are looked for that nobody announced.
        poll_s: How often vectors are looked for that another process is making.
        settle_s: The side-car is written when nothing has changed for so long.
        report_s: How often the log tells of progress.
        tidy_s: How often vectors are noted as used, and old ones dropped.
        close_s: How long the end waits for a batch under way.
    """

    look_s: float = 5.0
    poll_s: float = 0.5
    settle_s: float = 5.0
    report_s: float = 5.0
    tidy_s: float = 86_400.0
    close_s: float = 1.0


_PACE = EmbeddingPace()


class _Work(msgspec.Struct):
    """Embedder, vectors and side-car once the embedder is open.

    Attributes:
        embedder: Makes vectors.
        links: Vectors by tool.
        fill: Gets those that are missing.
        saved: The revision of the links that the side-car holds.
        seen: Their revision when it was last looked at.
        changed_at_s: Since when it is that one.
        tidy_at_s: When old vectors are dropped next.
    """

    embedder: Embedder
    links: VectorLinks
    fill: VectorFill
    saved: int
    seen: int
    changed_at_s: float
    tidy_at_s: float


@dataclass(eq=False)
class Embedding:
    """The keeper of vectors: words rank until every tool has its vector, then vectors do, too.

    Vectors come from the side-car, from the catalog, and only then from the embedder, so none is made twice. From
    the switch on, tools that change are found by their words until they have their new vector.

    After a change of model the former one, reopened from the id that its vectors are stored under, ranks with them
    until the new ones are complete; words do where it does not open. Its vectors stay stored for the way back.

    Attributes:
        catalog: Keeps vectors by definition.
        index_sync: Has the index whose tools get vectors, and whose engine is switched; says when it is loaded, and
            when it changes.
        data_dir: Of the catalog; the side-car lies in it.
        setup: Embedder and engine.
        clock: Monotonic seconds.
        sleep: Waits so many seconds.
        pace: How often it looks.
    """

    catalog: Catalog
    index_sync: IndexSync
    data_dir: Path
    setup: VectorSetup
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    pace: EmbeddingPace = _PACE

    def __post_init__(self) -> None:
        self._index = self.index_sync.index
        self._rng = random.Random()
        self._work: _Work | None = None
        self._followed: Mapping[int, Document] = {}
        self._missing = 0
        self._failures = 0
        self._trouble = ""
        self._stopped = ""
        self._former = ""
        self._told_at_s = self.clock()
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None
        self.is_ranking = False

    def __repr__(self) -> str:
        return f"<Embedding {len(self._index) - self._missing} of {len(self._index)} tools>"

    @property
    def progress(self) -> tuple[int, int] | None:
        """Tools with a vector, and all tools; None while the embedder is being opened."""
        if self._work is None:
            return None
        total = len(self._index)
        return max(0, total - self._missing), total

    @property
    def rate(self) -> str:
        """Rate of embedding and how long the rest takes; empty while nothing is known."""
        return format_pace(self._work.fill.made, self._work.fill.making_s, self._missing) if self._work else ""

    @property
    def degradations(self) -> tuple[str, ...]:
        """Why searches are worse than the settings ask for, as far as vectors are the reason."""
        if self._stopped:
            return (self._stopped,)
        progress = "" if self.setup.is_light else self._progress()
        return tuple(reason for reason in (progress, self._trouble) if reason)

    def _progress(self) -> str:
        if self.progress is None:
            return f"the embedding model is being opened, {self._meanwhile} until then"
        done, total = self.progress
        if not self._missing and (self.is_ranking or not total):
            return ""
        others = "the others are found by their words" if self.is_ranking else self._meanwhile
        parts = (f"{done:,} of {total:,}", self.rate, f"{others} until then")
        return f"embedding tools: {', '.join(filter(None, parts))}"

    @property
    def _meanwhile(self) -> str:
        return f"vectors of '{self._former}' rank" if self._former else "words alone rank"

    @property
    def is_complete(self) -> bool:
        """Whether vectors rank, and every tool that can be found now has its own."""
        return self.is_ranking and not self._missing and self._index.documents is self._followed

    @property
    def is_stopped(self) -> bool:
        """Whether it has ended for good: something is missing that only a new start can bring."""
        return bool(self._stopped)

    def start(self) -> None:
        """Opens the embedder and follows the index from now on."""
        self._task = spawn(self._run(), "embedding")

    async def close(self) -> None:
        """Ends the work: a batch under way gets a second to be stored, and the side-car is written."""
        self._is_closing = True
        if self._task is None:
            return
        if self._work is not None:
            with move_on_after(self.pace.close_s):
                await self._work.fill.idle.wait()
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._work is not None:
            await self._save(self._work)

    async def _run(self) -> None:
        try:
            await self.index_sync.loaded.wait()
            work = self._work = await self._open_embedder()
            if await self._follow(work):
                await self._tell_news()
                await self._bridge(work.embedder.id)
            while True:
                await self._bring_up(work)
                await self._settle(work)
                if self._index.documents is self._followed:
                    with move_on_after(self.pace.look_s):
                        await self.index_sync.changes.wait()
        except MissingExtraError as exc:
            self._stopped = f"{exc.message}; until then {self._meanwhile}"
            log.warning("%s", exc)
        except Exception:  # boundary: top of a background task; it is logged with its trace where it ends
            self._stopped = "embedding ended by an error of ours, tools that change are found by their words only"
            raise

    async def _open_embedder(self) -> _Work:
        """Open the embedder and load the vectors of the side-car.

        Raises:
            MissingExtraError: The embedder's packages are not installed.
        """
        while True:
            try:
                embedder = await run_in_daemon(self.setup.open_embedder, "embedder start")
                break
            except EmbeddingError as exc:
                if not self._failures:
                    await self._bridge()
                await self._pause(exc)
        links = VectorLinks(VectorIndex(embedder.dimension, is_rounded=self.setup.is_light))
        fill = VectorFill(self._index, self.catalog, embedder, links, self.data_dir, self.clock)
        await to_thread.run_sync(self._take_over, embedder, links)
        return _Work(embedder, links, fill, links.revision, links.revision, self.clock(), self.clock())

    def _take_over(self, embedder: Embedder, links: VectorLinks) -> None:
        links.follow(self._index.documents)
        if self.setup.is_light:
            return
        sidecar = load(self.data_dir / SIDECAR_NAME, embedder.id, embedder.dimension)
        if sidecar is not None:
            links.take_over(sidecar)

    async def _tell_news(self) -> None:
        """Say once that vectors count now: with the first start that has tools and no vectors of them."""
        if not self.setup.news:
            return
        try:
            counts = await self.catalog.vector_counts(await to_thread.run_sync(self._hashes))
        except CatalogError as exc:
            log.debug("stored vectors cannot be counted: %s", exc)
            return
        if not counts:
            log.warning("%s", self.setup.news)

    def _hashes(self) -> set[str]:
        """The hashes of the texts of all tools."""
        return {text_hash(build_embedding_text(document)) for document in self._index.documents.values()}

    async def _bridge(self, chosen: str = "") -> None:
        """Rank with the previous model's vectors while the new ones are incomplete.

        The model must open, and have vectors of more tools than the chosen one.

        Args:
            chosen: The chosen one's id; empty while that does not open.
        """
        documents = self._index.documents
        try:
            wanted = await to_thread.run_sync(self._hashes)
            counts = {} if self._former else await self.catalog.vector_counts(wanted)
        except CatalogError as exc:
            log.debug("former vectors cannot be read: %s", exc)
            return
        least = max(counts.pop(chosen, 0), len(wanted) // 2)
        for id in [id for id, count in counts.items() if count > least]:
            try:
                embedder = await run_in_daemon(partial(self.setup.reopen_embedder, id), "former embedder start")
            except (EmbeddingError, MissingExtraError) as exc:
                log.info("'%s' does not rank meanwhile: %s", id, exc)
                continue
            links = VectorLinks(VectorIndex(embedder.dimension, is_rounded=self.setup.is_light))
            fill = VectorFill(self._index, self.catalog, embedder, links, self.data_dir, self.clock)
            await to_thread.run_sync(links.follow, documents)
            await fill.take_stored(links.find_missing_vectors())
            await to_thread.run_sync(self._switch, embedder, links, documents)
            self._former = id
            log.info("vectors of '%s' rank %d tools meanwhile", id, len(links.vectors))
            return

    async def _bring_up(self, work: _Work) -> None:
        """Returns when every tool has its vector."""
        began_s, found, made = self.clock(), work.fill.found, work.fill.made
        while not self._is_closing and (missing := await self._follow(work)):
            try:
                is_further = await work.fill.step(missing)
            except EmbeddingError as exc:
                await self._pause(exc)
                continue
            self._failures, self._trouble = 0, ""
            if not is_further:
                await self.sleep(self.pace.poll_s)
            elif work.fill.made > made and self.clock() - self._told_at_s >= self.pace.report_s:
                self._told_at_s = self.clock()
                log.info("%s", self._progress())
        found, made = work.fill.found - found, work.fill.made - made
        if found or made:
            took_s = self.clock() - began_s
            log.info("%d vectors were stored, %d tools embedded in %.1f s", found, made, took_s)
        if not self._is_closing and not self.is_ranking and self._followed:
            await to_thread.run_sync(self._switch, work.embedder, work.links, self._followed)
            self.is_ranking = True
            log.info("vectors of '%s' rank %d tools", work.embedder.id, len(work.links.vectors))

    async def _follow(self, work: _Work) -> Wanted:
        """The tools without a vector, as of now."""

        documents = self._index.documents

        def look() -> Wanted:
            work.links.follow(documents)
            return work.links.find_missing_vectors()

        missing = await to_thread.run_sync(look)
        self._followed, self._missing = documents, sum(map(len, missing.values()))
        return missing

    def _switch(self, embedder: Embedder, links: VectorLinks, documents: Mapping[int, Document]) -> None:
        engine = self.setup.make_engine(embedder, links.vectors, self._index.engine, documents)
        self._index.use(engine, documents)

    async def _pause(self, error: EmbeddingError) -> None:
        """Waits after a failure, longer after each one."""
        self._failures += 1
        pause_s = max(backoff_s(self._failures, self._rng), error.retry_after_s or 0.0)
        level = log.debug if self._trouble else log.warning
        level("embedding failed, next try in %.1f s: %s", pause_s, error)
        self._trouble = f"embedding failed: {error}"
        await self.sleep(pause_s)

    async def _settle(self, work: _Work) -> None:
        """Finish once all tools have vectors: tidy the catalog, then write the side-car."""
        now_s = self.clock()
        try:
            await work.fill.store_again()
            if now_s >= work.tidy_at_s:
                await self.catalog.tidy_vectors(work.embedder.id, work.links.hashes())
                work.tidy_at_s = now_s + self.pace.tidy_s
        except CatalogError as exc:
            log.debug("vectors are not tidied: %s", exc)
        if work.seen != work.links.revision:
            work.seen, work.changed_at_s = work.links.revision, now_s
        elif now_s - work.changed_at_s >= self.pace.settle_s:
            await self._save(work)

    async def _save(self, work: _Work) -> None:
        revision = work.links.revision
        if revision == work.saved or self.setup.is_light:
            return

        def write() -> bool:
            return save(self.data_dir / SIDECAR_NAME, work.links.sidecar(work.embedder.id))

        try:
            if await to_thread.run_sync(write):
                work.saved = revision
        except (OSError, ProxyError) as exc:
            work.saved = revision  # with the next change it is tried again; the catalog has the vectors
            log.warning("'%s' cannot be written: %s", SIDECAR_NAME, exc)
