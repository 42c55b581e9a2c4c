"""Long outputs: cut to what an agent can afford, the rest kept for `read_output`."""

import asyncio
import hashlib
import hmac
import secrets
import sys
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Final, Literal

import msgspec

from smart_mcp_proxy.catalog import CALL_WAIT_S, Catalog, SealedValue, sealed
from smart_mcp_proxy.errors import CatalogError, RequestError
from smart_mcp_proxy.gateway.results.results import (
    OFF_LOOP_BYTES,
    decode_members,
    is_said,
    read_list,
    read_object,
    read_text,
    rewrite_result,
)
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.secrets.sealing import SealBrokenError, open_sealed, seal
from smart_mcp_proxy.telemetry import get_logger, spawn

_KIND: Final = "output"
_KEEP_BYTES: Final = 256 * 1024 * 1024
"""Limit on the outputs of all gateways together, encrypted."""
_TIDY_EVERY_BYTES: Final = _KEEP_BYTES // 16

_log = get_logger("outputs")


class SharedOutputs:
    """Kept outputs by their keys, which alone open them: who reads the store reads none of them.

    Args:
        catalog: Its store keeps them.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._untidy_bytes = _TIDY_EVERY_BYTES

    async def put(self, key: str, principal: str, text: str, life_s: float) -> None:
        """Keeps an output. Where the store fails it is this process's alone, which the log says."""
        now_s = self._catalog.now_s()
        data = msgspec.json.encode((principal, text))
        name = _name(key)
        box = await asyncio.to_thread(seal, _key(key), data, name.encode())
        self._untidy_bytes += len(box)
        is_due = self._untidy_bytes >= _TIDY_EVERY_BYTES
        value = SealedValue(_KIND, name, box, uuid.uuid4().hex, now_s + life_s)
        try:
            await self._catalog.write(partial(sealed.store, value=value), is_ordered=False, limit_s=CALL_WAIT_S)
        except CatalogError as exc:  # a call that was carried out does not fail over it
            _log.warning("read_output finds the rest of a result in this process alone: %s", exc)
            return
        if is_due:
            self._untidy_bytes = 0
            spawn(self._tidy(), "tidying of outputs")

    async def _tidy(self) -> None:
        tidy = partial(sealed.drop_oldest, kind=_KIND, most_bytes=_KEEP_BYTES, now_s=self._catalog.now_s())
        try:
            await self._catalog.write(tidy, is_ordered=False)
        except CatalogError as exc:
            _log.debug("outputs are not tidied: %s", exc)

    async def get(self, key: str) -> tuple[str, str] | None:
        """Return whose output it is and its text; None where no gateway kept one, or its time is over.

        Raises:
            CatalogError: The store fails.
        """
        name = _name(key)
        find = partial(sealed.find, kind=_KIND, key=name, now_s=self._catalog.now_s())
        value = await self._catalog.read(find, limit_s=CALL_WAIT_S)
        if value is None:
            return None
        try:
            data = await asyncio.to_thread(open_sealed, _key(key), value.box, name.encode())
        except SealBrokenError:
            return None
        principal, text = msgspec.json.decode(data, type=tuple[str, str])
        return principal, text


def _name(key: str) -> str:
    return hashlib.sha256(b"output name " + key.encode()).hexdigest()


def _key(key: str) -> bytes:
    return hmac.digest(key.encode(), b"output", hashlib.sha256)


TAIL_CHARS = 50
"""Source: docs/design/wire-formats.md#truncation"""
KEEP_S = 3600.0
KEEP_BYTES = 64 * 1024 * 1024
KEY_BYTES = 16
PAGE_CHARS = 20_000
"""Records on one page are at most this long together, or one: otherwise a page would undo the cut."""
META_KEY = "dev.smartmcpproxy/truncated"

Unit = Literal["characters", "records"]
Keep = Callable[[str], tuple[str, Unit]]


class OutputPage(msgspec.Struct, frozen=True):
    """A part of a kept output.

    Attributes:
        unit: What offset, limit and total count.
        total: Length of the whole output in units.
        items: The characters, or the records as JSON text of one each.
        next_offset: Where the next page starts; None at the end.
    """

    unit: Unit
    total: int
    items: str | list[msgspec.Raw]
    next_offset: int | None


class _Kept(msgspec.Struct):
    principal: str
    text: str
    expires_s: float


class Outputs:
    """Cut outputs by unguessable key, bound to their principal.

    Args:
        clock: Monotonic seconds.
        shared: Keeps them for other gateways as well; None where there are none.
    """

    def __init__(self, clock: Callable[[], float], shared: SharedOutputs | None = None) -> None:
        self._clock = clock
        self._shared = shared
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size_bytes = 0
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Outputs {len(self._kept)} kept, {self._size_bytes} bytes>"

    async def cut(self, raw: RawResult, limit_chars: int, principal: str) -> RawResult:
        """A tool's result with its text cut to `limit_chars`, the whole kept for `principal`; see `truncate`."""
        kept: list[tuple[str, str]] = []

        def keep(text: str) -> tuple[str, Unit]:
            key, unit = self.keep(text, principal)
            kept.append((key, text))
            return key, unit

        raw = await rewrite_result(raw, partial(truncate, limit_chars=limit_chars, keep=keep))
        if self._shared is not None:
            for key, text in kept:
                await self._shared.put(key, principal, text, KEEP_S)
        return raw

    async def page(self, key: str, principal: str, offset: int, limit: int) -> OutputPage:
        """Return a page of a kept output.

        Raises:
            RequestError: The key is unknown, expired or somebody else's, or the offset lies behind the end.
            CatalogError: Another gateway may have kept it, and the store fails.
        """
        with self._lock:
            for old in [known for known, kept in self._kept.items() if kept.expires_s <= self._clock()]:
                self._drop(old)
            own = self._kept.get(key)
        found = None if own is None else (own.principal, own.text)
        if own is None and self._shared is not None:
            found = await self._shared.get(key)
        if found is None or found[0] != principal:
            raise RequestError(
                f"No output is kept under key {key[:40]!r}.",
                hint="Keys live one hour, or until their gateway ends; call the tool again to get a new one.",
                code="output_not_found",
            )
        page = partial(_page, found[1], offset, limit)
        return await asyncio.to_thread(page) if len(found[1]) > OFF_LOOP_BYTES else page()

    def keep(self, text: str, principal: str) -> tuple[str, Unit]:
        """Keeps `text` for an hour and returns its key and the unit in which it can be paged; in any thread."""
        unit: Unit = "characters" if _parse_records(text) is None else "records"
        key = secrets.token_hex(KEY_BYTES)
        with self._lock:
            self._kept[key] = _Kept(principal, text, self._clock() + KEEP_S)
            self._size_bytes += sys.getsizeof(text)
            while self._size_bytes > KEEP_BYTES and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))
        return key, unit

    def _drop(self, key: str) -> None:
        self._size_bytes -= sys.getsizeof(self._kept.pop(key).text)


_array = msgspec.json.Decoder(list[msgspec.Raw])


def _page(text: str, offset: int, limit: int) -> OutputPage:
    # Split again for every page: records take many times the memory of their text.
    records = _parse_records(text)
    source: str | list[msgspec.Raw] = text if records is None else records
    if offset > len(source):
        raise RequestError(
            f"offset {offset} lies behind the end.", hint=f"This output has {len(source)}; use 0 to {len(source)}."
        )
    items = source[offset : offset + limit]
    if not isinstance(items, str):
        items = items[: max(1, _count_fitting(items, PAGE_CHARS))]
    end = offset + len(items)
    unit: Unit = "characters" if records is None else "records"
    return OutputPage(unit, len(source), items, end if end < len(source) else None)


def _parse_records(text: str) -> list[msgspec.Raw] | None:
    """The records of `text`, to the letter, if it is a JSON array of more than one, else None."""
    if not text.lstrip().startswith("["):
        return None
    try:
        records = _array.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return records if len(records) > 1 else None


def _count_fitting(records: Sequence[msgspec.Raw], room_chars: int) -> int:
    """Count the first records that fit into `room_chars` together."""
    ends = accumulate(len(bytes(record).decode()) + 1 for record in records)
    return next((place for place, end in enumerate(ends) if end > room_chars), len(records))


def _marker(shown: int, total: int, unit: Unit, key: str) -> str:
    return f"\n[... {shown} of {total} {unit} shown; read_output key={key} offset={shown} ...]\n"


def _head_of_records(records: Sequence[msgspec.Raw], room_chars: int) -> tuple[str, int]:
    """As many whole records as fit into `room_chars`, as the beginning of a JSON array, and their number."""
    shown = _count_fitting(records, room_chars)
    return "[" + b",".join(map(bytes, records[:shown])).decode(), shown


def _cut(text: str, limit_chars: int, key: str, records: Sequence[msgspec.Raw] | None) -> str:
    """`text` in at most `limit_chars`: head, marker, the last 50 characters."""
    if records is not None:
        widest = _marker(len(records), len(records), "records", key)
        head, shown = _head_of_records(records, limit_chars - len(widest) - TAIL_CHARS)
        if shown:
            return head + _marker(shown, len(records), "records", key) + text[-TAIL_CHARS:]
    room = limit_chars - len(_marker(len(text), len(text), "characters", key)) - TAIL_CHARS
    # No code point is split: Python counts code points. A record-wise page starts over where no record fitted.
    shown = room if records is None else 0
    unit: Unit = "characters" if records is None else "records"
    return text[:room] + _marker(shown, len(text) if records is None else len(records), unit, key) + text[-TAIL_CHARS:]


def truncate(raw: bytes, limit_chars: int, keep: Keep) -> bytes:
    """The result with its text cut to `limit_chars` in all, or unchanged if it fits.

    Images, audio and links stay. Structured content goes with the cut; where it does not only repeat the text it is
    part of what is kept, so that the whole can be read with `read_output`.

    Args:
        raw: A tool result's JSON text.
        limit_chars: At least 200; marker and tail included.
        keep: Keeps the whole text and returns its key and unit.
    """
    if len(raw) <= limit_chars:
        return raw
    result = decode_members(raw)
    blocks = [(block, _read_block_text(block)) for block in read_list(result.get("content"))]
    texts = [text for _, text in blocks if text is not None]
    structured = bytes(result.pop("structuredContent", b"null")).decode()
    if max(len("\n".join(texts)), len(structured)) <= limit_chars:
        return raw
    if structured != "null" and not is_said(structured, "\n".join(texts)):
        texts.append(structured)
    text = "\n".join(texts)
    if len(text) <= limit_chars:  # it was the repetition that is longer
        return raw
    key, unit = keep(text)
    cut = {"type": "text", "text": _cut(text, limit_chars, key, _parse_records(text))}
    note = {META_KEY: {"key": key, "unit": unit, "total_chars": len(text)}}
    content = [cut, *(block for block, own_text in blocks if own_text is None)]
    return msgspec.json.encode({**result, "content": content, "_meta": {**read_object(result.get("_meta")), **note}})


def _read_block_text(block: msgspec.Raw) -> str | None:
    """The text of a text block, None for any other content."""
    members = read_object(block)
    if read_text(members.get("type")) != "text":
        return None
    return read_text(members["text"]) if "text" in members else ""
