"""Sign-ins at servers that a person begins at the page, each finished in their browser.

A browser's next request may reach another process. Only the one that began a sign-in can finish it: the others show how
far it has come, by the store, and leave the address at which the browser ended for it.
"""

import asyncio
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

import msgspec
from anyio import to_thread
from msgspec.structs import asdict

from smart_mcp_proxy.catalog import Catalog, SealedValue, sealed
from smart_mcp_proxy.errors import CatalogError, ConfigError, ConflictError, ProxyError, RequestError
from smart_mcp_proxy.gateway.activity.access import build_access_activity
from smart_mcp_proxy.gateway.shared.refusals import server_quarantined
from smart_mcp_proxy.models import LOCAL
from smart_mcp_proxy.secrets.sealing import SealBrokenError, SecretKey, open_sealed, seal
from smart_mcp_proxy.servers import ServerConfig, collect_secrets, expand, read_oauth, require_named
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity, secrets_hidden, spawn
from smart_mcp_proxy.upstream import CallbackServer, PageCallback, SignIns

SignInState = Literal["none", "waiting", "done", "failed"]

_PROGRESS: Final = "sign-in-progress"
_ADDRESS: Final = "sign-in-address"
_LIFE_S: Final = 3_600.0
"""An end that nobody looked at for so long is not worth showing."""
ASKED_S: Final = 30.0
"""A server and its authorization server have so long to say where a person signs in."""
_LOOK_S: Final = 1.0
"""Between looks for what another process was told; only while a person is waited for."""


class ServerSignIn(msgspec.Struct, frozen=True):
    """State of a sign-in.

    Attributes:
        state: none where none was begun here, waiting for the person, done, or failed.
        url: Where the person signs in, while they are waited for.
        problem: Why it failed.
        hint: What to do about it.
    """

    state: SignInState
    url: str = ""
    problem: str = ""
    hint: str = ""


class SignInAttempt(ServerSignIn, frozen=True, kw_only=True):
    """State of a sign-in as the process that began it tells the others.

    Attributes:
        holder: That process.
    """

    holder: str

    def ends_at(self, address: str) -> bool:
        """Whether it waits for a browser that was sent to this address."""
        mark = _parse_oauth_state(address)
        return self.state == "waiting" and mark is not None and mark == _parse_oauth_state(self.url)


class SignInProgress:
    """Progress by server, for all processes on a store.

    Args:
        catalog: Its store keeps it.
        key: What encrypts it; None in a file of the user's own.

    Every method raises `CatalogError` where the store cannot be used.
    """

    def __init__(self, catalog: Catalog, key: bytes | None) -> None:
        self._catalog = catalog
        self._key = key
        self.holder = uuid.uuid4().hex
        """This process."""

    def __repr__(self) -> str:
        return f"<SignInProgress in {self._catalog!r}>"

    async def tell(self, server: str, progress: SignInAttempt) -> None:
        """Store the progress of the sign-in at a server, in place of that of the last one."""
        await self._keep(_PROGRESS, server, msgspec.json.encode(progress))

    async def find(self, server: str) -> SignInAttempt | None:
        """Return the progress of the last sign-in at a server; None where none is known."""
        kept = await self._find(_PROGRESS, server)
        return None if kept is None else msgspec.json.decode(kept, type=SignInAttempt)

    async def leave(self, server: str, address: str) -> None:
        """Leave the address at which the browser ended to the process that waits for it."""
        await self._keep(_ADDRESS, server, address.encode())

    async def take_address(self, server: str) -> str | None:
        """The address that was left for the sign-in at a server, once; None where none was."""
        kept = await self._find(_ADDRESS, server)
        if kept is None:
            return None
        await self._catalog.write(partial(sealed.drop, kind=_ADDRESS, key=_name(_ADDRESS, server)), is_ordered=False)
        return kept.decode()

    async def _keep(self, kind: str, server: str, data: bytes) -> None:
        box = data if self._key is None else seal(self._key, data, _purpose(kind, server))
        expires_s = self._catalog.now_s() + _LIFE_S
        value = SealedValue(kind, _name(kind, server), box, uuid.uuid4().hex, expires_s)
        await self._catalog.write(partial(sealed.store, value=value), is_ordered=False)

    async def _find(self, kind: str, server: str) -> bytes | None:
        name, now_s = _name(kind, server), self._catalog.now_s()
        value = await self._catalog.read(partial(sealed.find, kind=kind, key=name, now_s=now_s))
        if value is None or self._key is None:
            return None if value is None else value.box
        try:
            return open_sealed(self._key, value.box, _purpose(kind, server))
        except SealBrokenError:  # of gateways with another key: nothing for this one
            return None


class _Begun:
    """A sign-in that was begun: its way back, and how far it has come."""

    def __init__(self, key: str, person: str, redirect_uri: str) -> None:
        self.key = key
        self.person = person
        self.redirect_uri = redirect_uri
        self.shown = ServerSignIn("none")
        self.is_asked = asyncio.Event()
        self.browser: CallbackServer | None = None
        self.task: asyncio.Task[None] | None = None

    def end(self) -> None:
        """End it; whoever waits for its address waits no longer."""
        if self.task is not None:
            self.task.cancel()
        self.is_asked.set()  # one that had not even started says nothing any more


@dataclass(eq=False)
class ServerSignIns:
    """Sign-ins that this process finishes; what they bring is stored for all.

    Attributes:
        sign_ins: Signs in and stores.
        servers: The configuration in force.
        environ: What placeholders in entries expand from.
        changed: Told when one has come further.
        record: Takes activity records.
        progress: Shows them at other processes; None where there are none.
    """

    sign_ins: SignIns
    servers: Callable[[], Mapping[str, ServerConfig]]
    environ: Mapping[str, str]
    changed: Callable[[], None]
    record: Callable[[Activity], None]
    progress: SignInProgress | None = None

    def __post_init__(self) -> None:
        self._begun: dict[str, _Begun] = {}
        self._telling = asyncio.Lock()
        """What is told last is what held last."""

    def __repr__(self) -> str:
        return f"<ServerSignIns, begun: {', '.join(self._begun) or 'none'}>"

    async def of(self, name: str, person: str = LOCAL.id) -> ServerSignIn:
        """State of a person's last one at a server, here or, while the store can be read, at another process.

        Raises:
            ServerNotFoundError: There is no server of that name.
        """
        require_named(name, self.servers())
        key = self._build_key(name, person)
        begun = self._begun.get(key)
        if begun is None or begun.browser is None:  # nobody is waited for here
            told = await self._read_progress(key)
            if told is not None and (begun is None or told.holder != self._holder):
                return told
        return ServerSignIn("none") if begun is None else begun.shown

    async def begin(self, name: str, person: str = LOCAL.id, redirect_uri: str = "") -> ServerSignIn:
        """Begin one, in place of one that the person began before; returns where they sign in.

        Args:
            name: Of the server.
            person: Whose it is where each person has their own; all others have one together.
            redirect_uri: Page of the gateway that the browser comes back to; empty for this machine.

        Raises:
            ServerNotFoundError: There is no server of that name.
            RequestError: Nobody signs in to it.
            QuarantinedError: It waits for approval: nothing is asked of it before.
            ConfigError: Its entry cannot be used.
        """
        config, key = await self._resolve_sign_in_config(name, person), self._build_key(name, person)
        if (former := self._begun.get(key)) is not None:
            former.end()
        begun = self._begun[key] = _Begun(key, person, redirect_uri)
        begun.task = spawn(self._run(config, begun), f"sign-in to {name}")
        try:
            async with asyncio.timeout(ASKED_S):
                await begun.is_asked.wait()
        except TimeoutError:
            begun.end()
            begun.shown = ServerSignIn("failed", problem=f"Server {name!r} did not say where to sign in.")
        await self._tell(key, begun)
        return begun.shown

    async def take(self, name: str, address: str, person: str = LOCAL.id) -> ServerSignIn:
        """Take the address at which a browser on another machine ended; another process may be waiting for it.

        Raises:
            ServerNotFoundError: There is no server of that name.
            ConflictError: Nobody is waited for, or it is another sign-in's.
            CatalogError: The store cannot be used.
        """
        key = self._build_key(name, person)
        shown, begun = await self.of(name, person), self._begun.get(key)
        if begun is not None and begun.browser is not None:
            is_taken = begun.browser.take(address)
        else:
            is_taken = await self._hand_over_address(key, address)
        if not is_taken:
            raise ConflictError(
                "That is not the address that this sign-in ends at.",
                hint="Begin it anew, and copy the address of the page that cannot be loaded.",
                code="sign_in_unknown",
            )
        return shown

    async def close(self) -> None:
        """End all of them."""
        tasks = [begun.task for begun in self._begun.values() if begun.task is not None]
        for begun in self._begun.values():
            begun.end()
        if tasks:
            await asyncio.wait(tasks)

    def _build_key(self, name: str, person: str) -> str:
        """Build the name under which a sign-in is kept, a person's own with a line end: no server's has one."""
        config = self.servers().get(name)
        return name if person == LOCAL.id or config is None or not config.is_personal else f"{name}\n{person}"

    @property
    def _holder(self) -> str:
        return "" if self.progress is None else self.progress.holder

    async def _read_progress(self, name: str) -> SignInAttempt | None:
        """The state that a process stored last; None as well while the store cannot be read."""
        if self.progress is not None:
            with suppress(CatalogError):
                return await self.progress.find(name)
        return None

    async def _hand_over_address(self, name: str, address: str) -> bool:
        """Leave an address to the process that waits for it; False if none does."""
        if self.progress is None:
            return False
        told = await self.progress.find(name)  # a store that is lost does not mean that nobody waits
        if told is None or not told.ends_at(address):
            return False
        await self.progress.leave(name, address)
        return True

    async def _tell(self, name: str, begun: _Begun) -> None:
        """Stores its state for the other processes, if no other one was begun meanwhile."""
        if self.progress is None:
            return
        async with self._telling:
            if self._begun.get(name) is begun and begun.shown.state != "none":
                with suppress(CatalogError):  # it goes on here
                    await self.progress.tell(name, SignInAttempt(holder=self._holder, **asdict(begun.shown)))

    async def _follow(self, name: str, begun: _Begun) -> None:
        """Take what other processes were told, as long as a person is waited for."""
        while self.progress is not None:
            await asyncio.sleep(_LOOK_S)
            told = await self._read_progress(name)
            if told is not None and told.holder != self._holder:  # begun anew there
                begun.end()
                return
            with suppress(CatalogError):
                if (address := await self.progress.take_address(name)) is not None and begun.browser is not None:
                    begun.browser.take(address)

    async def _run(self, config: ServerConfig, begun: _Begun) -> None:
        outcome = "ok"
        try:
            with secrets_hidden(collect_secrets(config)):
                await self._run_sign_in_flow(config, begun)
            begun.shown = ServerSignIn("done")
        except ProxyError as error:
            begun.shown, outcome = ServerSignIn("failed", problem=error.message, hint=error.hint), error.error_code
        finally:
            begun.browser = None
            begun.is_asked.set()
            self.changed()
        self.record(build_access_activity("signed in", begun.person, config.name, outcome, server=config.name))
        await self._tell(begun.key, begun)

    async def _run_sign_in_flow(self, config: ServerConfig, begun: _Begun) -> None:
        options = read_oauth(config.name, config.oauth or {})
        if options.grant == "client_credentials":
            await self.sign_ins.authorize_server(config, None)
            return

        def show(url: str) -> None:
            begun.shown = ServerSignIn("waiting", url)
            begun.is_asked.set()
            self.changed()

        way_back = (
            PageCallback(config.name, begun.redirect_uri, show)
            if begun.redirect_uri
            else CallbackServer(config.name, options.redirect_port, show)
        )
        async with way_back as browser:
            begun.browser = browser
            following = spawn(self._follow(begun.key, begun), f"sign-in to {config.name} elsewhere")
            try:
                await self.sign_ins.authorize_server(config, browser)
            finally:
                following.cancel()

    async def _resolve_sign_in_config(self, name: str, person: str) -> ServerConfig:
        servers = self.servers()
        require_named(name, servers)
        config = servers[name]
        if config.quarantined:
            raise server_quarantined(name)
        if config.transport == "stdio":
            raise RequestError(
                f"Server {name!r} is a program started here; nobody signs in to it.",
                hint="It gets its credentials from 'env' in its entry.",
            )
        if not config.can_use_oauth:
            raise ConfigError(
                f"The entry of server {name!r} says how to get in, so a sign-in would not be used.",
                hint="Take out 'oauth: false' or the Authorization header first.",
            )
        if (config.oauth or {}).get("exchange"):
            raise RequestError(
                f"Nobody signs in to server {name!r}: what a person comes with is traded for a token of theirs there.",
                hint="Connect to the gateway with a token of the identity provider.",
            )
        expanded = await to_thread.run_sync(expand, config, self.environ)
        return msgspec.structs.replace(expanded, person=person) if config.is_personal else expanded


def sign_in_progress(catalog: Catalog, settings: Settings, *, is_alone: bool) -> SignInProgress | None:
    """The progress that all gateways and workers on a catalog share; None where there is one alone.

    Args:
        catalog: Of this gateway.
        settings: With the key of what gateways share.
        is_alone: Whether it is its gateway's only worker.
    """
    if catalog.is_shared:
        secret = SecretKey.of(settings)
        return None if secret is None else SignInProgress(catalog, secret.key(_PROGRESS))
    return None if is_alone else SignInProgress(catalog, None)


def _parse_oauth_state(url: str) -> str | None:
    """The `state` of OAuth in an address; None where there is none."""
    try:
        return parse_qs(urlsplit(url).query).get("state", [None])[0]
    except ValueError:
        return None


def _name(kind: str, server: str) -> str:
    return hashlib.sha256(_purpose(kind, server)).hexdigest()


def _purpose(kind: str, server: str) -> bytes:
    return json.dumps([kind, server]).encode()
