"""Supervisor of a server: connects, watches, reconnects, and never gives up."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from smart_mcp_proxy.desktop.present import get_present_client
from smart_mcp_proxy.errors import ConfigError, UpstreamAuthError, UpstreamError
from smart_mcp_proxy.models import ContentKind, Era, OnMessage, OnProgress, ServerState, ServerStatus
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig, UnsetVariableError, collect_secrets, expand, expand_for_client
from smart_mcp_proxy.telemetry import fields, get_logger, redact, secrets_hidden, spawn
from smart_mcp_proxy.upstream.ending import Ending
from smart_mcp_proxy.upstream.http_failures import LostSessionError, MissingScopeError
from smart_mcp_proxy.upstream.listing import ToolListing, fetch_contents, fetch_tools, is_listed
from smart_mcp_proxy.upstream.per_client import OwnConnections
from smart_mcp_proxy.upstream.protocol.base_session import OpenSession, UpstreamSession
from smart_mcp_proxy.upstream.protocol.server_log import ServerLog
from smart_mcp_proxy.upstream.protocol.server_requests import Conversation
from smart_mcp_proxy.upstream.protocol.session import (
    ContentsChanged,
    LogLine,
    OnEvent,
    Retry,
    Revived,
    SessionEvent,
    ToolsChanged,
)
from smart_mcp_proxy.upstream.relayed import GoneError
from smart_mcp_proxy.upstream.starting import ServerStart, StartTurn, describe_start
from smart_mcp_proxy.upstream.states import backoff_s, build_not_ready, check_transition, explain_fault, first_status
from smart_mcp_proxy.upstream.stdio.bare_errors import Reasons, older_era_error
from smart_mcp_proxy.upstream.stdio.remedies import extend_hint
from smart_mcp_proxy.upstream.watching import OnResourceUpdated, ResourceWatch

OnChange = Callable[[ServerStatus], None]
"""Told of every change of state, and of the same state again when a silent server speaks again."""
OnToolsChanged = Callable[[str], None]
"""Listener that gets the name of a server whose tool list may have changed."""

_HEALTHY_S: Final = 30.0
"""A connection that held this long, or longer than the pause before it, starts the pauses anew: a server that is killed
now and then is back at once, one that dies of its first call is waited for longer and longer."""
_MOST_RENEWALS: Final = 5
"""Sessions in a row that are opened at once, each in the place of one that the server has forgotten."""
_RENEWED_S: Final = 1.0
"""The row ends with a session that held this long, or in which a request succeeded that was refused before."""
_AUTH_PAUSE_S: Final = 60.0
"""Between tries at a server that has never let us in: it will not change its mind, and must not be stormed."""
_NUDGE_S: Final = 2.0
"""A call for a failed server brings its next try forward, but not sooner than this after the last."""

_log = get_logger("upstream")


@dataclass(eq=False, repr=False)
class Upstream:
    """Connection to one configured server, kept up and renewed.

    Attributes:
        config: The server, not expanded.
        environ: The gateway's environment, for `${VAR}` and for the child.
        on_change: Told of every change of state.
        on_tools_changed: Told when the tool list may have changed, and after every connection.
        open_session: Opens a session.
        start_gate: How many stdio servers may start up at a time.
        clock: Monotonic seconds.
        rng: Source of jitter.
        on_contents_changed: Told when its prompts or resources may be other ones.
        on_resource_updated: Told when one resource may be another one.
        guarded: What no server may reach.
        name: Of the server, as configured.
        run: Names the present connection, of a server on stdio its process; the last one's while there is none.
        own: Sessions of single clients, where each has its own besides the one that is kept here; else None.
        on_wanted: Called when a call is to bring the next try forward.
        may_return: Whether the server was lost and not tried again since: most likely it can be had at once.
    """

    is_personal = False  # see `PersonalUpstream`
    config: ServerConfig
    _: KW_ONLY
    environ: Mapping[str, str]
    on_change: OnChange
    on_tools_changed: OnToolsChanged
    open_session: OpenSession
    start_gate: asyncio.Semaphore
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)
    on_contents_changed: OnToolsChanged = lambda name: None
    on_resource_updated: OnResourceUpdated = lambda name, uri: None
    guarded: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        self.name = self.config.name
        self.watch = ResourceWatch(self.config.name, self.on_resource_updated)
        """The resources that the server tells of one by one."""
        self._status = first_status(self.config)
        self._settled = asyncio.Event()
        """Started and not connecting: whether it is ready can be told at once."""
        self._retry_now = asyncio.Event()
        self._session: UpstreamSession | None = None
        self._task: asyncio.Task[None] | None = None
        self.run = self._told = ""
        self._connections = self._failures = self._renewals = 0
        self._pause_s = _HEALTHY_S
        self._written = ServerLog()
        self._last_try = self.clock()
        self._reasons = Reasons(self.config, self._written, self.guarded)
        self._ending: Ending | None = None
        self.may_return = False
        self._start: ServerStart | None = None
        """The start that is under way, once it is the server's turn."""
        self.on_wanted: Callable[[], object] = self.retry
        self.own: OwnConnections | None = None
        if self.config.connection == "per_client":
            self.own = OwnConnections(lambda: self.config, self._expand_for_client, self._start_session, self.clock)

    def __repr__(self) -> str:
        return f"<Upstream {self.config.name}, {self._status.state}>"

    @property
    def status(self) -> ServerStatus:
        """The server at a glance; of one that is being started, how long that has taken."""
        if self._status.state is not ServerState.CONNECTING:
            return self._status
        return describe_start(self._status, self._start, self.clock(), self._written.last_said)

    @property
    def is_ready(self) -> bool:
        """Whether requests can be sent to the server at once."""
        return self._status.state is ServerState.READY

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self._reasons.under_way > 0

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Capabilities that the server declared; empty while it is not ready."""
        return self._session.capabilities if self._session is not None else {}

    def logs(self, count: int) -> list[str]:
        """The last lines the server wrote for people, oldest first, secrets hidden."""
        return self._written.last(count)

    def note_timeout(self, began_s: float) -> None:
        """Notes that a request of another worker's had no answer in time; see `UpstreamSession`."""
        if self._session is not None:
            self._session.note_timeout(began_s)

    async def start(self) -> None:
        """Begins to keep the server connected, in the background; does nothing if it already does."""
        if self._task is not None:
            return
        if self.config.is_off:
            if not self._settled.is_set() or self._status.state is ServerState.DISCONNECTED:
                self._status = first_status(self.config)
                self._settled.set()
                self._tell(self.on_change, self._status)
            return
        self._failures = 0
        if self.own is not None:
            self.own.open()
        self._set_state(ServerState.CONNECTING)
        self._task = spawn(self._run(), f"upstream-{self.name}")

    async def stop(self) -> None:
        """Ends the connection and what it started; calls under way fail."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if self.own is not None:
            await self.own.close()
        if task is not None:
            await asyncio.wait({task})
        if self._status.state is not ServerState.DISCONNECTED:
            self._set_state(ServerState.DISCONNECTED)

    def limit(self, config: ServerConfig) -> None:
        """Take other limits from the next request on, and try again at once if a start may take longer."""
        is_start_longer = config.limits.init_s > self.config.limits.init_s
        self.config = config
        if self._session is not None:
            self._session.limits = config.limits
        elif is_start_longer and self._status.state is ServerState.ERROR:
            self.retry()

    async def restart(self) -> None:
        """Ends the connection and makes a new one."""
        await self.stop()
        await self.start()

    def retry(self) -> None:
        """Brings the next try forward to now, where the server waits for one."""
        self._retry_now.set()

    def try_again(self) -> None:
        """Bring the next try forward, and let requests wait for it."""
        if self._status.state in (ServerState.ERROR, ServerState.NEEDS_AUTH):
            self._settled.clear()
        self.retry()

    async def ready(self, timeout_s: float, *, may_retry: bool = True) -> bool:
        """Whether the server is ready, after waiting up to `timeout_s` for a connection that is being made.

        With `may_retry` one that was lost is made anew at once: some programs end after each answer.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
                if may_retry and self.may_return:
                    self.hasten_retry()
                    await self._settled.wait()
        return self._session is not None

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_message: OnMessage | None = None,
        session: UpstreamSession | None = None,
    ) -> RawResult:
        """The `result` of one request; a refusal with 401 puts the whole session in doubt.

        A request that is refused because the server has forgotten the session is sent again on the next one, once.

        Args:
            method: A method of the protocol.
            params: Its parameters, without connection keys in `_meta`.
            timeout_s: Total, waiting for the connection included; None for the server's own limit.
            on_progress: Where progress goes.
            on_message: Where notifications go that come on the request's own exchange; see `UpstreamSession.request`.
            session: What it is to be sent on; None for the present one, which is waited for.

        Raises:
            UpstreamError: Not ready, failed, or answered with an error; `delivery` says which.
            UpstreamTimeoutError: No answer in time.
        """
        timeout_s = self.config.limits.call_s if timeout_s is None else timeout_s
        ends_s = self.clock() + timeout_s
        if (session := session or self._session) is None:
            session, timeout_s = await self._wait_session(ends_s)
        reasons, mark = self._reasons, self._written.mark
        reasons.under_way += 1
        try:
            result = await session.request(
                method, params, timeout_s=timeout_s, on_progress=on_progress, on_message=on_message
            )
            reasons.may_lose_state = reasons.may_lose_state or method == "tools/call"
            return result
        except LostSessionError as exc:
            self._drop_session(session)
            if exc.delivery != "not_sent":
                raise
        except UpstreamAuthError as exc:
            # Where more is wanted than was granted, other requests do with what there is.
            if self._session is session and self._ending is not None and not isinstance(exc, MissingScopeError):
                self._ending.doubt()
            raise
        except UpstreamError as exc:
            if self.config.transport == "stdio" and await reasons.begins_anew(exc, method, session.era, mark):
                self._reconnect_in_other_era(session)
            raise
        finally:
            reasons.under_way -= 1
        return await self._resend_request(method, params, ends_s, on_progress=on_progress, on_message=on_message)

    async def _wait_session(self, ends_s: float) -> tuple[UpstreamSession, float]:
        """The session of a server that becomes ready in time, and the seconds that are left then."""
        left_s = max(0.0, ends_s - self.clock())
        if not await self.ready(min(left_s, self.config.limits.patience_s)) or self._session is None:
            raise self.not_ready()
        return self._session, max(0.0, ends_s - self.clock())

    def _reconnect_in_other_era(self, session: UpstreamSession) -> None:
        """Ends a session in favour of one in another era; what comes meanwhile waits for that."""
        if self._session is session and self._ending is not None:
            self._drop_session(session)
            self._ending.end(older_era_error(self.name))

    async def _resend_request(self, method: str, params: Mapping[str, Any], ends_s: float, **heard: Any) -> RawResult:
        """The `result` of a request that was refused for its session, on the next one; not sent a third time."""
        session, timeout_s = await self._wait_session(ends_s)
        try:
            result = await session.request(method, params, timeout_s=timeout_s, **heard)
        except LostSessionError:
            self._drop_session(session)
            self._renewals = _MOST_RENEWALS  # sessions help no more: the next one has to wait
            raise
        self._renewals = 0
        return result

    def _drop_session(self, session: UpstreamSession) -> None:
        """Stop using a session that the server has forgotten; requests wait for the next one."""
        if self._session is session:
            self._session = None
            self.watch.detach()
            self._set_state(ServerState.CONNECTING)

    async def list_contents(self, kind: ContentKind) -> ToolListing:
        """List prompts, resources or templates, odd ones left out; none if it declares none.

        Raises:
            UpstreamError: Not ready, or the list cannot be had.
            UpstreamTimeoutError: It takes longer than `limits.list_s`.
        """
        session, limit_s = self._session, self.config.limits.list_s
        if session is None:
            raise self.not_ready()
        if not is_listed(kind, session.capabilities):
            return ToolListing()
        ask = partial(self.request, session=session, timeout_s=limit_s)
        return await fetch_contents(self.name, kind, ask, timeout_s=limit_s, era=session.era)

    async def list_tools(self) -> ToolListing:
        """The server's tools, all pages, odd ones left out; none if it declares no tools.

        Raises:
            UpstreamError: Not ready, or the list cannot be had.
            UpstreamTimeoutError: It takes longer than `limits.list_s`.
        """
        limit_s = self.config.limits.list_s
        is_ready = await self.ready(min(limit_s, self.config.limits.patience_s), may_retry=False)
        if not is_ready or (session := self._session) is None:
            raise self.not_ready()
        if session.capabilities.get("tools") is None:
            return ToolListing()
        ask = partial(self.request, session=session, timeout_s=limit_s)
        return await fetch_tools(self.name, ask, timeout_s=limit_s, era=session.era, folders=session.folders)

    def not_ready(self, *, may_retry: bool = True) -> UpstreamError:
        """Error for a request that cannot be sent now; with `may_retry` a new try begins where it may help."""
        error = build_not_ready(self.status)
        if may_retry:
            self.hasten_retry()
        return error

    def hasten_retry(self) -> None:
        """Bring the next try of a failed server forward for a call; not at once after one that failed."""
        if self._status.state is ServerState.ERROR and (self.may_return or self.clock() - self._last_try >= _NUDGE_S):
            self._settled.clear()
            self.on_wanted()

    async def _run(self) -> None:
        """Connects again and again until it is stopped, or until only the user can help."""
        while (pause_s := await self._connect_once()) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._retry_now.wait()
            self._retry_now.clear()
            if self._status.state is not ServerState.CONNECTING:
                # Of a server that fails at once people would see little but `connecting`.
                self._set_state(ServerState.CONNECTING, hint=self._status.hint, last_error=self._status.error)

    async def _connect_once(self) -> float | None:
        """Connect once and hold the connection; returns the pause before the next one, None for none."""
        self._last_try, self._start = self.clock(), None
        is_return, self.may_return = self.may_return, False
        self._written.begin()
        try:
            # In a thread: a value may come from a file or from the system's keyring.
            config = await asyncio.to_thread(expand, self.config, self.environ)
        except UnsetVariableError as exc:
            _log.warning("%s", exc.message)
            self._set_state(ServerState.NEEDS_ENV, exc.message, exc.hint)
            return None
        except ConfigError as exc:
            return self._record_failure(exc.message, exc.hint)
        except (OSError, RuntimeError) as exc:  # no descriptor or thread is left
            return self._record_fault(exc)
        with secrets_hidden(collect_secrets(config)):
            try:
                return await self._keep_connected(config, is_return=is_return)
            except Exception as exc:  # noqa: BLE001  # boundary: the server's task; what fails may do next time
                return self._record_fault(exc)

    async def _keep_connected(self, config: ServerConfig, *, is_return: bool) -> float:
        try:
            session = await self._start_session(config, self._reasons.era or self._status.era, self._handle_event)
        except UpstreamError as exc:
            self.may_return = isinstance(exc, GoneError)  # as the worker says that runs it
            self._failures -= is_return  # its loss is counted
            return self._record_failure(exc.message, exc.hint, needs_auth=isinstance(exc, UpstreamAuthError))
        return await self._hold(session)

    async def _expand_for_client(self) -> ServerConfig:
        """The same with the working directory and the variables of the client whose request this is."""
        if (client := get_present_client()) is None:
            return await asyncio.to_thread(expand, self.config, self.environ)
        return await asyncio.to_thread(expand_for_client, self.config, self.environ, client)

    async def _start_session(
        self, config: ServerConfig, era: Era | None, on_event: OnEvent, peer: Conversation | None = None
    ) -> UpstreamSession:
        open_session = self.open_session if peer is None else partial(self.open_session, peer=peer)
        async with StartTurn(self.start_gate) if config.transport == "stdio" else contextlib.nullcontext():
            if peer is None:
                self._start = ServerStart(self.clock(), config.limits.init_s)
            return await open_session(config, environ=self.environ, era=era, on_event=on_event)

    async def _hold(self, session: UpstreamSession) -> float:
        """Serves over an open session until it ends."""
        ready_at = self.clock()
        self._connections += 1
        self.run = session.run or f"{self.rng.getrandbits(64):016x}"
        self._status = replace(
            self._status,
            era=session.era,
            protocol_version=session.protocol_version,
            server_info=session.server_info,
            restarts=self._connections - 1,
        )
        self._session, self._told, self._reasons.may_lose_state = session, "", False
        self.watch.attach(session, partial(self.request, session=session))
        ending = self._ending = Ending(self.name, session)
        self._set_state(ServerState.READY)
        self._tell(self.on_tools_changed, self.name)
        try:
            end = await ending.wait()
            if isinstance(end, LostSessionError):
                self._drop_session(session)
                self._renewals *= self.clock() - ready_at < _RENEWED_S
        finally:
            self._session = None
            self._settled.clear()  # until it is known why it ended, which takes as long as its processes do
            self.watch.detach()
            ending.close()
            await session.close()
        if self.clock() - ready_at >= min(_HEALTHY_S, self._pause_s):
            self._failures = 0
        if isinstance(end, LostSessionError) and self._renewals < _MOST_RENEWALS:
            self._renewals += 1
            _log.info("%s A new one is opened.", end.message, extra=fields(server=self.name))
            return 0.0
        # Over HTTP it is a try to reach a server that loses it: another try at once is no use.
        self.may_return = self.config.transport != "http" and not isinstance(end, LostSessionError)
        return self._record_failure(end.message, end.hint, needs_auth=isinstance(end, UpstreamAuthError))

    def _record_failure(self, error: str, hint: str, *, needs_auth: bool = False) -> float:
        """Notes a failure and returns the pause it asks for."""
        self._failures += 1
        reason = self._written.reason()
        said = f" It wrote: {reason}" if reason and reason not in error else ""
        # The same failure again and again is one line of the log, not one every minute.
        level = logging.DEBUG if error == self._told else logging.WARNING
        self._told = error
        _log.log(level, "%s%s (try %d)", error, said, self._failures, extra=fields(server=self.name))
        if not needs_auth:
            hint = extend_hint(hint, self.config, self.environ, self._written, error + said, self.guarded)
        self._set_state(ServerState.NEEDS_AUTH if needs_auth else ServerState.ERROR, error + said, hint)
        pause_s = self._pause_s = backoff_s(self._failures, self.rng)
        # One that has let us in before may do so again soon.
        return max(pause_s, _AUTH_PAUSE_S) if needs_auth and not self._connections else pause_s

    def _record_fault(self, exc: Exception) -> float:
        error, hint = explain_fault(self.name, exc)
        _log.log(logging.DEBUG if error == self._told else logging.ERROR, "%s", error, exc_info=exc)
        self._failures, self._told = self._failures + 1, error
        self._set_state(ServerState.ERROR, error, hint)
        return backoff_s(self._failures, self.rng)

    def _set_state(self, state: ServerState, error: str = "", hint: str = "", last_error: str = "") -> None:
        check_transition(self.name, self._status.state, state)
        error, hint, last_error = map(redact, (error, hint, last_error))
        self._status = replace(self._status, state=state, error=error, hint=hint, last_error=last_error)
        (self._settled.clear if state is ServerState.CONNECTING else self._settled.set)()
        self._tell(self.on_change, self._status)

    def _handle_event(self, event: SessionEvent) -> None:
        if isinstance(event, LogLine):  # over other transports than stdio it is no word about the connection
            self._written.add(event.text, is_said=self.config.transport == "stdio")
        elif isinstance(event, ToolsChanged):
            self._tell(self.on_tools_changed, self.name)
        elif isinstance(event, ContentsChanged):
            self._tell(self.on_contents_changed, self.name)
        elif isinstance(event, Revived):
            self._tell(self.on_change, self._status)
        elif isinstance(event, Retry):
            self.retry()
        else:
            self.watch.hear(event)

    def _tell(self, listener: Callable[[Any], None], news: object) -> None:
        try:
            listener(news)
        except Exception:  # noqa: BLE001  # boundary: callback fan-out; a listener must stop neither task nor reader
            _log.exception("a listener of changes failed")
