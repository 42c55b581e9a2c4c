"""Sessions of the page: one-time links that the operator makes, and the browsers that came by one.

They are kept in the store, as hashes and with seals, so that a link works once whichever process it is opened at, and a
session goes on at every other one. What the operator's token opened is good as long as that is the token.
"""

import hashlib
import hmac
import secrets
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, get_args

import msgspec

from smart_mcp_proxy.catalog import Catalog, SealedValue, sealed
from smart_mcp_proxy.errors import RefusedError, RequestError
from smart_mcp_proxy.gateway.activity.access import build_access_activity
from smart_mcp_proxy.gateway.admin.roles import NETWORK, Admitted
from smart_mcp_proxy.models import WHOLE, Principal, Role
from smart_mcp_proxy.servers import Author
from smart_mcp_proxy.telemetry import Activity

AGENT_PREFIX: Final = "agent-"
"""Prefix of the ids of tokens' holders."""
ENTRY_PATH: Final = "/ui/enter/"
LINK_S: Final = 300.0
"""Long enough to copy a link from one window to another."""
SESSION_S: Final = 12 * 3_600.0
"""A working day; the next one begins with a new link."""
_LINK: Final = "page-link"
_SESSION: Final = "page-session"
_MOST_BYTES: Final = 64 * 1024
"""Limit on the bytes of each kind: some thousands of them."""
_SECRET_BYTES: Final = 32


class PageLink(msgspec.Struct, frozen=True):
    """A link that opens the page once, and its life in seconds."""

    url: str
    expires_in_s: float


class PageSession(NamedTuple):
    """A browser that is let in.

    Attributes:
        admitted: Whose rights it has: those of whoever made its link.
        csrf: Goes with each change that it makes; other sites cannot know it.
    """

    admitted: Admitted
    csrf: str

    def __repr__(self) -> str:
        return f"<PageSession of {self.admitted.id}>"


class _Kept(NamedTuple):
    """A link or a session as the store has it, and what `PageSessions` knows of the token that opened it."""

    admitted: Admitted
    proved_by: bytes | None


class _Person(msgspec.Struct, frozen=True):
    """Somebody with a role, as the store has them."""

    id: str
    role: Role
    name: str


class PageSessions:
    """Links and sessions of the page.

    Args:
        catalog: Its store keeps them.
        wall: Seconds since the epoch; the catalog's if left out.

    Attributes:
        address: Where a browser finds this gateway; None where it serves no HTTP.
        operator: The operator's token, by which the network proves its right; its digest where the others know that.
        others: Digests of the operator's tokens of other gateways on the store, each as good as that.
        find_holder: Returns whose token is good now, by the holder's id: what that opened ends with it.
        record: Takes activity records.
    """

    def __init__(self, catalog: Catalog, wall: Callable[[], float] | None = None) -> None:
        self._catalog = catalog
        self._wall = wall or catalog.now_s
        self.address: str | None = None
        self.operator = b""
        self.others: Callable[[], Iterable[bytes]] = tuple
        self.find_holder: Callable[[str], Principal | None] = lambda principal: None
        self.record: Callable[[Activity], None] = lambda activity: None

    def __repr__(self) -> str:
        return f"<PageSessions at {self.address or 'no address'}>"

    async def make_link(self, by: Admitted, proved_by: bytes | None = None) -> PageLink:
        """Make a link that lets one browser in with the rights of its maker.

        Args:
            by: The maker.
            proved_by: The digest of another gateway's operator token, if that proved who it is.

        Raises:
            RequestError: This gateway serves no HTTP.
            CatalogError: It could not be stored.
        """
        if self.address is None:
            raise RequestError(
                "This gateway serves no HTTP, so it has no page.",
                hint="Start one that does: mcpproxy serve --http",
                code="page_not_served",
            )
        token = secrets.token_urlsafe(_SECRET_BYTES)
        await self._tidy()
        await self._keep(_LINK, token, by, LINK_S, (proved_by or self.operator) if by == NETWORK else None)
        self.record(build_access_activity("link made", by.id, "page"))
        return PageLink(f"{self.address}{ENTRY_PATH}{token}", LINK_S)

    async def enter(self, token: str) -> str:
        """Use a link up and return the secret of the session that it opens.

        Raises:
            RefusedError: It was used, is too old, or never was a link.
            CatalogError: The store cannot be used; then the link stays good.
        """
        kept = await self._find(_LINK, token)
        # Of all that ask at once, in this process or another, one removes it.
        drop = partial(sealed.drop, kind=_LINK, key=_name(_LINK, token))
        if kept is None or not await self._catalog.write(drop, is_ordered=False):
            raise RefusedError(
                "This link was used already, or is too old.", hint="Make another one: mcpproxy ui", code="link_used"
            )
        return await self.open(kept.admitted, kept.proved_by)

    async def open(self, admitted: Admitted, proved_by: bytes | None = None) -> str:
        """Open a session for somebody who has proved who they are; returns its secret.

        Args:
            admitted: Whose rights it has.
            proved_by: `operator`, or one of `others`, if that token was the proof: it ends with that.
        """
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        await self._keep(_SESSION, secret, admitted, SESSION_S, proved_by)
        self.record(build_access_activity("signed in", admitted.id, "page", role=admitted.role))
        return secret

    async def find(self, secret: str) -> PageSession | None:
        """The session with this secret; None where there is none, or it has ended."""
        kept = await self._find(_SESSION, secret) if secret else None
        return None if kept is None else PageSession(kept.admitted, signature(secret, b"csrf"))

    async def leave(self, secret: str, by: Admitted) -> None:
        """End a session for good."""
        drop = partial(sealed.drop, kind=_SESSION, key=_name(_SESSION, secret))
        await self._catalog.write(drop, is_ordered=False)
        self.record(build_access_activity("signed out", by.id, "page"))

    async def _keep(self, kind: str, token: str, admitted: Admitted, life_s: float, proved_by: bytes | None) -> None:
        author, role, who = admitted
        text = (author if proved_by is None else f"{author} {_proof(token, proved_by)}").encode()
        if who is not None:
            assert role is not None, "nobody without a role is let in"
            text = msgspec.json.encode(_Person(who.id, role, who.name))
        name, ends_s = _name(kind, token), self._wall() + life_s
        box = self._catalog.seals.seal_box(kind, name, text, ends_s)
        value = SealedValue(kind, name, box, uuid.uuid4().hex, ends_s)
        await self._catalog.write(partial(sealed.store, value=value), is_ordered=False)

    async def _find(self, kind: str, token: str) -> _Kept | None:
        find = partial(sealed.find, kind=kind, key=_name(kind, token), now_s=self._wall())
        kept = await self._catalog.read(find)
        if kept is None:
            return None
        box = self._catalog.seals.open_box(kind, kept.key, kept.box, kept.expires_s)
        if box is None:  # of a program that sealed none, or written by no gateway
            return None
        if box.startswith(b"{"):
            return self._recall_person(msgspec.json.decode(box, type=_Person))
        text, _, proof = box.decode().partition(" ")
        opened = (one for one in (self.operator, *self.others()) if hmac.compare_digest(proof, _proof(token, one)))
        by = next(opened, None) if proof else None
        if proof and by is None:
            return None
        known: tuple[Author, ...] = get_args(Author)
        return next((_Kept(Admitted(one), by) for one in known if one == text), None)

    def _recall_person(self, person: _Person) -> _Kept | None:
        """Return a signed-in person as they were let in, the holder of a token as that is now."""
        who: Principal | None = Principal(person.id, WHOLE, person.role, person.name)
        if person.id.startswith(AGENT_PREFIX):
            who = self.find_holder(person.id)
        return None if who is None or who.role is None else _Kept(Admitted("web", who.role, who), None)

    async def _tidy(self) -> None:
        for kind in (_LINK, _SESSION):
            sweep = partial(sealed.drop_oldest, kind=kind, most_bytes=_MOST_BYTES, now_s=self._wall())
            await self._catalog.write(sweep, is_ordered=False)


def signature(secret: str, purpose: bytes) -> str:
    """A proof that only who has the secret can make; it tells nothing of the secret."""
    return hmac.new(secret.encode(), purpose, hashlib.sha256).hexdigest()


def _proof(secret: str, operator: bytes) -> str:
    """Ties a link or a session to the operator's token; without its own secret it tells nothing of that."""
    return signature(secret, b"operator " + operator)


def _name(kind: str, token: str) -> str:
    return hashlib.sha256(f"{kind} {token}".encode()).hexdigest()
