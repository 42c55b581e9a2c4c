"""Tokens that gateways on one database made for themselves: each accepts those of the others.

A gateway that was given neither tokens nor a secret key makes tokens of its own in its data directory. The database
holds their SHA-256, which opens nothing; a row that its gateway no longer confirms counts for nothing, either.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from sqlalchemy import Connection

from smart_mcp_proxy.catalog import Catalog, GatewayToken, TokenKind, confirm_gateway_tokens, find_gateway_tokens
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.telemetry import get_logger

CONFIRM_S: Final = 3_600.0
"""Far less than the day after which a token is no longer accepted; one write an hour costs the database nothing."""

log = get_logger("tokens")


class GatewayTokens:
    """Tokens of the other gateways on a database, and the part of this one in that.

    Args:
        catalog: Its store keeps their digests.
        wall: Seconds since the epoch, by the store's clock.
        clock: Monotonic seconds.
    """

    def __init__(
        self, catalog: Catalog, wall: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._catalog = catalog
        self._wall = wall
        self._clock = clock
        self._replica: str | None = None
        self._accepts: frozenset[TokenKind] = frozenset()
        self._made: Mapping[TokenKind, str] = {}
        self._due_s = 0.0
        self._is_replaced = False
        self._digests: Mapping[TokenKind, frozenset[bytes]] = {}

    def __repr__(self) -> str:
        return f"<GatewayTokens, {sum(map(len, self._digests.values()))} of all gateways>"

    def digests(self, kind: TokenKind) -> Collection[bytes]:
        """SHA-256 of each token of a kind that gateways made; to look one up tells nothing about any token."""
        return self._digests.get(kind, frozenset())

    def share(self, replica: str, tokens: Mapping[TokenKind, str | None] = MappingProxyType({})) -> None:
        """From now on confirm tokens that this gateway made, and accept those of its kinds from others.

        Those that it made before and that are not among them count no longer, at any gateway.

        Args:
            replica: Its name, another one than that of any other gateway on the store, and the same when it restarts.
            tokens: By kind; None where it made none, and accepts those of the others.
        """
        made = {kind: hashlib.sha256(token.encode()).hexdigest() for kind, token in tokens.items() if token is not None}
        self._replica, self._accepts, self._made, self._due_s = replica, frozenset(tokens), made, 0.0

    async def confirm(self) -> None:
        """Stores what is due; tried again with the next call where the store fails."""
        if self._replica is None or self._clock() < self._due_s:
            return
        store = partial(confirm_gateway_tokens, replica=self._replica, digests=self._made, now_s=self._wall())
        try:
            await self._catalog.write(store, is_ordered=False)
        except CatalogError as exc:
            log.debug("the gateway's own tokens are not confirmed: %s", exc)
        else:
            self._due_s = self._clock() + (CONFIRM_S if self._accepts else float("inf"))

    def look(self, connection: Connection) -> tuple[GatewayToken, ...]:
        """Tokens in the store, if they count here; in the store's thread."""
        return find_gateway_tokens(connection, self._wall()) if self._accepts else ()

    def note(self, found: Collection[GatewayToken]) -> None:
        """Accepts what was found, and nothing else."""
        self._digests = {
            kind: frozenset(bytes.fromhex(one.digest) for one in found if one.kind == kind) for kind in self._accepts
        }
        stored = {one.kind: one.digest for one in found if one.replica == self._replica}
        if self._made.keys() - stored.keys():  # the database is another one, or was put back
            self._due_s = 0.0
        elif any(stored[kind] != digest for kind, digest in self._made.items()) and not self._is_replaced:
            self._is_replaced = True
            log.warning(
                "other gateways refuse this one's tokens: there are two named %r on the database. Give each a "
                "MCPPROXY_REPLICA of its own",
                self._replica,
            )
