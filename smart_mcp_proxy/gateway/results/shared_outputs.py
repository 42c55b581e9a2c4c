"""Cut outputs in a store that gateways share, so that each of them can answer `read_output`."""

import asyncio
import hashlib
import hmac
import uuid
from functools import partial
from typing import Final

import msgspec

from smart_mcp_proxy.catalog import CALL_WAIT_S, Catalog, SealedValue, sealed
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.secrets.sealing import SealBrokenError, open_sealed, seal
from smart_mcp_proxy.telemetry import get_logger, spawn

_KIND: Final = "output"
_KEEP_BYTES: Final = 256 * 1024 * 1024
"""Of all gateways together, encrypted."""
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
