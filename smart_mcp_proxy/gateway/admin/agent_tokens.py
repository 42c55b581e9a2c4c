"""Tokens of agents and of gateways, known to every process within two seconds."""

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection

from smart_mcp_proxy.catalog import UNSEALED, AgentToken, Catalog, GatewayToken, TokenKind, agent_tokens
from smart_mcp_proxy.errors import CatalogError, ConflictError, RequestError
from smart_mcp_proxy.gateway.activity.access import build_access_activity
from smart_mcp_proxy.gateway.admin.roles import OWNER, Admitted, find_access
from smart_mcp_proxy.models import CallVariant, Principal, Reach, Role
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.telemetry import Activity, get_logger, spawn

PREFIX: Final = "mcpp_"
"""By which people and scanners for leaked secrets recognise one."""
TOKEN_BYTES: Final = 32
NAME_CHARS: Final = 64
SHORTEST_LIFE_S: Final = 1.0
LONGEST_LIFE_S: Final = 10 * 365 * 86_400.0
"""Ten years; what is to last longer has no end, and says so."""
KNOWN_SHOWN: Final = 20
"""Known names that an error shows."""
FOLLOW_S: Final = 1.0
"""Writes to the database are seen by every process within 2 s. Source: docs/design/processes.md#several-gateways"""
USE_NOTED_S: Final = 30.0
"""Seconds between two writes of the uses of tokens: a person asks whether one still is used, not for the second."""
CONFIRM_S: Final = 3_600.0
"""Far less than the day after which a token is no longer accepted; one write an hour costs the database nothing."""

log = get_logger("tokens")


class TokenNotFoundError(RequestError):
    """No token that is still good has this name."""

    code = "token_not_found"
    http_status = 404


class Scope(msgspec.Struct, frozen=True):
    """Servers, profile and permissions of a new token.

    Attributes:
        servers: The servers it reaches; None for all.
        access: The most that a tool called with it may do.
        profile: The profile it is held to; None for none.
        expires_in_s: Its life in seconds, from one to ten years of them; None for no end.
        role: What its holder may do at the page and over REST; None for nothing.
    """

    servers: tuple[str, ...] | None = None
    access: CallVariant = "read"
    profile: str | None = None
    expires_in_s: float | None = None
    role: Role | None = None

    def require_known(self, servers: Collection[str], profiles: Collection[str]) -> None:
        """Require that the named servers and profile are configured.

        A slip would make a token for nothing.

        Raises:
            RequestError: One of them is not.
        """
        for noun, known, named in (
            ("Server", servers, self.servers or ()),
            ("Profile", profiles, () if self.profile is None else (self.profile,)),
        ):
            for name in named:
                if name not in known:
                    hint = f"Known: {', '.join(sorted(known)[:KNOWN_SHOWN]) or 'none'}."
                    raise RequestError(f"{noun} {name[:NAME_CHARS]!r} is not configured.", hint=hint)


class NewToken(msgspec.Struct, frozen=True):
    """A token that has just been made: the only moment at which it can be shown. Its repr does not."""

    secret: str
    token: AgentToken

    def __repr__(self) -> str:
        return f"<NewToken {self.token.name!r}>"


def _require_access(scope: Scope) -> None:
    """Pass if the role of a token allows its access.

    Raises:
        RequestError: It does not.
    """
    if scope.role is not None and find_access(scope.role) == "read" != scope.access:
        raise RequestError(
            f"The role {scope.role} does not allow {scope.access} access.", hint="Use --role operator or more."
        )


class _Holder(NamedTuple):
    """A token's holder and its expiry in seconds since the epoch; None for no expiry."""

    principal: Principal
    id: int
    expires_s: float | None


class GatewayTokens:
    """Tokens that gateways on one database made for themselves: each accepts those of the others.

    A gateway that was given neither tokens nor a secret key makes tokens of its own in its data directory. The database
    holds their SHA-256, which opens nothing; a row that its gateway no longer confirms counts for nothing, either.

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
        store = partial(
            agent_tokens.confirm_gateway_tokens, replica=self._replica, digests=self._made, now_s=self._wall()
        )
        try:
            await self._catalog.write(store, is_ordered=False)
        except CatalogError as exc:
            log.debug("the gateway's own tokens are not confirmed: %s", exc)
        else:
            self._due_s = self._clock() + (CONFIRM_S if self._accepts else float("inf"))

    def look(self, connection: Connection) -> tuple[GatewayToken, ...]:
        """Tokens in the store, if they count here; in the store's thread."""
        return agent_tokens.find_gateway_tokens(connection, self._wall()) if self._accepts else ()

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


class AgentTokens:
    """The agent tokens of a catalog.

    Args:
        catalog: Keeps them.
        wall: Seconds since the epoch, by which tokens end, whichever process looks; the catalog's if left out.

    Attributes:
        of_gateways: Those that gateways made for themselves, followed together with these.
        is_current: Whether the last attempt to read them succeeded.
        record: Takes activity records.
    """

    def __init__(self, catalog: Catalog, wall: Callable[[], float] | None = None) -> None:
        self._catalog = catalog
        self._wall = wall or catalog.now_s
        self._holders: Mapping[bytes, _Holder] = {}
        self._makers: Mapping[str, str] = {}
        self._used: dict[int, float] = {}
        self._told: frozenset[int] = frozenset()
        self.is_current = False
        self.record: Callable[[Activity], None] = lambda activity: None
        self.of_gateways = GatewayTokens(catalog, self._wall)

    def __repr__(self) -> str:
        return f"<AgentTokens, {len(self._holders)} good ones>"

    def find_principal(self, digest: bytes) -> Principal | None:
        """Whose token has this SHA-256; None if none has that is good now. A look-up.

        What is looked up is a hash: how long that takes tells nothing about any token.
        """
        holder = self._holders.get(digest)
        if holder is None:
            return None
        now_s = self._wall()
        if holder.expires_s is not None and now_s >= holder.expires_s:
            return None
        self._used[holder.id] = now_s
        return holder.principal

    def find_holder(self, principal: str) -> Principal | None:
        """Return the holder of a token that is good now, by their id; None where there is none."""
        now_s = self._wall()
        good = (each for each in self._holders.values() if each.expires_s is None or now_s < each.expires_s)
        return next((each.principal for each in good if each.principal.id == principal), None)

    def find_person(self, principal: str) -> str:
        """Return the id of the person who made the token that a principal holds, else the principal's own."""
        return self._makers.get(principal, principal)

    async def create(self, name: str, scope: Scope, by: Admitted = OWNER) -> NewToken:
        """Makes a token, good from now on.

        Args:
            name: What people call it.
            scope: What it allows.
            by: Who makes it; what a person's token makes is the person's.

        Raises:
            RequestError: The name is taken, or not fit for one, the life is too short or too long, or the role does
                not allow the access.
            ConflictError: The name is taken, or no decision counts.
            CatalogError: It cannot be sealed, or stored.
        """
        if not name.isprintable() or not name.strip() or len(name) > NAME_CHARS:
            raise RequestError(
                f"{name[:NAME_CHARS]!r} is no name for a token.", hint=f"Use 1 to {NAME_CHARS} printable characters."
            )
        life_s = scope.expires_in_s
        if life_s is not None and not SHORTEST_LIFE_S <= life_s <= LONGEST_LIFE_S:
            raise RequestError(
                f"A token cannot end in {life_s:g} seconds.",
                hint=f"Use {SHORTEST_LIFE_S:.0f} to {LONGEST_LIFE_S:.0f} (ten years), or give it no end.",
            )
        _require_access(scope)
        self._catalog.seals.require_kept()
        if not self._catalog.is_sealed:
            raise ConflictError(f"No token was made: {UNSEALED}.", hint="Run that, or bring the key back.")
        secret = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        now_s = self._wall()
        token = AgentToken(
            name=name,
            hash=hashlib.sha256(secret.encode()).hexdigest(),
            created_s=now_s,
            expires_s=None if life_s is None else now_s + life_s,
            servers=scope.servers,
            access=scope.access,
            profile=scope.profile,
            role=scope.role,
            made_by=by.person if by.principal else "",
        )
        if not await self._catalog.write_through(partial(agent_tokens.store, token=token, seals=self._catalog.seals)):
            raise ConflictError(
                f"There is a token named {name!r} already.",
                hint=f"Use another name, or revoke it first: mcpproxy token revoke {shell_word(name)}",
                code="token_exists",
            )
        await self.refresh()
        made = NewToken(secret, next(one for one in await self.tokens() if one.hash == token.hash))
        facts = msgspec.to_builtins(scope) | {"id": made.token.principal_id}
        self.record(build_access_activity("token made", by.id, name, **facts))
        return made

    async def revoke(self, name: str, by: Admitted = OWNER) -> None:
        """Ends a token for good, here at once and in other processes within two seconds.

        Raises:
            TokenNotFoundError: None that is still good has this name.
        """
        revoke = partial(agent_tokens.revoke, name=name, now_s=self._wall(), seals=self._catalog.seals)
        if not await self._catalog.write_through(revoke):
            raise TokenNotFoundError(
                f"No token is named {name[:NAME_CHARS]!r}, or it is revoked already.",
                hint="See them all with: mcpproxy token list",
            )
        self.record(build_access_activity("token revoked", by.id, name))
        await self.refresh()

    async def tokens(self) -> tuple[AgentToken, ...]:
        """All tokens that were ever made, oldest first, with uses that are not stored yet."""
        stored = await self._catalog.read(partial(agent_tokens.find, seals=self._catalog.seals))
        return tuple(replace(one, last_used_s=self._used.get(one.id, one.last_used_s)) for one in stored)

    async def refresh(self) -> None:
        """Reads the tokens that are good now; they and no others are known from now on."""
        find = partial(agent_tokens.find, seals=self._catalog.seals, good_at_s=self._wall())
        stored, of_gateways = await self._catalog.read(lambda at: (find(at), self.of_gateways.look(at)))
        self.of_gateways.note(of_gateways)
        good = [one for one in stored if not one.is_altered]
        self._holders = {bytes.fromhex(one.hash): _holder(one) for one in good}
        self._makers = {one.principal_id: one.made_by for one in good if one.made_by}
        self.is_current = True
        self._tell_altered([one for one in stored if one.is_altered])

    def _tell_altered(self, altered: Sequence[AgentToken]) -> None:
        """Warn of tokens that open nothing, once of each, unless nothing that was decided counts."""
        if self._catalog.is_sealed:
            for one in altered:
                if one.id not in self._told:
                    log.warning(
                        "token %r (%s) was changed in the catalog by something else than a gateway, and opens "
                        "nothing. Revoke it, and make another: mcpproxy token revoke %s",
                        one.name[:NAME_CHARS],
                        one.principal_id,
                        shell_word(one.name[:NAME_CHARS]),
                    )
            self._told = frozenset(one.id for one in altered)

    @asynccontextmanager
    async def follow_tokens(self) -> AsyncIterator[None]:
        """While open, what other processes do to the tokens is known here."""
        await self.of_gateways.confirm()
        await self._refresh_quietly()
        task = spawn(self._follow(), "agent tokens")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await self._store_uses()

    async def _follow(self) -> None:
        clock = asyncio.get_running_loop().time
        noted_s = clock()
        while True:
            await self._catalog.wait_change("tokens", FOLLOW_S)
            await self.of_gateways.confirm()
            await self._refresh_quietly()
            if clock() - noted_s >= USE_NOTED_S:
                noted_s = clock()
                await self._store_uses()

    async def _refresh_quietly(self) -> None:
        """While the file cannot be read, what is known holds, and each token's end."""
        try:
            await self.refresh()
        except CatalogError as exc:
            self.is_current = False
            log.debug("agent tokens are not read: %s", exc)

    async def _store_uses(self) -> None:
        used, self._used = self._used, {}
        if not used:
            return
        try:
            await self._catalog.write(partial(agent_tokens.note_use, used=used))
        except CatalogError as exc:
            log.debug("uses of agent tokens are not stored: %s", exc)
            self._used = used | self._used


def _holder(token: AgentToken) -> _Holder:
    servers = None if token.servers is None else frozenset(token.servers)
    reach = Reach(servers, token.access, token.profile)
    who = Principal(token.principal_id, reach)
    if token.role is not None:
        who = Principal(who.id, reach, token.role, token.name, token.made_by)
    return _Holder(who, token.id, token.expires_s)
