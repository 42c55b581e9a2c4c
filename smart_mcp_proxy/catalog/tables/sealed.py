"""SQL of sealed values, leases and keys: what gateways on one store share besides tools and decisions.

Secrets are encrypted before they come here: the store knows no key of theirs. It holds one for what clients keep, where
gateways were given none. What is none, such as whose a page session is or what people were listed, can be read here;
only a gateway can write it (`Seals.seal_box`).
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from sqlalchemy import Connection, delete, or_, select

from smart_mcp_proxy.catalog.recovery.seals import SealedTrust, Seals
from smart_mcp_proxy.catalog.tables.schema import gateway_keys, leases, meta, sealed, seals
from smart_mcp_proxy.catalog.tables.upsert import replace_columns, upsert
from smart_mcp_proxy.models import ToolKey

_ENDED_KEY: Final = "sign_ins_ended"
"""In `meta`."""


class SealedValue(NamedTuple):
    """A value of one kind under one key.

    Attributes:
        kind: What it is part of.
        key: Its name there.
        box: Encrypted, or with a seal.
        stamp: Another one after each change.
        expires_s: When it ends, in seconds since the epoch; None if it does not.
    """

    kind: str
    key: str
    box: bytes
    stamp: str
    expires_s: float | None


def store(connection: Connection, value: SealedValue) -> None:
    """Keeps a value in place of the last one under its key."""
    kept = replace_columns(connection, sealed, "box", "stamp", "expires_s", "size")
    connection.execute(kept, value._asdict() | {"size": len(value.box)})


def find(connection: Connection, kind: str, key: str, now_s: float) -> SealedValue | None:
    """The value under a key; None where there is none, or its time is over."""
    wanted = select(sealed).where(sealed.c.kind == kind, sealed.c.key == key)
    is_alive = or_(sealed.c.expires_s.is_(None), sealed.c.expires_s > now_s)
    row = connection.execute(wanted.where(is_alive)).one_or_none()
    return None if row is None else SealedValue(row.kind, row.key, bytes(row.box), row.stamp, row.expires_s)


def read_stamps(connection: Connection, kind: str) -> dict[str, str]:
    """The stamps of all values of a kind, by key."""
    rows = connection.execute(select(sealed.c.key, sealed.c.stamp).where(sealed.c.kind == kind))
    return {row.key: row.stamp for row in rows}


def read_all(connection: Connection, kind: str) -> dict[str, bytes]:
    """All values of a kind, by key."""
    rows = connection.execute(select(sealed.c.key, sealed.c.box).where(sealed.c.kind == kind))
    return {row.key: bytes(row.box) for row in rows}


def drop(connection: Connection, kind: str, key: str) -> bool:
    """Remove a value; whether there was one."""
    return bool(connection.execute(delete(sealed).where(sealed.c.kind == kind, sealed.c.key == key)).rowcount)


def drop_oldest(connection: Connection, kind: str, most_bytes: int, now_s: float) -> None:
    """Removes all values whose time is over, and of a kind those that end first until the rest fits."""
    connection.execute(delete(sealed).where(sealed.c.expires_s <= now_s))
    newest = select(sealed.c.key, sealed.c.size).where(sealed.c.kind == kind).order_by(sealed.c.expires_s.desc())
    size, surplus = 0, []
    for row in connection.execute(newest):
        size += row.size
        if size > most_bytes:
            surplus.append(row.key)
    for key in surplus:
        drop(connection, kind, key)


def increment_ended_sign_ins(connection: Connection) -> None:
    """Counts one more sign-in of a person that has ended."""
    row = upsert(connection, meta).values(key=_ENDED_KEY, value=1)
    connection.execute(row.on_conflict_do_update(index_elements=[meta.c.key], set_={"value": meta.c.value + 1}))


def read_ended_sign_ins(connection: Connection) -> int:
    """The number of sign-ins of people that have ended."""
    return connection.execute(select(meta.c.value).where(meta.c.key == _ENDED_KEY)).scalar() or 0


def take_lease(connection: Connection, name: str, holder: str, now_s: float, life_s: float) -> bool:
    """Whether `holder` has the lease now, and for `life_s`: nobody else had it, or its time was over."""
    row = upsert(connection, leases).values(name=name, holder=holder, until_s=now_s + life_s)
    # A clock set back far leaves no lease for long; other machines, and who waits for the store, are behind less.
    is_free = or_(leases.c.holder == holder, leases.c.until_s <= now_s, leases.c.until_s > now_s + 2 * life_s)
    fresh = {"holder": row.excluded.holder, "until_s": row.excluded.until_s}
    connection.execute(row.on_conflict_do_update(index_elements=[leases.c.name], set_=fresh, where=is_free))
    has: str = connection.execute(select(leases.c.holder).where(leases.c.name == name)).scalar_one()
    return has == holder


def drop_lease(connection: Connection, name: str, holder: str) -> None:
    """Gives a lease back, if `holder` still has it."""
    connection.execute(delete(leases).where(leases.c.name == name, leases.c.holder == holder))


def gateway_key(connection: Connection, name: str, made: bytes) -> bytes:
    """Store `made` as the key of this name if there is none; return the stored key."""
    wanted = select(gateway_keys.c.key).where(gateway_keys.c.name == name)
    if (stored := connection.execute(wanted).scalar()) is not None:  # also where nothing can be written
        return bytes(stored)
    row = upsert(connection, gateway_keys).values(name=name, key=made)
    # Where another is about to commit one, this waits for it, and the next statement sees what was committed.
    connection.execute(row.on_conflict_do_nothing(index_elements=[gateway_keys.c.name]))
    return bytes(connection.execute(wanted).scalar_one())


_TRUST: Final = "trust"
"""In `seals`."""


def read_trust(connection: Connection, with_: Seals, *, is_put_back: bool = False) -> SealedTrust | None:
    """Read the facts that first lists and policies go by; None where another key has sealed them, or none."""
    row = connection.execute(select(seals.c.content, seals.c.seal).where(seals.c.name == _TRUST)).one_or_none()
    return None if row is None else with_.open_trust(row.content, row.seal, is_put_back=is_put_back)


def store_trust(connection: Connection, with_: Seals, trust: SealedTrust, *, step: int = 1) -> None:
    """Keep, sealed, what first lists and policies go by, in a later edition than whatever stands there.

    Args:
        connection: In a transaction that writes.
        with_: Of the store.
        trust: The facts.
        step: 0 where nothing was decided: a store that lacks this change alone is as good as one that has it.
    """
    stands = connection.execute(select(seals.c.content).where(seals.c.name == _TRUST)).scalar()
    with suppress(ValueError, TypeError, KeyError):
        trust = trust._replace(edition=max(trust.edition, SealedTrust.read(stands or "{}").edition))
    trust = trust._replace(edition=max(trust.edition, with_.edition) + step)
    with_.note_own(trust.edition)
    content = trust.write()
    kept = replace_columns(connection, seals, "content", "seal")
    connection.execute(kept, {"name": _TRUST, "content": content, "seal": with_.seal(_TRUST, content)})


def note_trust(
    connection: Connection,
    with_: Seals,
    *,
    heard: Iterable[str] = (),
    blocked: Iterable[ToolKey] = (),
    lifted: Iterable[ToolKey] = (),
) -> None:
    """Note first lists, blocks and lifted blocks; nothing where another key has sealed those before."""
    if (trust := read_trust(connection, with_)) is not None:
        noted = trust._replace(heard=trust.heard.union(heard), blocked=trust.blocked.union(blocked).difference(lifted))
        if noted != trust:
            store_trust(connection, with_, noted)
