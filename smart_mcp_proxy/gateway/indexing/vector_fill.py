"""Source of tools' vectors: the catalog, else the embedder, once for all processes."""

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from smart_mcp_proxy.catalog import Catalog, sealed
from smart_mcp_proxy.errors import CatalogError, EmbeddingError
from smart_mcp_proxy.gateway.indexing.daemon import run_in_daemon
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.search.embedding import Embedder
from smart_mcp_proxy.search.vectors.file_lock import try_lock_file
from smart_mcp_proxy.search.vectors.links import VectorLinks, from_bytes, to_bytes
from smart_mcp_proxy.search.vectors.vectors import are_sound
from smart_mcp_proxy.telemetry import get_logger

Wanted = Mapping[str, Sequence[int]]
"""Ids of the tools that want a vector, by the hash of their text."""

_WINDOW = 2_000
"""Vectors that are looked for in the catalog at a time: 3 MB of 384 components."""
_FIRST_BATCH = 16
_LARGEST_BATCH = 256
"""Texts that are embedded at a time; embedding services take some hundreds to 2,048 in one request."""
_QUICK_S = 0.5
_SLOW_S = 1.0
"""Seconds above which batches are halved: a batch is what a sudden end can cost, and what an orderly one waits for."""
_LEASE_S = 90.0
"""Longer than one request to an embedding service may take; a gateway that dies holds up the others for so long."""

log = get_logger("embedding")


@dataclass(eq=False)
class VectorFill:
    """Gives tools that have no vector theirs, some at a time.

    Processes that share a store and an embedder take turns: the one that has the lock, and in a database the lease,
    looks once more what is stored, embeds the next texts and stores their vectors; the others read what it stored.

    Attributes:
        index: Whose tools get them.
        catalog: Keeps vectors.
        embedder: Makes vectors.
        links: Gets them.
        data_dir: Of the catalog; the lock lies in it.
        clock: Monotonic seconds.
    """

    index: SearchIndex
    catalog: Catalog
    embedder: Embedder
    links: VectorLinks
    data_dir: Path
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._turns = f"embedding-{hashlib.sha256(self.embedder.id.encode()).hexdigest()[:16]}"
        self._lock = self.data_dir / f"{self._turns}.lock"
        self._holder = uuid.uuid4().hex
        self._batch = _FIRST_BATCH
        self._put_off: set[str] = set()
        self._unstored: dict[str, bytes] = {}
        self._was_lost = False
        self.found = 0
        self.made = 0
        self.making_s = 0.0
        self.idle = asyncio.Event()
        self.idle.set()

    def __repr__(self) -> str:
        return f"<VectorFill {self.found} vectors found, {self.made} made>"

    async def step(self, missing: Wanted) -> bool:
        """Gives some of the tools in `missing` their vectors; False if another process is making them.

        Raises:
            EmbeddingError: The embedder failed. Other texts come first the next time: the fault may be in one of them.
        """
        window = _first(self._defer_failed(missing), missing, _WINDOW)
        if await self._link_stored(window):
            return True
        async with self._turn() as is_ours:
            if not is_ours:
                return False
            batch = _first(window, window, self._batch)
            if not await self._link_stored(batch):
                await self._make(batch)
        return True

    async def take_stored(self, missing: Wanted) -> None:
        """Gives the tools in `missing` the vectors that are stored, and makes none."""
        rest = iter(missing)
        while window := _first(rest, missing, _WINDOW):
            await self._link_stored(window)

    async def store_again(self) -> None:
        """Store all vectors again, after the catalog could not store: the file may be new."""
        self._was_lost |= self.catalog.problem is not None or bool(self._unstored)
        if not self._was_lost or self.catalog.problem is not None:
            return
        self._was_lost, self._unstored = False, {}
        made = iter((await to_thread.run_sync(self.links.dump_vectors)).items())
        while some := dict(islice(made, _WINDOW)):
            await self._store(some)

    def _defer_failed(self, missing: Wanted) -> Iterable[str]:
        """All, or without those that were in a batch that failed, as long as there are others."""
        others = [hash for hash in missing if hash not in self._put_off]
        if others:
            return others
        self._put_off.clear()
        return missing

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[bool]:
        """Whether it is this process's turn to embed, as long as it is inside."""
        async with AsyncExitStack() as stack:
            try:
                is_ours = stack.enter_context(try_lock_file(self._lock))
            except OSError as exc:
                log.debug("no turns are taken, '%s' cannot be opened: %s", self._lock, exc)
                is_ours = True  # nor can another process store anything in that directory
            if is_ours and self.catalog.is_shared:
                is_ours = await stack.enter_async_context(self._hold_lease())
            yield is_ours

    @asynccontextmanager
    async def _hold_lease(self) -> AsyncIterator[bool]:
        """Whether this process has the lease of all gateways on its database, as long as it is inside."""
        take = partial(
            sealed.take_lease, name=self._turns, holder=self._holder, now_s=self.catalog.now_s(), life_s=_LEASE_S
        )
        is_ours = True  # also where nobody can say so: each embeds for itself then
        try:
            try:
                is_ours = await self.catalog.write(take, is_ordered=False)
            except CatalogError as exc:
                log.debug("no turns are taken, the store cannot be used: %s", exc)
            yield is_ours
        finally:
            if is_ours:
                with suppress(CatalogError):  # it ends by itself
                    drop = partial(sealed.drop_lease, name=self._turns, holder=self._holder)
                    await self.catalog.write(drop, is_ordered=False)

    async def _link_stored(self, wanted: Wanted) -> bool:
        """Gives tools the vectors that are stored; whether there were any."""
        try:
            stored = await self.catalog.read_vectors(self.embedder.id, list(wanted))
        except CatalogError as exc:
            log.debug("stored vectors cannot be read: %s", exc)
            stored = {}
        stored |= {hash: self._unstored[hash] for hash in wanted.keys() & self._unstored.keys()}
        decode = partial(from_bytes, dimension=self.embedder.dimension)
        vectors = {hash: vector for hash, data in stored.items() if (vector := decode(data)) is not None}
        if not vectors:
            return False
        await self._link(wanted, vectors)
        self.found += len(vectors)
        return True

    async def _make(self, batch: Wanted) -> None:
        texts = await to_thread.run_sync(self.links.texts, batch)
        began = self.clock()
        self.idle.clear()
        try:
            rows = await run_in_daemon(partial(self._embed, list(texts.values())), "embedder")
            vectors = dict(zip(texts, rows, strict=True))
            await self._store({hash: to_bytes(vector) for hash, vector in vectors.items()})
        except EmbeddingError:
            self._put_off.update(batch)
            self._batch = 1
            raise
        finally:
            self.idle.set()
        await self._link(batch, vectors)
        self.made += len(vectors)
        took_s = self.clock() - began
        self.making_s += took_s
        if took_s < _QUICK_S:
            self._batch = min(_LARGEST_BATCH, 2 * self._batch)
        elif took_s > _SLOW_S:
            self._batch = max(1, self._batch // 2)

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = self.embedder.embed(texts)
        if rows.shape != (len(texts), self.embedder.dimension) or not are_sound(rows).all():
            raise EmbeddingError(
                f"'{self.embedder.id}' answered {len(texts)} texts with a matrix of shape {rows.shape}, or with rows "
                "that are no unit vectors.",
                hint="Check the model, or choose another one.",
            )
        return rows

    async def _store(self, made: Mapping[str, bytes]) -> None:
        try:
            await self.catalog.store_vectors(self.embedder.id, made)
        except CatalogError as exc:
            level = log.debug if self._unstored else log.warning
            level("vectors are kept in memory until the catalog can take them: %s", exc)
            self._unstored.update(made)

    async def _link(self, wanted: Wanted, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        found = {id: (hash, vector) for hash, vector in vectors.items() for id in wanted[hash]}

        def link() -> None:
            self.links.follow(self.index.documents)  # a tool may have changed while its vector was made
            self.links.link(found)

        await to_thread.run_sync(link)


def _first(hashes: Iterable[str], missing: Wanted, count: int) -> Wanted:
    return {hash: missing[hash] for hash in islice(hashes, count)}
