"""Clients that have joined this gateway through doors, each on a connection of its own."""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from anyio import to_thread

from smart_mcp_proxy import __version__
from smart_mcp_proxy.desktop.background import listen_at, lock_socket
from smart_mcp_proxy.desktop.joining import peer_uid
from smart_mcp_proxy.desktop.places import server_source, shared_socket
from smart_mcp_proxy.desktop.present import JoinedClient
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.fastmcp_compat.paths import bind_joined
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.greeting.eras import StdioEras, stdio_eras
from smart_mcp_proxy.io.lines import OfferingReader
from smart_mcp_proxy.servers import find_variables, uses_workspace
from smart_mcp_proxy.settings import Settings, load_settings
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.stdio.stdio import Leaving, serve_joined
from smart_mcp_proxy.web.stdio.stdio_pipes import open_joined_streams

HELLO_S: Final = 10.0
"""A connection that does not say who it is for so long is closed."""
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

log = get_logger("join")


class Hello(msgspec.Struct, frozen=True):
    """Introduction of a client.

    Attributes:
        version: Of its program.
        pid: Of its process.
        directory: Its working directory.
        source: Where its servers come from, see `desktop.places.server_source`.
        profile: That it wants to see; empty for everything.
        settings: Its variables of the gateway.
    """

    version: str
    pid: int
    directory: str
    source: str
    profile: str
    settings: dict[str, str]


class _Wish(msgspec.Struct, frozen=True):
    join: Hello


class _Values(msgspec.Struct, frozen=True):
    variables: dict[str, str]


class JoinService:
    """Serves clients that join, decides who may, and says when the last has left.

    Args:
        gateway: Serves them.
        environ: The gateway's environment, to which variables that the server file names are added.
        stop: Ends the gateway; set here where a newer program takes its place, or nobody comes for long.
        is_told: Whether somebody has told the gateway to end; then clients start no other before they need one.
        keep_alive_s: How long it goes on without clients; None for ever.
    """

    def __init__(
        self,
        gateway: Gateway,
        environ: dict[str, str],
        stop: asyncio.Event,
        is_told: Callable[[], bool],
        keep_alive_s: float | None,
    ) -> None:
        self._gateway = gateway
        path = gateway.settings.config_path
        words = [] if path is None else ["--config", str(path)]
        self._source = server_source(words, environ)
        self._environ = environ
        self._stop = stop
        self._is_told = is_told
        self._joined = gateway.admin.joined
        self._joined.keep_alive_s = self._keep_alive_s = keep_alive_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._folder = Path.cwd()

    def __repr__(self) -> str:
        return f"<JoinService of {len(self._joined)} clients>"

    def find_place(self) -> socket.socket | None:
        """Listen where clients look for a gateway such as this; None where there is one already."""
        path = shared_socket(str(self._gateway.settings.data_dir), self._source)
        try:
            with lock_socket(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                try:
                    probe.connect(path)
                except (FileNotFoundError, ConnectionRefusedError):
                    return listen_at(path)
            log.info("clients that start the gateway join another one that runs on this data directory")
        except OSError as exc:
            log.warning("clients cannot join: %s: %s", path, exc.strerror)
        return None

    async def serve(self, listener: socket.socket) -> None:
        """Lets clients in until the gateway is stopped, and serves them to their end."""
        listener.setblocking(False)
        accepting = spawn(self._accept(listener), "joining clients")
        self._await_clients()
        try:
            await self._stop.wait()
        finally:
            accepting.cancel()
            await to_thread.run_sync(_withdraw, listener)
            if self._timer is not None:
                self._timer.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            link, _ = await loop.sock_accept(listener)
            task = spawn(self._meet(link), "joined client")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _meet(self, link: socket.socket) -> None:
        if (uid := peer_uid(link)) not in (None, os.getuid()):
            log.warning("a connection of user %s was refused: this gateway serves its own user alone", uid)
            link.close()
            return
        reader, writer = await open_joined_streams(link)
        try:
            async with asyncio.timeout(HELLO_S):
                hello = msgspec.json.decode(await _read_line(reader), type=_Wish).join
                answer, settings = await self._decide(hello)
                if answer is None:
                    writer.write(_encode(variables=sorted(names := self._variables())))
                    values = msgspec.json.decode(await _read_line(reader), type=_Values).variables
                    answer = self._take_variables(names, values)
            writer.write(_encode(**(answer or {"joined": {"pid": os.getpid(), "version": __version__}})))
            if answer is None:
                await self._serve_client(hello, values, settings, reader, writer)
        except EOFError:
            log.debug("a client left before it was let in")
        except (TimeoutError, ValueError, RecursionError) as exc:
            log.warning("a connection that said nothing of use was closed: %s", type(exc).__name__)
        finally:
            await writer.close()

    async def _decide(self, hello: Hello) -> tuple[dict[str, Any] | None, Settings]:
        """Why a client cannot be let in; None if it can, and with which settings."""
        own = self._gateway.settings
        if hello.source != self._source:
            return {"alone": f"the gateway that runs here reads its servers from {self._source}"}, own
        if self._keep_alive_s is not None and _number(hello.version) > _number(__version__):
            log.info("a newer program, %s, takes the place of this one", hello.version)
            self._stop.set()
            return {"replaced": __version__}, own
        try:
            theirs = await to_thread.run_sync(load_settings, hello.settings)
        except ConfigError:
            return {"alone": ""}, own  # it says what is wrong itself
        for name in Settings.model_fields.keys() - IGNORED - PER_SESSION:
            if getattr(theirs, name) != getattr(own, name):
                return {"alone": f"MCPPROXY_{name.upper()} differs from that of the gateway that runs"}, own
        if (profile := hello.profile) and not self._gateway.lists.views.of(profile):
            return {"alone": ""}, own
        return self._check_folder(hello.directory), theirs

    def _check_folder(self, directory: str) -> dict[str, Any] | None:
        """Why a client of this working directory cannot be let in."""
        if Path(directory) == self._folder:
            return None
        for name, config in self._gateway.base.config.servers().items():
            if not config.is_off and config.connection == "shared" and uses_workspace(config):
                return {"alone": f"server {name!r} depends on the working directory, which is another one here"}
        return None

    def _variables(self) -> set[str]:
        servers = self._gateway.base.config.servers().values()
        return {name for config in servers for name in find_variables(config)}

    def _take_variables(self, names: Iterable[str], values: Mapping[str, str]) -> dict[str, Any] | None:
        """Take over values that the gateway lacks; why the client cannot be let in where others differ."""
        servers = self._gateway.base.config.servers()
        shared = {name for each in servers.values() if each.connection == "shared" for name in find_variables(each)}
        for name in sorted(shared):
            if name in values and self._environ.get(name, values[name]) != values[name]:
                return {"alone": f"the variable {name}, which the server file names, has another value here"}
        new = {name: values[name] for name in names if name in values and name not in self._environ}
        self._environ.update(new)
        for name, config in servers.items() if new else ():
            if find_variables(config) & new.keys() and not config.is_off:
                self._gateway.upstreams.fleet.retry(name)
        return None

    async def _serve_client(
        self,
        hello: Hello,
        variables: Mapping[str, str],
        settings: Settings,
        reader: OfferingReader,
        writer: Any,
    ) -> None:
        client = JoinedClient(hello.pid, hello.version, hello.directory, time.time(), variables)
        if self._timer is not None:
            self._timer.cancel()
        profile = hello.profile
        try:
            with (
                self._joined.note_client(client),
                bind_joined(f"p/{profile}" if profile else "", settings.routing_type),
            ):
                await serve_joined(
                    self._gateway, reader, writer, Leaving(self._stop, self._is_told), self._choose_eras(settings)
                )
        finally:
            await self._gateway.requests.clients.leave(client)
            self._await_clients()

    def _choose_eras(self, settings: Settings) -> StdioEras:
        return stdio_eras(settings.stdio_era, settings.routing_type)

    def _await_clients(self) -> None:
        """Ends the gateway if nobody comes for long."""
        if self._keep_alive_s is not None and not self._joined:
            self._timer = asyncio.get_running_loop().call_later(self._keep_alive_s, self._leave)

    def _leave(self) -> None:
        if not self._joined:
            log.info("no client for %g s: the gateway ends", self._keep_alive_s)
            self._stop.set()


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


async def _read_line(reader: OfferingReader) -> bytes:
    """Read a line of the greeting.

    Raises:
        ValueError: It does not end.
        EOFError: The client is gone.
    """
    try:
        return await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError as exc:
        raise ValueError("too long") from exc


def _encode(**said: Any) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _number(version: str) -> tuple[int, ...]:
    """A version to compare; what is no release comes before all."""
    parts = version.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def _withdraw(listener: socket.socket) -> None:
    """Stop listening: who comes now starts another gateway, and waits until it can listen at this path."""
    path = listener.getsockname()
    with suppress(OSError), lock_socket(path):
        os.unlink(path)
        listener.close()
    listener.close()
