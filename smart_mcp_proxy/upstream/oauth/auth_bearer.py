"""Access token of one server in use: renewed ahead of its expiry, and once when refused."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from smart_mcp_proxy.errors import ConfigError, UpstreamAuthError, UpstreamError
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import await_shielded, get_logger, secrets_hidden, spawn
from smart_mcp_proxy.upstream.oauth.auth_proofs import Proofs
from smart_mcp_proxy.upstream.oauth.auth_store import EndedSignInError, RememberingStore, SignIn, Stamp

if TYPE_CHECKING:
    from smart_mcp_proxy.upstream.oauth.auth_flow import SignInFlow

_AHEAD_S: Final = 300.0
_AHEAD_SHARE: Final = 0.2
"""A token is renewed this long before its end, but no earlier than in the last fifth of its life."""
_SPREAD: Final = 1.5
"""Up to so many times that long, so that processes and servers do not all renew at once."""
_LOOK_S: Final = 30.0
"""Longest sleep of the timer: a computer that slept meanwhile has its wall clock moved, not the loop's."""
_RETRY_S: Final = (5.0, 300.0)
"""Pause after a renewal that failed for the moment: first, and at most."""
_JUST_HAD_S: Final = 5.0
"""A token that is refused this soon after it was had would not be bettered by another."""
_CLOSE_S: Final = 3.0
_WANTED_CHARS: Final = 2_000
"""Limit on scopes that a server asks for one after the other; a page to consent to more is none that anybody reads."""

_log = get_logger("upstream")


def renewal_due_s(sign_in: SignIn, rng: random.Random) -> float | None:
    """When the token is to be renewed, in seconds since the epoch; None if nobody said when it ends."""
    if not sign_in.expires_at_s:
        return None
    life_s = sign_in.expires_at_s - sign_in.obtained_at_s
    return sign_in.expires_at_s - min(_AHEAD_S, _AHEAD_SHARE * life_s) * rng.uniform(1.0, _SPREAD)


@dataclass(eq=False, repr=False)
class Bearer:
    """The access token sent to one server.

    Other processes may renew it, too: refresh tokens work once.

    Attributes:
        config: The server, expanded.
        flow: Renews the sign-in.
        store: Shares it with other processes.
        now: Seconds since the epoch, as in what is stored.
        rng: Source of jitter.
        on_lost: Told once why the sign-in is over, if that happens while it is in use.
        proofs: Proves the key that the token is bound to; None for one that is bound to none.
        stamp: Which state of the stored sign-in is in use.
        is_open: Whether a connection uses it.
    """

    config: ServerConfig
    flow: "SignInFlow"
    store: RememberingStore
    now: Callable[[], float] = time.time
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.on_lost: Callable[[UpstreamAuthError], None] = lambda _: None
        self.proofs: Proofs | None = None
        self.stamp: Stamp = None
        self.is_open = False
        self.server, self.url = self.config.sign_in_place
        self._held: SignIn | None = None
        self._due_s: float | None = None
        self._hidden = ExitStack()
        self._renewal: asyncio.Future[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._is_changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Bearer {self.server}, {'open' if self.is_open else 'closed'}>"

    async def open(self) -> None:
        """Begins to use the sign-in, and to keep it fresh.

        Raises:
            UpstreamAuthError: There is none, or it is over.
            UpstreamError: It has to be renewed and cannot be at present.
        """
        held = await self._read_or_known()
        if held is None and self.flow.needs_person:
            raise self.flow.build_ended_error("Nobody is signed in")
        self.is_open = True
        self._adopt(held)
        try:
            await self.token()
        except BaseException:
            await self.close()
            raise
        self._timer = spawn(self._keep_fresh(), f"upstream-sign-in-{self.server}")

    async def close(self) -> None:
        """Ends the use; a renewal under way may finish, for the token before it is worth nothing by then."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None and not self._renewal.done():
            await asyncio.wait({self._renewal}, timeout=_CLOSE_S)
        self._hidden.close()

    async def token(self) -> str:
        """The access token, good at this moment as far as is known.

        Raises:
            UpstreamAuthError: The sign-in is over.
            UpstreamError: It has to be renewed and cannot be at present.
        """
        if self._held is None or not self._is_good(self._held):
            await self._renew("" if self._held is None else self._held.access_token)
        assert self._held is not None
        return self._held.access_token

    async def renew_refused_token(self, refused: str) -> bool:
        """Whether there is another token than the one that the server refused just now.

        Raises:
            UpstreamAuthError: The sign-in is over.
            UpstreamError: It cannot be renewed at present.
        """
        held = self._held
        if held is None or held.access_token != refused:
            return held is not None
        if self.now() - held.obtained_at_s < _JUST_HAD_S:
            return False
        await self._renew(refused)
        return True

    async def reload(self) -> None:
        """Takes up what another process stored; if it signed out, the sign-in is over.

        Raises:
            UpstreamError: The store fails; the stamp stays as it was.
        """
        try:
            held = await self._read()
            if held is None and self.flow.needs_person:
                raise self.flow.build_ended_error("Somebody has signed out")
        except UpstreamAuthError as exc:
            self.on_lost(exc)
        else:
            if held is not None:
                self._adopt(held)

    async def want(self, scope: str) -> None:
        """Keeps what the server wants the sign-in to be granted besides, for whoever signs in next.

        Args:
            scope: With spaces between.
        """
        if self._held is None or not _pick_new_scopes(self._held.wanted_scope, scope):
            return
        try:
            async with self.store.hold_lock(self.server, self.url):
                held = await self._read()
                if held is not None and (added := _pick_new_scopes(held.wanted_scope, scope)):
                    held = msgspec.structs.replace(held, wanted_scope=f"{held.wanted_scope} {added}".strip())
                    self._adopt(held)
                    await self._write(held)
        except (ConfigError, UpstreamError) as exc:  # the call that it was wanted for says so all the same
            _log.warning("%s", exc.message)

    # --- renewing

    async def _keep_fresh(self) -> None:
        pause_s, longest_s = _RETRY_S
        while self._held is not None:
            left_s = _LOOK_S if self._due_s is None else self._due_s - self.now()
            if left_s > 0:
                self._is_changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, _LOOK_S)):
                        await self._is_changed.wait()
                continue
            try:
                await self._renew(self._held.access_token)
                pause_s = _RETRY_S[0]
            except UpstreamAuthError as exc:
                self.on_lost(exc)
                return
            except UpstreamError as exc:
                _log.warning("%s", exc.message)
                await asyncio.sleep(pause_s * self.rng.uniform(0.5, 1.0))
                pause_s = min(longest_s, pause_s * 2)

    async def _renew(self, refused: str) -> None:
        """Renews in a task of its own: a caller who gives up must not cost the answer, which comes only once."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_future()
            self._renewal.add_done_callback(lambda done: done.exception())
            spawn(self._settle(self._renewal, refused), f"upstream-renewal-{self.server}")
        await await_shielded(self._renewal)

    async def _settle(self, renewal: "asyncio.Future[None]", refused: str) -> None:
        try:
            await self._renew_alone(refused)
        except UpstreamError as exc:
            renewal.set_exception(exc)
        except ConfigError as exc:
            renewal.set_exception(UpstreamError(exc.message, hint=exc.hint))
        except BaseException:
            what = f"Server '{self.server}': renewing its sign-in was interrupted."
            renewal.set_exception(UpstreamError(what, hint="Nothing was sent to the server; try again."))
            raise
        else:
            renewal.set_result(None)

    async def _renew_alone(self, refused: str) -> None:
        async with self.store.hold_lock(self.server, self.url):
            held = await self._read()
            if held is not None and held.access_token != refused and self._is_good(held):
                self._adopt(held)  # another process was quicker
                return
            try:
                fresh = await self.flow.renew(held)
            except EndedSignInError:
                newest = await self._read()
                if held is None or newest is None or newest.access_token == held.access_token:
                    if held is not None and held.refresh_token:  # so that nobody asks again
                        await self._write(msgspec.structs.replace(held, refresh_token=""))
                    raise
                self._adopt(newest)  # this process stood still for so long that another one took its turn
            else:
                self._adopt(fresh)
                await self._write(fresh)
                return
        if not self._is_good(newest):  # it stood still for longer than that one is good, too
            await self._renew_alone(newest.access_token)

    async def _write(self, sign_in: SignIn) -> None:
        try:
            self.stamp = await self.store.write(self.server, self.url, sign_in)
        except ConfigError as exc:
            _log.error("%s Until that works, a restart of the gateway asks for a new sign-in.", exc)

    async def _read(self) -> SignIn | None:
        try:
            held, self.stamp = await self.store.read(self.server, self.url)
        except UpstreamAuthError:
            (self.stamp,) = await self.store.stamps([(self.server, self.url)])  # tried again once it is another one
            if self.flow.needs_person:
                raise
            return None  # a new one takes its place
        return held

    async def _read_or_known(self) -> SignIn | None:
        """As `_read`; while the store is lost a server that was signed in to is connected to all the same."""
        try:
            return await self._read()
        except UpstreamAuthError:
            raise
        except UpstreamError:
            if (known := self.store.recall_entry(self.server, self.url)) is None:
                raise
            held, self.stamp = known
            return held

    def _adopt(self, held: SignIn | None) -> None:
        self._held = held
        if held is None or not held.is_proved:
            self.proofs = None
        elif self.proofs is None or self.proofs.key != held.proof_key:
            self.proofs = Proofs(held.proof_key, self.now)
        self._is_changed.set()
        self._due_s = None if held is None else renewal_due_s(held, self.rng)
        self._hidden.close()
        if held is not None and self.is_open:
            self._hidden.enter_context(secrets_hidden([held.access_token, held.refresh_token]))

    def _is_good(self, held: SignIn) -> bool:
        return not held.expires_at_s or self.now() < held.expires_at_s


def _pick_new_scopes(wanted: str, scope: str) -> str:
    """Scopes of `scope` that `wanted` lacks and that still fit."""
    added = " ".join(one for one in dict.fromkeys(scope.split()) if one not in wanted.split())
    return added if len(wanted) + len(added) <= _WANTED_CHARS else ""
