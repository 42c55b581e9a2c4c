"""Encryption key of request states, kept in the database by gateways without a secret key."""

import secrets
from functools import partial
from typing import Final

from smart_mcp_proxy.catalog import Catalog, gateway_key
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.calls.request_states import RequestStates
from smart_mcp_proxy.secrets.auth_key import KEY_BYTES
from smart_mcp_proxy.telemetry import get_logger

_NAME: Final = "request state"

log = get_logger("inputs")


class StateKey:
    """Brings the key of all gateways on a store to this one's states.

    It is asked for at the start and with heartbeats, never by a call: none waits for the database. Processes on one
    data directory need none of it, their key is a file there that outlives the catalog beside it.

    Args:
        catalog: Its store keeps the key.
        states: Get it.
        is_given: Whether the gateways were given a secret key, from which theirs comes.
    """

    def __init__(self, catalog: Catalog, states: RequestStates, *, is_given: bool) -> None:
        self._catalog = catalog
        self._states = states
        self._is_due = catalog.is_shared and not is_given
        self._has_failed = False

    def __repr__(self) -> str:
        return f"<StateKey {'not had yet' if self._is_due else 'settled'}>"

    async def bring(self) -> None:
        """Take the key from the store, or make it there if this is the first gateway.

        If the store fails, the next call of this method tries again.

        Until then states are sealed with a key of this gateway's own, and go on to be opened with it: a start or a
        call that failed over this would cost more than a question that has to be answered at the same gateway.
        """
        if not self._is_due:
            return
        take = partial(gateway_key, name=_NAME, made=secrets.token_bytes(KEY_BYTES))
        try:
            key = await self._catalog.write(take, is_ordered=False)
        except CatalogError as exc:
            if not self._has_failed:
                log.warning(
                    "until the database can be used, what servers ask is answered at this gateway alone: %s", exc
                )
            self._has_failed = True
            return
        await self._states.share(key)
        self._is_due = False
