"""All configured servers and their sessions: which ones run follows from the configuration."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from msgspec.structs import replace

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.io.watchdog import Watchdog
from smart_mcp_proxy.io.worker import ALONE, Worker
from smart_mcp_proxy.models import Era, Transport
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import fields, get_logger, spawn
from smart_mcp_proxy.upstream.confinement.reach import Shelter
from smart_mcp_proxy.upstream.http import open_http, open_http_sse
from smart_mcp_proxy.upstream.http_failures import TlsContext
from smart_mcp_proxy.upstream.oauth.auth import SignIns, UnreadSignInError
from smart_mcp_proxy.upstream.oauth.auth_bearer import Bearer
from smart_mcp_proxy.upstream.oauth.auth_exchange import ExchangedBearer
from smart_mcp_proxy.upstream.opening import MAX_MESSAGE_BYTES, Opener, SessionOptions
from smart_mcp_proxy.upstream.personal import PersonalUpstream
from smart_mcp_proxy.upstream.protocol.base_session import OpenSession, UpstreamSession
from smart_mcp_proxy.upstream.protocol.loop_detection import Lineage
from smart_mcp_proxy.upstream.protocol.server_requests import Conversation
from smart_mcp_proxy.upstream.protocol.session import OnEvent
from smart_mcp_proxy.upstream.relayed import LOGS, RESTART, RETRY, open_relayed, runs_elsewhere
from smart_mcp_proxy.upstream.stdio.stdio import open_stdio
from smart_mcp_proxy.upstream.supervisor import OnChange, OnToolsChanged, Upstream
from smart_mcp_proxy.upstream.watching import OnResourceUpdated

_START_PARALLEL: Final = 4
"""The default of `MCPPROXY_START_PARALLEL`. Source: docs/design/processes.md#starting"""
_CLOSE_S: Final = 8.0
"""Longest a shutdown waits: closed input, SIGTERM and SIGKILL of one server take at most half of it."""

_log = get_logger("upstream")


class Fleet:
    """The servers by name.

    Args:
        environ: The gateway's environment.
        on_change: Told of every change of a server's state.
        on_tools_changed: Told the name of a server whose tool list may have changed.
        start_parallel: How many stdio servers may start up at a time.
        open_session: Opens sessions.
        on_contents_changed: Told the name of a server whose prompts or resources may be other ones.
        on_resource_updated: Told server and URI of a resource that may be another one.
        worker: This process; a stdio server that all workers share may be another one's.

    Attributes:
        upstreams: The servers; only `apply` adds and removes any.
        guarded: What no server may reach.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        on_change: OnChange,
        on_tools_changed: OnToolsChanged,
        open_session: OpenSession,
        start_parallel: int = _START_PARALLEL,
        on_contents_changed: OnToolsChanged = lambda name: None,
        on_resource_updated: OnResourceUpdated = lambda name, uri: None,
        worker: Worker = ALONE,
    ) -> None:
        self._worker = worker
        self._lineage = Lineage(environ)
        self._given = dict[str, Any](
            environ=environ,
            on_change=on_change,
            on_tools_changed=on_tools_changed,
            open_session=partial(self._lineage.open, open_session),
            start_gate=asyncio.Semaphore(start_parallel),
            on_contents_changed=on_contents_changed,
            on_resource_updated=on_resource_updated,
        )
        self.guarded: tuple[Path, ...] = ()
        self._upstreams: dict[str, Upstream] = {}
        self.upstreams: Mapping[str, Upstream] = self._upstreams
        self._is_started = False
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Fleet of {len(self)}, {'started' if self._is_started else 'not started'}>"

    def __iter__(self) -> Iterator[Upstream]:
        return iter(tuple(self.upstreams.values()))

    def __len__(self) -> int:
        return len(self.upstreams)

    def gateways(self) -> list[str]:
        """Ids of this gateway and of those behind it, for one that is about to make this its server."""
        return self._lineage.list_gateway_ids(upstream.capabilities for upstream in self)

    def find(self, name: str, person: str) -> Upstream | None:
        """Return the connection to a server that this person's requests take; None for no server.

        Raises:
            RateLimitedError: As many people as may have one of their own are using theirs.
        """
        upstream = self.upstreams.get(name)
        return upstream.use(person) if isinstance(upstream, PersonalUpstream) else upstream

    def retry(self, name: str, person: str = "") -> None:
        """Brings the next try at a server forward to now; does nothing where there is none of that name.

        Args:
            name: Of the server.
            person: Whose try, where each person has a connection of their own; empty for all.
        """
        upstream = self.upstreams.get(name)
        if isinstance(upstream, PersonalUpstream) and person:
            if (theirs := upstream.find(person)) is not None:
                theirs.try_again()
        elif upstream is not None:
            upstream.retry()

    def is_waiting(self, name: str, person: str) -> bool:
        """Whether there is such a server, and, where each person has their own, a connection of that person's."""
        upstream = self.upstreams.get(name)
        return upstream is not None and (
            not isinstance(upstream, PersonalUpstream) or upstream.find(person) is not None
        )

    def retry_exchanges(self, person: str) -> None:
        """Bring a person's next try forward at servers that take tokens traded for what the person came with."""
        for name, upstream in self.upstreams.items():
            if (upstream.config.oauth or {}).get("exchange"):
                self.retry(name, person)

    def has_exchanges(self) -> bool:
        """Whether any server takes tokens that are traded for what people came with."""
        return any((upstream.config.oauth or {}).get("exchange") for upstream in self)

    async def logs(self, name: str, count: int) -> list[str]:
        """The last lines that a server wrote for people, secrets hidden; none of one unknown here.

        Raises:
            UpstreamError: Another worker runs it, and does not answer.
        """
        if (upstream := self.upstreams.get(name)) is None:
            return []
        if not runs_elsewhere(upstream.config, self._worker):
            return upstream.logs(count)
        return msgspec.json.decode(await self._ask(LOGS, name, f"{count} {name}"), type=list[str])

    async def restart(self, name: str) -> None:
        """Ends a server's connection and makes a new one, wherever it runs; raises what `logs` does."""
        if (upstream := self.upstreams.get(name)) is None:
            return
        if runs_elsewhere(upstream.config, self._worker):
            await self._ask(RESTART, name, name)
        else:
            await upstream.restart()

    async def _ask(self, kind: bytes, name: str, words: str) -> bytes:
        answer = await self._worker.ask(self._worker.find_keeper_worker(name), kind, words.encode())
        if answer is None:
            raise UpstreamError(
                f"The worker that runs server '{name}' does not answer.",
                hint="Ask again in a moment: one that has ended is replaced.",
            )
        return answer

    async def apply(self, configs: Mapping[str, ServerConfig]) -> None:
        """Makes the servers those of `configs`: only what is new, gone or changed starts, stops or restarts.

        Other limits are no reason to restart: they hold from the next request on, and calls under way go on. Before
        `start()` nothing is started yet.
        """
        async with self._lock:
            for upstream in self:
                old, new = upstream.config, configs.get(upstream.name)
                if new is not None and old != new == replace(old, limits=new.limits, timeout_ms=new.timeout_ms):
                    upstream.limit(new)
            gone = [up for up in self if configs.get(up.name) != up.config]
            for upstream in gone:
                del self._upstreams[upstream.name]
            await _stop_all(gone)
            for name, config in configs.items():
                if name not in self.upstreams:
                    self._upstreams[name] = self._new(config)
            if self._is_started:
                await self._start_all()

    async def start(self) -> None:
        """Begins to connect all servers, in the background."""
        async with self._lock:
            self._is_started = True
            await self._start_all()

    async def close(self) -> None:
        """Ends all connections and children, at once and within seconds."""
        async with self._lock:
            self._is_started = False
            await _stop_all(list(self))

    async def _start_all(self) -> None:
        for upstream in self:
            await upstream.start()

    def _new(self, config: ServerConfig) -> Upstream:
        upstream = (PersonalUpstream if config.is_personal else Upstream)(config, guarded=self.guarded, **self._given)
        if runs_elsewhere(config, self._worker):
            upstream.on_wanted = lambda: spawn(self._retry_elsewhere(upstream), f"upstream-wanted-{config.name}")
        return upstream

    async def _retry_elsewhere(self, upstream: Upstream) -> None:
        """Bring the next try forward where the server runs, and then here, so that it is waited for there."""
        name = upstream.name
        with suppress(OSError):  # no descriptors are left; the next call asks again
            await self._worker.ask(self._worker.find_keeper_worker(name), RETRY, name.encode())
        upstream.retry()


async def _stop_all(upstreams: list[Upstream]) -> None:
    try:
        async with asyncio.timeout(_CLOSE_S):
            await asyncio.gather(*(upstream.stop() for upstream in upstreams))
    except TimeoutError:
        _log.error("some servers did not end within %g s: %s", _CLOSE_S, upstreams)


_OLDER_TRANSPORT: Final = frozenset({400, 404, 405})
"""Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#backwards-compatibility"""
_SSE_S: Final = 10.0
"""A stream that names no address to post to may be one of something else."""


TRANSPORTS: Final[Mapping[Transport, Opener]] = {"stdio": open_stdio, "http": open_http, "sse": open_http_sse}
"""Function that opens a session, by the transport of a server."""


@dataclass(eq=False, repr=False)
class Connector:
    """Opens sessions; one object serves all servers and keeps what they share, for as long as it is open.

    Attributes:
        max_message_bytes: Larger messages are refused, on every transport.
        tls: Certificates and proxies; the system's own and none if left out.
        worker: This process; a stdio server that all workers share may be another one's.
        shelter: Keeps folders for confined servers.
        watchdog: Ends our children's process groups if we are killed.
        sign_ins: What servers with OAuth are sent; None if there is no place to keep it.
    """

    max_message_bytes: int = MAX_MESSAGE_BYTES
    sign_ins: SignIns | None = None
    tls: TlsContext | None = None
    worker: Worker = ALONE
    shelter: Shelter | None = None

    def __post_init__(self) -> None:
        self._tls = self.tls or TlsContext()
        self.watchdog = Watchdog()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.watchdog.__aexit__(*exc_info)

    async def __call__(
        self,
        config: ServerConfig,
        *,
        environ: Mapping[str, str],
        era: Era | None,
        on_event: OnEvent,
        peer: Conversation | None = None,
    ) -> UpstreamSession:
        """An open session; see `OpenSession`."""
        options = SessionOptions(
            config,
            on_event,
            era,
            peer,
            environ,
            self.max_message_bytes,
            self._tls,
            watchdog=self.watchdog,
            shelter=self.shelter,
        )
        try:
            return await self._open_transport(options)
        except UpstreamError as exc:
            status = (exc.data or {}).get("http_status")
            if config.transport != "http" or peer is not None or status not in _OLDER_TRANSPORT:
                raise
            refused = exc
        # Such a server may be one of HTTP+SSE.
        # Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#backwards-compatibility
        limits = replace(config.limits, init_s=min(config.limits.init_s, _SSE_S))
        try:
            session = await self._open_transport(
                replace(options, config=replace(config, transport="sse", limits=limits), era=None)
            )
        except UpstreamError:
            raise refused from None
        _log.info(
            'server %s speaks the older HTTP+SSE; "type": "sse" in its entry saves a request',
            config.name,
            extra=fields(server=config.name),
        )
        return session

    async def _open_transport(self, options: SessionOptions) -> UpstreamSession:
        config = options.config
        unread: UnreadSignInError | None = None
        try:
            options = replace(options, bearer=await self._bearer(config))
        except UnreadSignInError as exc:  # the server may well do without one, and says so if not
            unread = exc
        try:
            if options.peer is None and runs_elsewhere(config, self.worker):
                return await open_relayed(options, self.worker)
            return await TRANSPORTS[config.transport](options)
        except BaseException as exc:
            if options.bearer is not None:
                await options.bearer.close()
            elif isinstance(exc, UpstreamAuthError) and config.can_use_oauth and self.sign_ins is not None:
                self.sign_ins.expect(config)
                if unread is not None:  # somebody may have signed in: the store is at fault, not the person
                    raise unread from exc
            raise

    async def _bearer(self, config: ServerConfig) -> Bearer | ExchangedBearer | None:
        """The sign-in to send: the configured one, or one that a person made although none is configured."""
        if config.oauth is None and (self.sign_ins is None or not config.can_use_oauth):
            return None
        if self.sign_ins is None:
            raise UpstreamAuthError(
                f"Server '{config.name}' needs a sign-in, and there is no data directory to keep one in.",
                hint="Start the gateway with one (MCPPROXY_DATA_DIR), or give the server a token in its 'headers'.",
            )
        if config.oauth is None:
            return await self.sign_ins.find_bearer(config)
        return await self.sign_ins.open_bearer(config)
