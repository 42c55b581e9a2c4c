"""Lists of servers that list each person something of their own: one catalog, and who was listed what.

A definition is stored and approved once, whoever it is listed to. Names and hashes of what each person was listed are
kept beside it, so that after a restart, and at other gateways on the store, each person still sees their own part. They
are no secret: the store has them readable, and sealed, so that nobody but a gateway can show a person more.
"""

import asyncio
import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection

from smart_mcp_proxy.catalog import Catalog, SealedValue, change_hash, sealed
from smart_mcp_proxy.errors import CatalogError, UpstreamError
from smart_mcp_proxy.gateway.indexing.list_sync import Kind
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.names import identity_on
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream import PersonalUpstream, ToolListing, Upstream

_KIND: Final = "person-list"
_LOOK_S: Final = 1.0
"""Between two looks at what other gateways stored. Source: docs/design/processes.md#several-gateways"""
_NOTHING: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({})

log = get_logger("lists")


class _Stored(msgspec.Struct, frozen=True):
    """List of one server, or of one shelf of it, for one person."""

    person: str
    place: str
    hashes: dict[str, str]


class PersonLists:
    """Names and hashes of what was listed to each person, the same at all gateways on a store.

    Args:
        catalog: Its store keeps them.
        changed: Told when somebody's part is another one.
    """

    def __init__(self, catalog: Catalog, changed: Callable[[], None]) -> None:
        self._catalog = catalog
        self._changed = changed
        self._stamps: Mapping[str, str] = {}
        self._listed: dict[str, Mapping[str, Mapping[str, str]]] = {}
        self._unstored: set[tuple[str, str]] = set()

    def __repr__(self) -> str:
        return f"<PersonLists of {len(self._listed)} people>"

    def listed_to(self, person: str) -> Mapping[str, Mapping[str, str]]:
        """Change hashes by name, by server or shelf; the same object until they change."""
        return self._listed.get(person, _NOTHING)

    def is_brought(self, person: str, server: str) -> bool:
        """Whether what a server listed to a person has reached the catalog."""
        snapshot = self._catalog.snapshot
        hashes = self.listed_to(person).get(server)
        if not hashes:
            return hashes is not None
        keys = {ToolKey(server, name): hash_ for name, hash_ in hashes.items()}
        stored = ((snapshot.by_key.get(key), hash_) for key, hash_ in keys.items())
        is_shown = any(record is not None and record.change_hash == hash_ for record, hash_ in stored)
        return is_shown or any(key in snapshot.withheld for key in keys)

    def keep_others(self, place: str, present: Collection[str]) -> Callable[[Connection | None, set[str]], set[str]]:
        """Return what says which definitions stay: those listed to people who are not present.

        It looks once more in the transaction that stores the list: a gateway stores whom it lists what before it stores
        the definitions, so nothing that another one has stored meanwhile is taken for gone.
        """
        lists = (each.get(place, {}) for person, each in self._listed.items() if person not in present)
        known = {name for each in lists for name in each}

        def keep(connection: Connection | None, gone: set[str]) -> set[str]:
            if connection is None or gone <= known:
                return gone & known
            boxes = sealed.read_all(connection, _KIND).items()
            stored = [each for key, box in boxes if (each := self._open(key, box)) is not None]
            theirs = (each.hashes for each in stored if each.place == place and each.person not in present)
            return gone & known.union(*theirs)

        return keep

    async def note(self, person: str, place: str, hashes: dict[str, str]) -> None:
        """Keep what a person was listed, in place of the last list.

        Raises:
            CatalogError: It cannot be kept; it holds here all the same.
        """
        if self.listed_to(person).get(place) == hashes and (person, place) not in self._unstored:
            return
        self._unstored.add((person, place))
        self._take(_Stored(person, place, hashes))
        self._changed()
        key = hashlib.sha256(json.dumps([person, place]).encode()).hexdigest()
        box = self._catalog.seals.seal_box(_KIND, key, msgspec.json.encode(_Stored(person, place, hashes)))
        value = SealedValue(_KIND, key, box, uuid.uuid4().hex, None)
        await self._catalog.write(partial(sealed.store, value=value), is_ordered=False)
        self._unstored.discard((person, place))

    def _open(self, key: str, box: bytes) -> _Stored | None:
        """Read a stored list; None where something else than a gateway wrote it."""
        data = self._catalog.seals.open_box(_KIND, key, box)
        return None if data is None else msgspec.json.decode(data, type=_Stored)

    def _take(self, stored: _Stored) -> None:
        self._listed[stored.person] = {**self.listed_to(stored.person), stored.place: stored.hashes}

    async def refresh(self) -> None:
        """Take up what other gateways stored, and after a start what this one did.

        Raises:
            CatalogError: The store cannot be read.
        """
        stamps = await self._catalog.read(partial(sealed.read_stamps, kind=_KIND))
        if stamps == self._stamps:
            return
        boxes = await self._catalog.read(partial(sealed.read_all, kind=_KIND))
        for key, box in boxes.items():
            if stamps.get(key) != self._stamps.get(key):
                if (stored := self._open(key, box)) is None:
                    log.warning("what a person was listed was changed in the catalog by something else than a gateway")
                elif self.listed_to(stored.person).get(stored.place) != stored.hashes:
                    self._take(stored)
                    self._changed()
        self._stamps = stamps

    async def follow(self, is_used: Callable[[], bool]) -> None:
        """Take up what other gateways store, as long as it runs.

        Args:
            is_used: Whether any server lists each person something of their own.
        """
        while True:
            if is_used():
                try:
                    await self.refresh()
                except CatalogError as exc:
                    log.debug("what people were listed cannot be read: %s", exc)
            await asyncio.sleep(_LOOK_S)


def for_people(kinds: Sequence[Kind], lists: PersonLists, catalog: Catalog) -> tuple[Kind, ...]:
    """The kinds, each fetched on every person's connection where each has their own, and noted for them.

    Args:
        kinds: All that are listed.
        lists: Gets what each person was listed.
        catalog: Says what of one name was listed before.
    """
    return tuple(replace(kind, fetch=partial(_fetch_for_people, kind, lists, catalog)) for kind in kinds)


async def _fetch_for_people(kind: Kind, lists: PersonLists, catalog: Catalog, upstream: Upstream) -> ToolListing:
    """List for all people together: those who are connected now, and those who were before.

    Raises:
        UpstreamError: Nobody's list can be had.
    """
    if not isinstance(upstream, PersonalUpstream):
        return await kind.fetch(upstream)
    place = kind.place(upstream.name)
    found: dict[str, ToolListing] = {}
    failures: dict[str, UpstreamError] = {}
    for person, connection in upstream.list_connected():
        try:
            found[person] = await kind.fetch(connection)
        except UpstreamError as exc:
            log.warning("'%s' did not list its %s to %s: %s", upstream.name, kind.name, person, exc)
            failures[person] = exc
    upstream.unlisted[kind.name] = set(failures)
    if failures and not found:
        raise _hide_words(next(iter(failures.values())))
    await lists.refresh()
    hashes = await asyncio.to_thread(_hash_lists, place, found)
    for person, theirs in hashes.items():
        await lists.note(person, place, {name: next(iter(each)) for name, each in theirs.items()})
    merged = await asyncio.to_thread(_merge_lists, catalog.get_listed_hashes(place) or {}, hashes)
    log.debug("'%s': %d people's lists are one of %d definitions", upstream.name, len(found), len(merged))
    first = next(iter(found.values()), ToolListing())
    return replace(first, definitions=merged, keep=lists.keep_others(place, found))


def _hide_words(error: UpstreamError) -> UpstreamError:
    """Return the error without the words of the server, which were for one person; everybody reads it."""
    hidden = copy(error)
    hidden.message, hidden.said = error.message.removesuffix(error.said).rstrip(), ""
    return hidden


_ByHash = dict[str, dict[str, Mapping[str, Any]]]
"""Definition by its hash, by name."""


def _hash_lists(place: str, found: Mapping[str, ToolListing]) -> dict[str, _ByHash]:
    member = identity_on(place)
    return {
        person: {each[member]: {change_hash(place, each): each} for each in listing.definitions}
        for person, listing in found.items()
    }


def _merge_lists(known: Mapping[str, str], hashes: Mapping[str, _ByHash]) -> tuple[Mapping[str, Any], ...]:
    """Merge lists for the catalog; of two definitions of one name the one that is known already stays."""
    merged: dict[str, Mapping[str, Any]] = {}
    for theirs in hashes.values():
        for name, by_hash in theirs.items():
            hash_, definition = next(iter(by_hash.items()))
            if name not in merged or known.get(name) == hash_:
                merged[name] = definition
    return tuple(merged.values())
