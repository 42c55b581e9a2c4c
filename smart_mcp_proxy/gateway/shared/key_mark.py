"""Mark of the secret key in a shared store: a gateway with another key is noticed at its start."""

import uuid
from functools import partial
from typing import Final

from sqlalchemy import Connection

from smart_mcp_proxy.catalog import CALL_WAIT_S, Catalog, SealedValue, sealed
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.secrets.sealing import SealBrokenError, SecretKey, open_sealed, seal
from smart_mcp_proxy.telemetry import get_logger

_KIND: Final = "secret-key"
_NAME: Final = "mark"
_EFFECT: Final = (
    "what the one seals is nothing to the other, so people, agents and servers' questions are refused at one of them, "
    "and servers are to be signed in to again"
)

log = get_logger("serve")


async def mark_secret_key(catalog: Catalog, secret: SecretKey | None) -> None:
    """Leave a mark of this gateway's key, and warn if the one before it had another.

    Else nothing tells of it but what it breaks: a client that is refused throws its sign-in away.

    Args:
        catalog: Its store is shared.
        secret: This gateway's; None where it has none.
    """
    key = None if secret is None else secret.key(_KIND)
    try:
        swap = partial(_swap_mark, key=key, now_s=catalog.now_s())
        before = await catalog.write(swap, is_ordered=False, limit_s=CALL_WAIT_S)
    except CatalogError:  # it is told of elsewhere that the store fails
        return
    if before is None:
        return
    if key is None:
        log.warning(
            "the gateway that started before this one on the database has a MCPPROXY_SECRET_KEY, and this one has "
            "none: %s. Give it to all of them",
            _EFFECT,
        )
    elif not _can_open_mark(key, before):
        log.warning(
            "the gateway that started before this one on the database has another MCPPROXY_SECRET_KEY: %s. Give all of "
            "them the same; after a change of key this is said once",
            _EFFECT,
        )


def _swap_mark(connection: Connection, key: bytes | None, now_s: float) -> SealedValue | None:
    """The mark before, in whose place the present one is."""
    before = sealed.find(connection, _KIND, _NAME, now_s)
    if key is None:
        sealed.drop(connection, _KIND, _NAME)
    elif before is None or not _can_open_mark(key, before):
        box = seal(key, b"", _KIND.encode())
        sealed.store(connection, SealedValue(_KIND, _NAME, box, uuid.uuid4().hex, None))
    return before


def _can_open_mark(key: bytes, mark: SealedValue) -> bool:
    try:
        open_sealed(key, mark.box, _KIND.encode())
    except SealBrokenError:
        return False
    return True
