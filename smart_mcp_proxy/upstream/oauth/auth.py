"""Sign-in to servers: started by a person, renewed automatically, shared by all processes."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.models import LOCAL
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig, read_oauth
from smart_mcp_proxy.telemetry import fields, get_logger, spawn
from smart_mcp_proxy.upstream.addresses import resolve_host
from smart_mcp_proxy.upstream.http_failures import TlsContext
from smart_mcp_proxy.upstream.oauth.auth_bearer import Bearer
from smart_mcp_proxy.upstream.oauth.auth_exchange import ExchangedBearer
from smart_mcp_proxy.upstream.oauth.auth_http import AuthHttp, Resolve
from smart_mcp_proxy.upstream.oauth.auth_store import RememberingStore, SignIn, SignInFiles, SignInStore

if TYPE_CHECKING:
    from smart_mcp_proxy.upstream.oauth.auth_flow import SignInFlow
    from smart_mcp_proxy.upstream.oauth.auth_provider import Browser

_log = get_logger("upstream")

CONNECT_PATH: Final = "/ui/connect/"
"""Before a server's name: where a person of a team begins to sign in at it."""
_FOLDER: Final = "sign-ins"
_WATCH_S: Final = 1.0
"""Between two looks at what other processes stored. Source: docs/design/processes.md#several-gateways"""


class UnreadSignInError(UpstreamError):
    """The store fails, so that nobody knows whether somebody is signed in."""


class SignedOut(msgspec.Struct, frozen=True):
    """Outcome of a sign-out.

    Attributes:
        was_signed_in: There was something to forget.
        is_revoked: The authorization server took it back.
        problem: Why it did not, where it offers that and failed; what is stored here is forgotten all the same.
    """

    was_signed_in: bool
    is_revoked: bool = False
    problem: str = ""


class SignIns:
    """The sign-ins of one data directory.

    Args:
        data_dir: Where they are kept, in a folder of their own.
        store: Keeps them, where it is not the usual one.
        now: Seconds since the epoch.
        resolve: Finds addresses.
        tls: Certificates and proxies; the system's own and none if left out.
        people_url: Public address of a gateway whose page lets people sign in; empty where it does not.
        find_subject: The token that a person came with, at a time; None where they came with none.

    Attributes:
        is_waiting: Whether a server is there, and a person's connection where each has their own: nobody else's sign-in
            is watched for.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        store: SignInStore | None = None,
        now: Callable[[], float] = time.time,
        resolve: Resolve = resolve_host,
        tls: TlsContext | None = None,
        find_subject: Callable[[str, float], str | None] = lambda person, now_s: None,
        people_url: str = "",
    ) -> None:
        self.is_waiting: Callable[[str, str], bool] = lambda name, person: True
        self._people_url = people_url
        self._find_subject = find_subject
        self.store = RememberingStore(store or SignInFiles(data_dir / _FOLDER))
        self._now = now
        self._resolve = resolve
        self._tls = tls or TlsContext()
        self._bearers: dict[tuple[str, str], Bearer] = {}
        self._is_used = asyncio.Event()

    def __repr__(self) -> str:
        return f"<SignIns in use: {', '.join(bearer.server for bearer in self._bearers.values() if bearer.is_open)}>"

    async def open_bearer(self, config: ServerConfig) -> Bearer | ExchangedBearer:
        """Return what every request to this server carries: a stored sign-in, or a token that is traded for.

        Raises:
            UpstreamAuthError: Somebody has to sign in first; nothing was sent.
            UpstreamError: It cannot be had at present.
        """
        options = read_oauth(config.name, config.oauth or {})
        if options.exchange is None:
            return await self.bearer(config)
        http = AuthHttp(config.name, config.url, self._tls, self._resolve).beside(options.exchange.token_url)
        traded = ExchangedBearer(config, options.exchange, http, self._find_subject, self._now)
        await traded.token()
        return traded

    async def bearer(self, config: ServerConfig) -> Bearer:
        """Return the bearer for this server; the caller closes it. Asks no person.

        Raises:
            UpstreamAuthError: Somebody has to sign in first; nothing was sent.
            UpstreamError: The sign-in has to be renewed and cannot be at present.
        """
        bearer = self._bearers[config.name, config.person] = Bearer(config, self._flow(config), self.store, self._now)
        self._is_used.set()
        await bearer.open()
        return bearer

    async def find_bearer(self, config: ServerConfig) -> Bearer | None:
        """Return the bearer for a server whose entry asks for no sign-in, if somebody has signed in to it.

        Raises:
            UpstreamAuthError: The sign-in is over.
            UnreadSignInError: The store fails; the server may well do without a sign-in.
            UpstreamError: It has to be renewed and cannot be at present.
        """
        try:
            held, _ = await self.store.read(*config.sign_in_place)
        except UpstreamError as exc:
            _log.debug(
                "server %s: whether somebody has signed in cannot be read: %s",
                config.name,
                exc,
                extra=fields(server=config.name),
            )
            if isinstance(exc, UpstreamAuthError):  # of no use; the server may well do without one, and says so if not
                return None
            if self.store.recall_entry(*config.sign_in_place) is not None:
                return await self.bearer(config)
            raise UnreadSignInError(
                f"The stored sign-in at server '{config.name}' could not be looked up. {exc.message}",
                hint=f"It is tried again. {exc.hint}".rstrip(),
            ) from exc
        return None if held is None else await self.bearer(config)

    def expect(self, config: ServerConfig) -> None:
        """Watch for a sign-in to a server that has refused to do without one."""
        known = self._bearers.get((config.name, config.person))
        if known is None or (known.config.url != config.url and not known.is_open):
            self._bearers[config.name, config.person] = Bearer(config, self._flow(config), self.store, self._now)
            self._is_used.set()

    async def authorize_server(self, config: ServerConfig, browser: "Browser | None") -> SignIn:
        """Signs in anew and stores it; gateways that run take it up within 2 s.

        Args:
            config: The server, expanded.
            browser: Asks the person; None for a grant that needs none.

        Raises:
            UpstreamError: The store fails, it was refused, or somebody cannot be reached.
            ConfigError: It cannot be stored.
        """
        try:
            earlier, _ = await self.store.read(*config.sign_in_place)
        except UpstreamAuthError:
            earlier = None  # it cannot be used, and this replaces it
        try:
            sign_in = await self._flow(config).run_flow(browser, earlier)
        except UpstreamAuthError:
            if earlier is not None and earlier.wanted_scope:
                await self._forget_wanted(config)
            raise
        async with self.store.hold_lock(*config.sign_in_place):
            await self.store.write(*config.sign_in_place, sign_in)
        return sign_in

    async def _forget_wanted(self, config: ServerConfig) -> None:
        """Leaves out next time what the server asked for on top: it may be what could not be had."""
        name, url = config.sign_in_place
        async with self.store.hold_lock(name, url):
            held, _ = await self.store.read(name, url)
            if held is not None:
                await self.store.write(name, url, msgspec.structs.replace(held, wanted_scope=""))

    async def sign_out(self, config: ServerConfig) -> SignedOut:
        """Gives the sign-in back where that is offered, and forgets it in any case."""
        name, url = config.sign_in_place
        async with self.store.hold_lock(name, url):
            problem, is_revoked = "", False
            try:
                held, _ = await self.store.read(name, url)
                is_revoked = held is not None and await self._flow(config).revoke(held)
            except UpstreamError as exc:
                problem = exc.message
            was_signed_in = await self.store.remove(name, url)
        used = self._bearers.get((config.name, config.person))
        if used is not None and used.is_open:
            with suppress(UpstreamError):  # the next look at the store ends its use
                await used.reload()
        return SignedOut(was_signed_in, is_revoked, problem)

    def is_usable(self, held: SignIn) -> bool:
        """Whether a sign-in still opens its server, or what renews it is at hand."""
        return bool(held.refresh_token) or not held.expires_at_s or self._now() < held.expires_at_s

    def build_link(self, config: ServerConfig) -> str:
        """Build the address at which this person begins to sign in; empty where there is none for them."""
        if config.person in ("", LOCAL.id) or not self._people_url or (config.oauth or {}).get("exchange"):
            return ""
        return f"{self._people_url.rstrip('/')}{CONNECT_PATH}{quote(config.name, safe='')}"

    def build_person_hint(self, config: ServerConfig) -> str:
        """Build the hint where a person of a team signs in; empty for who is at the machine."""
        if link := self.build_link(config):
            return f"Sign in at: {link}"
        if config.person in ("", LOCAL.id):
            return ""
        name, person = shell_word(config.name), shell_word(config.person)
        return f"The gateway's operator can let you: mcpproxy server login {name} --person {person}"

    async def watch(self, retry: Callable[[str, str], None]) -> None:
        """Takes up what other processes store, for as long as it runs.

        Args:
            retry: Told the name of a server that may be tried again, and the person if it is theirs: somebody has
                signed in.
        """
        # In a task of its own: it may wait a minute for its turn at a sign-in, and others are to be seen meanwhile.
        storing = spawn(self._keep_stored(), "sign-ins that could not be stored")
        try:
            await self._keep_looking(retry)
        finally:
            storing.cancel()
            await asyncio.wait([storing])

    async def _keep_stored(self) -> None:
        while True:
            await self.store.wait_unstored()
            await asyncio.sleep(_WATCH_S)
            await self.store.catch_up()

    async def _keep_looking(self, retry: Callable[[str, str], None]) -> None:
        await self._is_used.wait()
        while True:
            await asyncio.sleep(_WATCH_S)
            used = [(place, each) for place, each in self._bearers.items() if each.is_open or self.is_waiting(*place)]
            self._bearers = dict(used)
            for bearer in await self._select_outdated(tuple(self._bearers.values())):
                if bearer.is_open:
                    with suppress(UpstreamError):  # lost meanwhile: the stamp stays outdated, and the next look retries
                        await bearer.reload()
                else:
                    retry(bearer.server, bearer.config.person)

    async def _select_outdated(self, bearers: tuple[Bearer, ...]) -> list[Bearer]:
        if not bearers:
            return []
        try:
            stamps = await self.store.stamps([(bearer.server, bearer.url) for bearer in bearers])
        except UpstreamError:  # the catalog says that its store fails
            return []
        return [bearer for bearer, stamp in zip(bearers, stamps, strict=True) if stamp != bearer.stamp]

    def _flow(self, config: ServerConfig) -> "SignInFlow":
        # Here and not above: the flows of the SDK take a thirtieth of a start, and few servers ask for a sign-in.
        from smart_mcp_proxy.upstream.oauth.auth_flow import SignInFlow

        http = AuthHttp(config.name, config.url, self._tls, self._resolve)
        return SignInFlow(config, http, self._now, self.build_person_hint(config))
