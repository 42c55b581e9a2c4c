"""Progress of sign-ins at servers, kept in the store for the other processes.

A browser's next request may reach another one. Only the process that began a sign-in can finish it: the others show how
far it has come, and leave the address at which the browser ended for it.
"""

import hashlib
import json
import uuid
from functools import partial
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec

from smart_mcp_proxy.catalog import Catalog, SealedValue, drop_sealed, find_sealed, store_sealed
from smart_mcp_proxy.secrets.sealing import SealBrokenError, SecretKey, open_sealed, seal
from smart_mcp_proxy.settings import Settings

SignInState = Literal["none", "waiting", "done", "failed"]

_PROGRESS: Final = "sign-in-progress"
_ADDRESS: Final = "sign-in-address"
_LIFE_S: Final = 3_600.0
"""An end that nobody looked at for so long is not worth showing."""


class SignInAttempt(msgspec.Struct, frozen=True):
    """Progress of one sign-in.

    Attributes:
        holder: The process that began it.
        state: none where none was begun, waiting for the person, done, or failed.
        url: Where the person signs in.
        problem: Why it failed.
        hint: What to do about it.
    """

    holder: str
    state: SignInState
    url: str = ""
    problem: str = ""
    hint: str = ""

    def ends_at(self, address: str) -> bool:
        """Whether it waits for a browser that was sent to this address."""
        mark = _parse_oauth_state(address)
        return self.state == "waiting" and mark is not None and mark == _parse_oauth_state(self.url)


class SignInProgress:
    """Progress by server, for all processes on a store.

    Args:
        catalog: Its store keeps it.
        key: What encrypts it; None in a file of the user's own.

    Every method raises `CatalogError` where the store cannot be used.
    """

    def __init__(self, catalog: Catalog, key: bytes | None) -> None:
        self._catalog = catalog
        self._key = key
        self.holder = uuid.uuid4().hex
        """This process."""

    def __repr__(self) -> str:
        return f"<SignInProgress in {self._catalog!r}>"

    async def tell(self, server: str, progress: SignInAttempt) -> None:
        """Store the progress of the sign-in at a server, in place of that of the last one."""
        await self._keep(_PROGRESS, server, msgspec.json.encode(progress))

    async def find(self, server: str) -> SignInAttempt | None:
        """Return the progress of the last sign-in at a server; None where none is known."""
        kept = await self._find(_PROGRESS, server)
        return None if kept is None else msgspec.json.decode(kept, type=SignInAttempt)

    async def leave(self, server: str, address: str) -> None:
        """Leave the address at which the browser ended to the process that waits for it."""
        await self._keep(_ADDRESS, server, address.encode())

    async def take_address(self, server: str) -> str | None:
        """The address that was left for the sign-in at a server, once; None where none was."""
        kept = await self._find(_ADDRESS, server)
        if kept is None:
            return None
        await self._catalog.write(partial(drop_sealed, kind=_ADDRESS, key=_name(_ADDRESS, server)), is_ordered=False)
        return kept.decode()

    async def _keep(self, kind: str, server: str, data: bytes) -> None:
        box = data if self._key is None else seal(self._key, data, _purpose(kind, server))
        expires_s = self._catalog.now_s() + _LIFE_S
        value = SealedValue(kind, _name(kind, server), box, uuid.uuid4().hex, expires_s)
        await self._catalog.write(partial(store_sealed, value=value), is_ordered=False)

    async def _find(self, kind: str, server: str) -> bytes | None:
        name, now_s = _name(kind, server), self._catalog.now_s()
        value = await self._catalog.read(partial(find_sealed, kind=kind, key=name, now_s=now_s))
        if value is None or self._key is None:
            return None if value is None else value.box
        try:
            return open_sealed(self._key, value.box, _purpose(kind, server))
        except SealBrokenError:  # of gateways with another key: nothing for this one
            return None


def sign_in_progress(catalog: Catalog, settings: Settings, *, is_alone: bool) -> SignInProgress | None:
    """The progress that all gateways and workers on a catalog share; None where there is one alone.

    Args:
        catalog: Of this gateway.
        settings: With the key of what gateways share.
        is_alone: Whether it is its gateway's only worker.
    """
    if catalog.is_shared:
        secret = SecretKey.of(settings)
        return None if secret is None else SignInProgress(catalog, secret.key(_PROGRESS))
    return None if is_alone else SignInProgress(catalog, None)


def _parse_oauth_state(url: str) -> str | None:
    """The `state` of OAuth in an address; None where there is none."""
    try:
        return parse_qs(urlsplit(url).query).get("state", [None])[0]
    except ValueError:
        return None


def _name(kind: str, server: str) -> str:
    return hashlib.sha256(_purpose(kind, server)).hexdigest()


def _purpose(kind: str, server: str) -> bytes:
    return json.dumps([kind, server]).encode()
