"""Clients that have joined this gateway through doors, each on a connection of its own."""

import asyncio
import json
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from anyio import move_on_after, to_thread

from smart_mcp_proxy import __version__
from smart_mcp_proxy.desktop.background import listen_at, lock_socket
from smart_mcp_proxy.desktop.joining import peer_uid
from smart_mcp_proxy.desktop.places import PREFIX, meeting_point, read_network, shared_socket
from smart_mcp_proxy.desktop.present import JoinedClient
from smart_mcp_proxy.errors import ConfigError, RefusedError
from smart_mcp_proxy.fastmcp_compat.paths import bind_joined
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.sessions.agent import DRAIN_S
from smart_mcp_proxy.greeting.eras import stdio_eras
from smart_mcp_proxy.io.lines import OfferingReader
from smart_mcp_proxy.io.server_processes import Peer, read_peer
from smart_mcp_proxy.models import ServerState
from smart_mcp_proxy.servers import find_variables, uses_workspace
from smart_mcp_proxy.settings import Settings, load_settings
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.stdio.stdio import FLUSH_S, Leaving, serve_joined
from smart_mcp_proxy.web.stdio.stdio_pipes import Writer, open_joined_streams

HELLO_S: Final = 10.0
"""A connection that does not say who it is for so long is closed."""
_TAKE_S: Final = 2.0
"""Seconds for the next gateway, or a client that starts it, to listen in the place of this one."""
_ROOM_S: Final = 5.0
"""Seconds for a gateway in the background to leave its place; one that is still starting needs seconds."""
_ROOM_TRIES: Final = 3
"""A client may start another gateway in the background just before the place is taken."""
_LOOK_S: Final = 0.01
_REST_S: Final = 0.2
"""Until the next connection is accepted where there is no descriptor left for it."""
_LAST_ANSWERS_S: Final = DRAIN_S + 3 * FLUSH_S
"""Seconds that clients that do not read have at the gateway's end; those that do have had everything by then."""
_START_S: Final = 120.0
"""Seconds for a server that lacks a new variable to say so; it does at once, or it does not lack it."""
PER_SESSION: Final = frozenset({"routing_type", "stdio_era"})
"""Settings that each client has for itself."""
IGNORED: Final = frozenset({
    "transport", "host", "port", "stop_delay_s", "workers", "max_sessions", "replica", "auth_token", "auth_token_file",
    "operator_token", "operator_token_file", "jwt_jwks_url", "jwt_public_key", "jwt_public_key_file", "jwt_issuer",
    "jwt_audience", "jwt_algorithm", "jwt_servers_claim", "oidc_url", "oidc_client_id", "oidc_client_secret",
    "oidc_client_secret_file", "oidc_scopes", "oidc_users", "oidc_operators", "public_url", "allowed_hosts",
    "cors_origins", "broker_requests", "config_path", "config_json", "registry_url", "registry_token", "serve_cards",
    "serve_registry", "data_dir", "log_level", "log_file", "log_format", "metrics", "metrics_port", "shared",
    "keep_alive",
})  # fmt: skip
"""Settings that are about the process, its HTTP, or the commands, or are known to be equal."""
_SERVICE: Final = dict.fromkeys(("OPENAI", "HYBRID"), frozenset({"OPENAI_API_KEY", "OPENAI_BASE_URL"}))
"""Variables of the service that computes embeddings, by the embedder that may use it."""

_VERSION: Final = r"([0-9]+(?:\.[0-9]+)*?)(?:\.0)*(?:(a|b|rc)([0-9]+))?(?:\.post([0-9]+))?(?:\.dev([0-9]+))?(?:\+.*)?"
"""Version of a Python package, as its builder writes it; zeros at the release's end do not count."""
_USELESS: Final = (TimeoutError, OSError, ValueError, RecursionError, asyncio.LimitOverrunError)
"""Failures to read what a door says first: msgspec's are ValueErrors."""
_Streams = tuple[OfferingReader, Writer]
T = TypeVar("T")

log = get_logger("join")


class Hello(msgspec.Struct, frozen=True):
    """First words of a door.

    Attributes:
        version: Of its program.
        pid: Its own.
        directory: Its client's working directory.
        data_dir: The data directory, without links.
        source: See `desktop.places.meeting_point`.
        profile: The one that its client sees; empty for all.
        settings: Its client's variables that begin with `MCPPROXY_`.
        stays: Whether it is no door, but a gateway that does not end by itself and would like to be joined instead.
        network: See `desktop.places.read_network`; 0 also where its program is too old to say it.
    """

    version: str
    pid: int
    directory: str
    data_dir: str
    source: str
    profile: str
    settings: dict[str, str]
    stays: bool = False
    network: int = 0


class _Greeting(msgspec.Struct, frozen=True):
    join: Hello


class _Told(msgspec.Struct, frozen=True):
    variables: dict[str, str]


@dataclass(eq=False, repr=False)
class JoinService:
    """Serves clients that join, decides who may, and says when the last has left.

    Attributes:
        gateway: Serves them.
        environ: The gateway's environment, to which variables that the server file names are added.
        stop: Ends the gateway; set here where a newer program takes its place, or nobody comes for long.
        is_told: Whether somebody has told the gateway to end; then clients start no other before they need one.
        keep_alive_s: How long it goes on without clients; None for ever.
    """

    gateway: Gateway
    environ: dict[str, str]
    stop: asyncio.Event
    is_told: Callable[[], bool]
    keep_alive_s: float | None

    def __post_init__(self) -> None:
        path = self.gateway.settings.config_path
        words = [] if path is None else ["--config", str(path)]
        self._source = meeting_point(words, self.environ)
        self._data_dir = os.path.realpath(self.gateway.settings.data_dir)
        self._network = read_network()
        self._joined = self.gateway.admin.joined
        self._joined.keep_alive_s = self.keep_alive_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._place: _Bound | None = None
        self._strangers: set[asyncio.Timeout] = set()
        """Limits of those that have not said yet who they are."""
        self._folder = Path.cwd()
        self._is_used = self.keep_alive_s is None
        """Whether a client was let in; one that runs for itself has variables of its own."""

    def __repr__(self) -> str:
        return f"<JoinService of {len(self._joined)} clients>"

    def find_place(self) -> socket.socket | None:
        """Listen where clients look for a gateway such as this; None where the present one stays.

        One that was started in the background makes room: its clients come over.
        """
        path = shared_socket(str(self.gateway.settings.data_dir), self._source)
        try:
            for _ in range(_ROOM_TRIES):
                with lock_socket(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                    try:
                        probe.connect(path)
                    except (FileNotFoundError, ConnectionRefusedError):
                        return listen_at(path)
                if not self._ask_for_room(path):
                    break
            log.info("clients that start the gateway join another one that runs on this data directory")
        except OSError as exc:
            log.warning("clients cannot join: %s: %s", path, exc.strerror)
        return None

    def _ask_for_room(self, path: str) -> bool:
        """Whether the gateway that listens at the path makes room for this one."""
        settings = {name: text for name, text in self.environ.items() if name.startswith(PREFIX)}
        settings.pop(f"{PREFIX}CONFIG_JSON", None)
        own = Hello(
            __version__, os.getpid(), str(self._folder), self._data_dir, self._source, "", settings, True, self._network
        )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link, suppress(OSError, ValueError):
            link.settimeout(_ROOM_S)
            link.connect(path)
            link.sendall(_encode(join=msgspec.to_builtins(own)))
            with link.makefile("rb") as lines:
                return "replaced" in json.loads(lines.readline())
        return False

    async def serve(self, listener: socket.socket) -> None:
        """Lets clients in until the gateway is stopped, and serves them to their end."""
        listener.setblocking(False)
        self._place = place = _Bound(listener)
        self._server = self.gateway.agent_server()  # for all: one each took 25 KB
        place.accepting = spawn(self._accept(listener), "joining clients")
        self._await_clients(HELLO_S)
        try:
            await self.stop.wait()
        finally:
            await place.withdraw()
            self._hold_on()
            await self._see_off()

    async def _make_room(self, place: "_Bound") -> None:
        """Leave the place to another gateway; the clients that are here hear of it once it is taken.

        Each of them would start a gateway of its own version at once, which that one had to replace again.
        """
        with move_on_after(_TAKE_S):
            while not place.is_taken():  # noqa: ASYNC110  (by another process)
                await asyncio.sleep(_LOOK_S)
        self.stop.set()

    async def _see_off(self) -> None:
        """Wait for the clients' last answers, not for ever where one does not read them."""
        for each in (each for each in self._strangers if not each.expired()):
            each.reschedule(asyncio.get_running_loop().time() + FLUSH_S)
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=_LAST_ANSWERS_S)
            for task in left:
                task.cancel()
            if left:
                log.warning("%d clients did not read their last answers", len(left))
                await asyncio.wait(left)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                link, _ = await loop.sock_accept(listener)
            except OSError as exc:
                log.warning("a client waits to join: %s", exc.strerror)
                await asyncio.sleep(_REST_S)
                continue
            self._hold_on()
            task = spawn(self._meet(link), "joined client")
            self._tasks.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._await_clients(self.keep_alive_s)

    async def _meet(self, link: socket.socket) -> None:
        if (uid := peer_uid(link)) not in (None, os.getuid()):
            log.warning("a connection of user %s was refused: this gateway serves its own user alone", uid)
            link.close()
            return
        peer = read_peer(link)
        reader, writer = await open_joined_streams(link)
        try:
            async with asyncio.timeout(HELLO_S) as limit, self._note_stranger(limit):
                hello = (await _read(reader, _Greeting)).join
                answer, settings = await self._decide(hello, peer)
                if answer is None:
                    names, service = self._variables(), _SERVICE.get(self.gateway.settings.embedder, frozenset())
                    writer.write(_encode(variables=sorted({"PATH", *names, *service})))
                    told = (await _read(reader, _Told)).variables
                    answer = self._check_service(service, told) or self._take_variables(names, told)
                if answer is None and "PATH" not in names:
                    self._take_path(told.get("PATH", ""))
            writer.write(_encode(**(answer or {"joined": {"pid": os.getpid(), "version": __version__}})))
            if answer is None:
                variables = {name: text for name, text in told.items() if name in names or name == "PATH"}
                client = JoinedClient(hello.pid, hello.version, hello.directory, time.time(), variables)
                await self._serve_client(client, hello.profile, settings, (reader, writer))
        except EOFError:
            log.debug("a client left before it was let in")
        except _USELESS as exc:
            log.warning("a connection that said nothing of use was closed: %s", type(exc).__name__)
        finally:
            with move_on_after(FLUSH_S):
                await writer.close()
            writer.abort()

    @asynccontextmanager
    async def _note_stranger(self, limit: asyncio.Timeout) -> AsyncIterator[None]:
        self._strangers.add(limit)
        try:
            yield
        finally:
            self._strangers.discard(limit)

    async def _decide(self, hello: Hello, peer: Peer | None) -> tuple[dict[str, Any] | None, Settings]:
        """Why a client cannot be let in; None if it can, and with which settings."""
        own = self.gateway.settings
        try:
            self.gateway.admin.doors.check_peer(peer, is_agent=True)
        except RefusedError as error:
            return {"alone": error.message}, own
        if elsewhere := self._find_other_place(hello):
            return {"alone": f"the gateway that runs here {elsewhere}"}, own
        if self.keep_alive_s is not None and rank_version(hello.version) > rank_version(__version__):
            return await self._give_place(f"a newer program, {hello.version}, takes the place of this one"), own
        try:
            theirs = await to_thread.run_sync(load_settings, hello.settings)
        except ConfigError:
            return {"alone": ""}, own  # it says what is wrong itself
        for name in Settings.model_fields.keys() - IGNORED - PER_SESSION:
            if getattr(theirs, name) != getattr(own, name):
                return {"alone": f"MCPPROXY_{name.upper()} differs from that of the gateway that runs"}, own
        refused = self._check_session(hello.profile, hello.directory)
        if hello.stays and refused is None:
            refused = {"alone": "the gateway that runs here does not end by itself either, or is newer"}
            if self.keep_alive_s is not None and rank_version(hello.version) >= rank_version(__version__):
                refused = await self._give_place(
                    f"process {hello.pid}, which does not end by itself, is joined instead"
                )
        return refused, theirs

    def _find_other_place(self, hello: Hello) -> str:
        if hello.data_dir != self._data_dir:
            return f"has its data in {self._data_dir}"
        if hello.source != self._source:
            return f"reads its servers from {self._source}"
        is_same = hello.network == self._network or 0 in (hello.network, self._network)
        return "" if is_same else "is in another network namespace"

    async def _give_place(self, why: str) -> dict[str, Any]:
        log.info("%s", why)
        if self._place is not None:
            await self._place.withdraw()
            spawn(self._make_room(self._place), "room for another gateway")
        return {"replaced": __version__}

    def _check_session(self, profile: str, directory: str) -> dict[str, Any] | None:
        """Why a client of this profile and working directory cannot be let in."""
        if profile and not self.gateway.lists.views.of(profile):
            return {"alone": ""}
        if Path(directory) == self._folder:
            return None
        for name, config in self.gateway.base.config.servers().items():
            if not config.is_off and config.connection == "shared" and uses_workspace(config):
                return {"alone": f"server {name!r} depends on the working directory, which is another one here"}
        return None

    def _variables(self) -> set[str]:
        servers = self.gateway.base.config.servers().values()
        return {name for config in servers for name in find_variables(config)}

    def _check_service(self, names: Iterable[str], values: Mapping[str, str]) -> dict[str, Any] | None:
        """Why a client that names another service of embeddings cannot be let in."""
        for name in sorted(names):
            if (there := values.get(name)) and there != self.environ.get(name):
                return {"alone": f"{name} differs from that of the gateway that runs"}
        return None

    def _take_variables(self, names: Iterable[str], values: Mapping[str, str]) -> dict[str, Any] | None:
        """Take over values that the gateway lacks; why the client cannot be let in where others differ."""
        servers = self.gateway.base.config.servers()
        shared = [each for each in servers.values() if each.connection == "shared"]
        # A server that does without a variable has started without it, once it has served anybody.
        optional = {name for each in shared if self._is_used for name in find_variables(each, is_optional=True)}
        for name in sorted({name for each in shared for name in find_variables(each)}):
            here, there = self.environ.get(name, ""), values.get(name, "")
            if here != there and ((here and there) or name in optional):
                return {"alone": f"the variable {name}, which the server file names, has another value here"}
        self._is_used = True
        new = {name: values[name] for name in names if values.get(name) and not self.environ.get(name)}
        self.environ.update(new)
        for name, config in servers.items() if new else ():
            if find_variables(config) & new.keys() and not config.is_off:
                is_late = config.connection == "shared" and bool(find_variables(config, is_optional=True) & new.keys())
                spawn(self._bring_up(name, is_late=is_late), "server with a new variable")
        return None

    def _take_path(self, path: str) -> None:
        """Append folders of a client's PATH, and try servers again that may have lacked a program."""
        own = self.environ.get("PATH", "").split(os.pathsep)
        new = [each for each in dict.fromkeys(path.split(os.pathsep)) if os.path.isabs(each) and each not in own]
        if not new:
            return
        self.environ["PATH"] = os.pathsep.join([*own, *new])
        for server in self.gateway.upstreams.fleet:
            self.gateway.upstreams.fleet.retry(server.name)

    async def _bring_up(self, name: str, *, is_late: bool) -> None:
        """Start a server that has waited for a variable, or is about to: it may just be looking for it.

        Args:
            name: Of the server.
            is_late: Whether it does without: where it has begun, it has begun so.
        """
        fleet = self.gateway.upstreams.fleet
        server = fleet.upstreams.get(name)
        if is_late and server is not None and server.status.state is not ServerState.DISCONNECTED:
            await fleet.restart(name)
            return
        fleet.retry(name)
        if server is not None and not await server.ready(_START_S) and server.status.state is ServerState.NEEDS_ENV:
            await fleet.restart(name)

    async def _serve_client(self, client: JoinedClient, profile: str, settings: Settings, streams: _Streams) -> None:
        path = f"p/{profile}" if profile else ""
        try:
            with self._joined.note_client(client), bind_joined(path, settings.routing_type):
                eras = stdio_eras(settings.stdio_era, settings.routing_type)
                leaving = Leaving(self.stop, self.is_told)
                await serve_joined(self.gateway, self._server, *streams, leaving, eras)
        finally:
            await self.gateway.requests.clients.leave(client)

    def _await_clients(self, wait_s: float | None) -> None:
        """End the gateway if nobody comes for so long."""
        if self.keep_alive_s is None or wait_s is None or self._tasks or self.stop.is_set():
            return
        self._hold_on()
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._leave)

    def _hold_on(self) -> None:
        """Do not end for want of clients."""
        if self._timer is not None:
            self._timer.cancel()

    def _leave(self) -> None:
        log.info("no client for %g s: the gateway ends", self.keep_alive_s)
        self.stop.set()


class _Bound:
    """Path at which a socket listens, as long as it does.

    Attributes:
        accepting: Takes its connections.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.accepting: asyncio.Task[None] | None = None
        self._listener = listener
        self._path = listener.getsockname()
        self._file = self._find()

    async def withdraw(self) -> None:
        """Stop listening: who comes now starts another gateway, and waits until it can listen at this path."""
        if self.accepting is not None:
            self.accepting.cancel()
            await asyncio.wait([self.accepting])
        await to_thread.run_sync(self._remove)

    def is_taken(self) -> bool:
        """Whether another gateway is to listen at this path."""
        return self._find() is not None

    def _remove(self) -> None:
        with suppress(OSError), lock_socket(self._path):
            # Once: a later file may have the same number. And not one that another gateway has bound meanwhile.
            if self._file is not None and self._find() == self._file:
                os.unlink(self._path)
            self._listener.close()
        self._file = None
        self._listener.close()

    def _find(self) -> tuple[int, int] | None:
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


@asynccontextmanager
async def let_join(
    gateway: Gateway, environ: dict[str, str], stop: asyncio.Event, is_told: Callable[[], bool]
) -> AsyncIterator[None]:
    """Let clients join a gateway that does not end by itself, while open; at the end `stop` has been set.

    Nobody can where another one serves the same servers on the same data directory.
    """
    service = JoinService(gateway, environ, stop, is_told, None)
    listener = await to_thread.run_sync(service.find_place)
    serving = None if listener is None else spawn(service.serve(listener), "joined clients")
    try:
        yield
    finally:
        if serving is not None:
            await asyncio.wait([serving])


async def _read(reader: OfferingReader, form: type[T]) -> T:
    # Not by msgspec alone: text that is no UTF-8 comes as surrogates, as Python has it.
    return msgspec.convert(json.loads(await reader.readuntil(b"\n")), form)


def _encode(**said: Any) -> bytes:
    return json.dumps(said).encode() + b"\n"


def rank_version(version: str) -> tuple[Any, ...]:
    """Key of a version in the order of Python packages; what is none comes before all.

    A local part does not count: builds of one version do not replace each other.

    Source: https://packaging.python.org/en/latest/specifications/version-specifiers/
    """
    if (found := re.fullmatch(_VERSION, version)) is None:
        return ()
    release, letter, number, post, dev = found.groups()
    before = letter or ("" if dev and not post else "~"), int(number or 0)
    return tuple(map(int, release.split("."))), before, int(post or -1), float(dev or "inf")
