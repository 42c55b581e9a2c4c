"""Memory in front of a store of sign-ins, for as long as that fails."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from smart_mcp_proxy.errors import ConfigError, UpstreamAuthError, UpstreamError
from smart_mcp_proxy.telemetry import fields, get_logger
from smart_mcp_proxy.upstream.oauth.auth_store import SignIn, SignInStore, Stamp

_log = get_logger("upstream")


class RememberingStore:
    """A store of sign-ins that remembers: a failed write is not lost, and the last read is still known.

    Refresh tokens work once. The one that a renewal brought counts here although it could not be stored: the stored
    one is used up.

    Args:
        store: Keeps them.
    """

    def __init__(self, store: SignInStore) -> None:
        self._store = store
        self._unstored: dict[tuple[str, str], SignIn] = {}
        self._known: dict[tuple[str, str], tuple[SignIn, Stamp]] = {}

    def __repr__(self) -> str:
        return f"<RememberingStore, {len(self._unstored)} not stored in {self._store!r}>"

    async def stamps(self, places: Sequence[tuple[str, str]]) -> Sequence[Stamp]:
        """Stamps of what is stored; see `SignInStore`."""
        return await self._store.stamps(places)

    async def read(self, server: str, url: str) -> tuple[SignIn | None, Stamp]:
        """The newest sign-in, and the stamp of the stored one; see `SignInStore`."""
        stored, stamp = await self._store.read(server, url)
        newest = self._newest(server, url, stored)
        self._known.pop((server, url), None)
        if newest is not None:
            self._known[server, url] = newest, stamp
        return newest, stamp

    def recall_entry(self, server: str, url: str) -> tuple[SignIn, Stamp] | None:
        """The sign-in that was read or stored last, and its stamp, for while the store cannot be read."""
        return self._known.get((server, url))

    async def write(self, server: str, url: str, sign_in: SignIn) -> Stamp:
        """Store a sign-in, or remember it and raise; see `SignInStore`."""
        _, stamp = self._known.get((server, url), (sign_in, None))
        self._known[server, url] = sign_in, stamp
        try:
            stamp = await self._store.write(server, url, sign_in)
        except ConfigError:
            self._unstored[server, url] = sign_in
            raise
        self._unstored.pop((server, url), None)
        self._known[server, url] = sign_in, stamp
        return stamp

    async def remove(self, server: str, url: str) -> bool:
        """Forget a sign-in; see `SignInStore`."""
        self._unstored.pop((server, url), None)
        self._known.pop((server, url), None)
        return await self._store.remove(server, url)

    def hold_lock(self, server: str, url: str) -> AbstractAsyncContextManager[None]:
        """Let one at a time change this sign-in; see `SignInStore`."""
        return self._store.hold_lock(server, url)

    async def catch_up(self) -> None:
        """Store what could not be stored; what fails again is tried again with the next call."""
        for server, url in tuple(self._unstored):
            try:
                async with self._store.hold_lock(server, url):
                    try:
                        stored, _ = await self._store.read(server, url)
                        newest = self._newest(server, url, stored)
                    except UpstreamAuthError:  # nobody can open it: there is nothing newer to give way to
                        stored, newest = None, self._unstored.get((server, url))
                    if newest is not None and newest is not stored:
                        await self.write(server, url, newest)
                        _log.warning("the sign-in at server %s is stored again", server, extra=fields(server=server))
            except (ConfigError, UpstreamError) as exc:
                _log.debug("the sign-in at server %s is not stored yet: %s", server, exc)

    def _newest(self, server: str, url: str, stored: SignIn | None) -> SignIn | None:
        """The sign-in that counts: not one that was given back, or replaced by signing in anew."""
        unstored = self._unstored.get((server, url))
        if unstored is None:
            return stored
        if stored is None or stored.obtained_at_s > unstored.obtained_at_s:
            del self._unstored[server, url]
            return stored
        return unstored
