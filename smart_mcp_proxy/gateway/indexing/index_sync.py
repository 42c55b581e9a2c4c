"""Keeps the search index equal to the catalog's visible tools, other processes' writes included.

A tool whose changed definition waits stays in the index by the text that was approved, so that a search knows what it
does without; it is never a hit.
"""

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from smart_mcp_proxy.catalog import Catalog, Diff, Snapshot, build_approved_record
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.indexing.documents import build_tool_document
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.io.memory import give_back
from smart_mcp_proxy.layered import Layered
from smart_mcp_proxy.models import Document, ToolRecord, WithheldState
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.search.engine import Arrays
from smart_mcp_proxy.search.vectors.file_lock import try_lock_file
from smart_mcp_proxy.telemetry import get_logger, spawn

FOLLOW_S = 1.0
"""Seconds between two looks for other processes' writes where nobody tells of them; they must be seen within 2 s."""
SETTLE_S = 5.0
"""The side-car is written when nothing has changed for so long."""
UNSTORED_SHARE = 0.01
"""Share of the documents: with less that changed the side-car is not written, which takes 10 us for each that there is.
What it lacks the next start reads anew."""
INDEX_NAME = "tools.index"
"""The side-car with the lexical index: a cache; a broken one is ignored.

SHA-256 of everything behind it | JSON of format and arrays, a line | the arrays, one after another
"""
_FORMAT = "1"
"""Format of the file; what the arrays hold, they say themselves."""

_DIGEST_BYTES = 32
_HEADER_LIMIT_BYTES = 64 * 1024

log = get_logger("index")


class _Header(msgspec.Struct):
    """Names, types and lengths of the arrays, in their order."""

    format: str
    arrays: list[tuple[str, str, int]]


class _StoredArrays(Mapping[str, NDArray[Any]]):
    """Arrays of an open file, read when they are asked for: all at once take half of the index's memory.

    Args:
        file: Open.
        header: Of the file.
        start: Where the arrays begin.
    """

    def __init__(self, file: BufferedReader, header: _Header, start: int) -> None:
        self._file = file
        self._places: dict[str, tuple[int, np.dtype[Any], int]] = {}
        for name, code, length in header.arrays:
            dtype = np.dtype(code)
            self._places[name] = (start, dtype, length)
            start += length * dtype.itemsize

    def __getitem__(self, name: str) -> NDArray[Any]:
        start, dtype, length = self._places[name]
        self._file.seek(start)
        return np.fromfile(self._file, dtype, length)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@contextmanager
def open_index_file(path: Path) -> Iterator[Arrays | None]:
    """The arrays of the side-car while it is open; None if it is not whole, or of another format."""
    with ExitStack() as stack:
        arrays = None
        try:
            arrays = _read_index(stack.enter_context(path.open("rb")))
        except (OSError, ValueError, TypeError) as exc:  # msgspec's errors are ValueErrors
            log.debug("side-car '%s' is not used: %s", path, exc)
        yield arrays


def _read_index(file: BufferedReader) -> _StoredArrays:
    digest = file.read(_DIGEST_BYTES)
    if hashlib.file_digest(file, "sha256").digest() != digest:
        raise ValueError("its checksum does not fit")
    file.seek(_DIGEST_BYTES)
    header = msgspec.json.decode(file.readline(_HEADER_LIMIT_BYTES), type=_Header)
    if header.format != _FORMAT:
        raise ValueError("it has another format")
    return _StoredArrays(file, header, file.tell())


def save_index(path: Path, arrays: Arrays) -> bool:
    """Replace the side-car atomically: at any moment one of them is whole.

    Returns:
        Whether it was written; another process that is writing one now goes first.

    Raises:
        OSError: The file cannot be written.
    """
    staged = path.with_name(f"{path.name}.new")
    with try_lock_file(staged) as is_alone:
        if not is_alone:
            return False  # what a dead process left there is written over
        with staged.open("r+b") as file:
            file.truncate(0)
            file.write(bytes(_DIGEST_BYTES))
            described = [(name, array.dtype.str, len(array)) for name, array in arrays.items()]
            file.write(msgspec.json.encode(_Header(_FORMAT, described)) + b"\n")
            for array in arrays.values():
                array.tofile(file)
            file.seek(_DIGEST_BYTES)
            digest = hashlib.file_digest(file, "sha256").digest()
            file.seek(0)
            file.write(digest)
        staged.replace(path)
    return True


class Sight(NamedTuple):
    """The rule that decides which tools are visible.

    Attributes:
        sees: Whether a tool is.
        rules: The same object as long as `sees` judges a tool as before; by default never.
    """

    sees: Callable[[ToolRecord], bool]
    rules: Callable[[], object] = object


@dataclass(eq=False)
class IndexSync:
    """Brings what changed in the catalog to the index.

    Attributes:
        catalog: The truth.
        index: Follows it, as far as tools are visible.
        sight: Which tools are visible.
        changes: Told when the index has changed.
        follow_s: How often other processes' writes are looked for.
        uses_examples: Whether questions learned from use are searched with.
        data_dir: The index is stored in it for the next start; None for nowhere.
        clock: Monotonic seconds.
        waiting: By id, as they were approved, the tools whose changed definition waits; another object after a change.
    """

    catalog: Catalog
    index: SearchIndex
    sight: Sight
    changes: Changes
    _: KW_ONLY
    follow_s: float = FOLLOW_S
    uses_examples: bool = False
    data_dir: Path | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._indexed: Layered[int, ToolRecord] = Layered()
        self.waiting: Mapping[int, ToolRecord] = {}
        self._indexing = threading.Lock()
        self._brought: Snapshot | None = None
        """What the index holds the visible tools of."""
        self._ruled: object = None
        """By what they were visible."""
        self._path = None if self.data_dir is None else self.data_dir / INDEX_NAME
        self._changed = self._stored = 0
        """Documents that ever entered or left the index without the side-car, and of these those that it knows of."""
        self._seen: tuple[Mapping[int, Document], float] = ({}, 0.0)
        """What the index held when last looked at, and since when."""
        self._tasks: list[asyncio.Task[None]] = []
        self.loaded = asyncio.Event()

    def __repr__(self) -> str:
        return f"<IndexSync {len(self.index)} tools, {'loaded' if self.loaded.is_set() else 'loading'}>"

    def start(self) -> None:
        """Loads the stored catalog into the index and follows it from then on."""
        self._tasks = [spawn(self._load(), "index load"), spawn(self._keep_following(), "catalog follow")]

    async def close(self) -> None:
        """Ends the work in the background."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def catch_up(self) -> None:
        """Brings the index to the present snapshot and visibility: only what differs is indexed."""
        await self.loaded.wait()
        await self._reconcile()

    async def follow(self) -> None:
        """Brings to the index what was written to the catalog, by whichever process, as far as it can be read."""
        await self.loaded.wait()
        try:
            changed = await self.catalog.refresh()
        except CatalogError as exc:
            log.warning("the catalog cannot be read, the last state serves: %s", exc)
            return
        # Another one may have read the change, and be about to bring it, or have been cancelled before it could.
        if changed or self._brought is not self.catalog.snapshot:
            await self._reconcile()

    async def store(self) -> None:
        """Stores the index once enough has changed, and nothing for a while.

        A disk that is full costs the next start only.
        """
        documents, changed, now_s = self.index.documents, self._changed, self.clock()
        if documents is not self._seen[0]:
            self._seen = (documents, now_s)
        is_due = changed - self._stored > UNSTORED_SHARE * len(documents)
        if self._path is None or not is_due or now_s - self._seen[1] < SETTLE_S:
            return
        try:
            if await to_thread.run_sync(self._save, self._path):
                self._stored = changed
        except OSError as exc:
            self._stored = changed  # with the next change it is tried again
            log.warning("'%s' cannot be written: %s", INDEX_NAME, exc)

    def _save(self, path: Path) -> bool:
        arrays = self.index.dump_arrays()
        return arrays is None or save_index(path, arrays)

    async def _load(self) -> None:
        await self._reconcile()
        self.loaded.set()
        log.debug("%d stored tools are searchable", len(self.index))

    async def _reconcile(self) -> None:
        await to_thread.run_sync(self._bring_up)
        self.changes.announce()

    def _bring_up(self) -> None:
        # Done to its end under the lock even if the task that asked for it was cancelled: its server was removed.
        with self._indexing:
            snapshot, rules = self.catalog.snapshot, self.sight.rules()
            if self._brought is None or rules is not self._ruled:
                wanted = {id_: record for id_, record in snapshot.by_id.items() if self.sight.sees(record)}
                changed = [record for id_, record in wanted.items() if self._indexed.get(id_) is not record]
                removed = {id_ for id_ in self._indexed if id_ not in wanted}
                indexed = Layered(wanted)
            else:
                changed, removed = self._differences(snapshot.since(self._brought))
                indexed = self._indexed.apply_changes({record.id: record for record in changed}, removed)
            waiting = self._find_waiting_tools(snapshot)
            kept = [record for id_, record in waiting.items() if self.waiting.get(id_) is not record]
            removed = (removed | (self.waiting.keys() - waiting.keys())) - {each.id for each in (*changed, *kept)}
            added = [build_tool_document(record, has_examples=self.uses_examples) for record in (*changed, *kept)]
            if is_first := self._brought is None:
                added = self._restore_index(added)
            if added or removed:
                self.index.update(added, removed)
                self._changed += len(added) + len(removed)
            is_all = len(indexed) == len(snapshot.by_id)
            self._indexed = snapshot.by_id if is_all else indexed  # held in memory anyway
            self._brought, self._ruled = snapshot, rules
            if waiting != self.waiting:
                self.waiting = waiting
        if is_first:
            give_back()  # a fifth of what the load took

    def _find_waiting_tools(self, snapshot: Snapshot) -> dict[int, ToolRecord]:
        """Find the tools whose changed definition waits, as they were approved."""
        found: dict[int, ToolRecord] = {}
        for each in snapshot.withheld.values():
            if each.state is not WithheldState.CHANGED:
                continue
            record: ToolRecord | None = self.waiting.get(each.record.id)
            if record is None or record.change_hash != each.approved_hash:
                record = build_approved_record(each)
            if record is not None and self.sight.sees(record):
                found[record.id] = record
        return found

    def _differences(self, diff: Diff) -> tuple[list[ToolRecord], set[int]]:
        """Visible tools among those that came or changed, and indexed ones that left or are visible no more."""
        entered = (*diff.added, *diff.changed)
        changed = [record for record in entered if self.sight.sees(record)]
        gone = {*diff.removed, *(record.id for record in entered)} - {record.id for record in changed}
        return changed, {id_ for id_ in gone if id_ in self._indexed}

    def _restore_index(self, documents: list[Document]) -> list[Document]:
        """Restore the index from the side-car; return the documents it does not hold unchanged."""
        if self._path is None:
            return documents
        with open_index_file(self._path) as arrays:
            if arrays is None:
                return documents
            self.index.restore(arrays, {document.id: document for document in documents})
        known = self.index.documents
        return [document for document in documents if document.id not in known]

    async def _keep_following(self) -> None:
        while True:
            await self.catalog.wait_change("catalog", self.follow_s)
            await self.follow()
            await self.store()
