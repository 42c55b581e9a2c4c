"""Sessions over streamable HTTP and SSE, on the MCP SDK."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec
from mcp.shared.exceptions import MCPError

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.fastmcp_compat.client import Session, is_transport_verdict, open_session
from smart_mcp_proxy.models import Era, OnMessage, OnProgress
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.request_ids import next_request_id
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.http_failures import (
    Failure,
    GuardedTransport,
    TlsContext,
    failure_error,
    new_http_client,
    new_transport,
    too_long,
)
from smart_mcp_proxy.upstream.oauth.auth_bearer import Bearer
from smart_mcp_proxy.upstream.oauth.auth_transport import BearerTransport
from smart_mcp_proxy.upstream.protocol.handshake import announces_tools, server_label
from smart_mcp_proxy.upstream.protocol.progress import ProgressFeed
from smart_mcp_proxy.upstream.protocol.session import (
    CLIENT_INFO,
    LogLine,
    OnEvent,
    ToolsChanged,
    announced_event,
    lost_error,
    rpc_error,
    timeout_error,
)

__all__ = ["SdkLink", "open_http"]

_CLOSE_S: Final = 5.0
_RELISTEN_S: Final = (1.0, 30.0)
"""Pause before a lost subscription is opened again: first, and at most."""

_log = get_logger("upstream")


async def open_http(
    config: ServerConfig,
    *,
    era: Era | None,
    on_event: OnEvent,
    max_message_bytes: int,
    tls: TlsContext,
    bearer: Bearer | None = None,
) -> "SdkLink":
    """Connects to the server and agrees on an era with it; `bearer` is closed with the session.

    Raises:
        UpstreamAuthError: It asks for a sign-in.
        UpstreamError: It cannot be reached or refuses; the message has the HTTP status.
        UpstreamTimeoutError: It does not answer within `limits.init_s`.
    """
    parts = urlsplit(config.url)
    proxy = tls.proxy_for(parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    transport: httpx2.AsyncBaseTransport = new_transport(await tls.get(), proxy)
    if bearer is not None:
        transport = BearerTransport(transport, bearer)
    link = SdkLink(config, on_event, transport, max_message_bytes, bearer)
    await link.open(era)
    return link


class SdkLink:
    """A session in a task of its own: nothing inside escapes as a foreign cancellation.

    Args:
        config: The server, expanded.
        on_event: Told of changes and log lines.
        transport: Sends the HTTP requests.
        max_message_bytes: Larger answers are refused.
        bearer: The sign-in that `transport` adds to every request.
    """

    def __init__(
        self,
        config: ServerConfig,
        on_event: OnEvent,
        transport: httpx2.AsyncBaseTransport,
        max_message_bytes: int,
        bearer: Bearer | None = None,
    ) -> None:
        self.era: Era = "handshake"
        self.protocol_version = ""
        self.capabilities: Mapping[str, Any] = {}
        self.server_info = ""
        self._config = config
        self._server = config.name
        self._on_event = on_event
        self._max_message_bytes = max_message_bytes
        self._guard = GuardedTransport(transport, max_message_bytes, self._lose, is_fragile=config.transport == "sse")
        self._bearer = bearer
        self._lost_sign_in: UpstreamAuthError | None = None
        self._overlong: Failure | None = None
        if bearer is not None:
            bearer.on_lost = self._lose_sign_in
        self._session: Session | None = None
        self._reason: str | None = None
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SdkLink {self._server}, {self._reason or 'open'}>"

    async def open(self, era: Era | None) -> None:
        """Connects; see `open_http`."""
        init_s = self._config.limits.init_s
        self._task = spawn(self._hold(era), f"upstream-session-{self._server}")
        try:
            async with asyncio.timeout(init_s):
                await self._ready.wait()
        except TimeoutError:
            await self.close()
            raise timeout_error(self._server, "initialize", init_s, was_sent=True) from None
        except BaseException:
            await self.close()
            raise
        if self._session is None:
            await self.close()
            raise self._error(self._guard.last_failure, self._reason or "ended", was_sent=False)
        if self.era == "modern" and announces_tools(self.capabilities):
            self._listener = spawn(self._listen(self._session), f"upstream-listen-{self._server}")

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_s: float,
        on_progress: OnProgress | None = None,
        on_message: OnMessage | None = None,
    ) -> RawResult:
        """The `result` of one request as compact JSON text; see `Link.request`."""
        session = self._session
        if session is None or self._reason is not None:
            raise lost_error(self._server, self._reason or "is not connected", was_sent=False)
        request_id = next_request_id()
        try:
            feed = ProgressFeed(on_progress)
            offer = feed.offer if on_progress is not None else None
            asking = session.request(request_id, method, params, on_progress=offer)
            result = await feed.around(_within(timeout_s, asking))
        except TimeoutError:
            raise timeout_error(self._server, method, timeout_s, was_sent=True) from None
        except MCPError as exc:
            raise self._call_error(request_id, method, exc) from exc
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            failure = self._guard.take_failure(request_id)
            raise self._error(failure, self._reason or "ended the session", was_sent=True) from exc
        finally:
            self._guard.take_failure(request_id)
        if method == "tools/list":
            self._obey_header_rules(session, result)
        return RawResult(msgspec.json.encode(result))

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends one notification."""
        if self._session is not None and self._reason is None:
            await self._session.notify(method, params)

    async def close(self) -> None:
        """Ends the session; calls under way fail."""
        self._lose("was stopped")
        for task in (self._listener, self._task):
            if task is not None:
                task.cancel()
                await asyncio.wait({task}, timeout=_CLOSE_S)
        if self._bearer is not None:
            await self._bearer.close()

    async def wait_closed(self) -> UpstreamError:
        """Waits for the end, and says why it came."""
        await self._lost.wait()
        return self._lost_sign_in or self._error(self._overlong, self._reason or "ended", was_sent=True)

    async def _hold(self, era: Era | None) -> None:
        """Opens the session, keeps it, closes it: all in this one task, as the SDK asks for."""
        try:
            async with open_session(
                "sse" if self._config.transport == "sse" else "http",
                self._config.url or "",
                lambda: new_http_client(self._guard, self._config.headers),
                client_info=CLIENT_INFO,
                era=era,
                max_event_bytes=self._max_message_bytes,
                on_overlong=self._lose_overlong,
                on_notification=self._notified,
            ) as session:
                self.era, self.protocol_version = session.era, session.protocol_version
                self.capabilities, self.server_info = session.capabilities, server_label(session.server_info)
                self._session = session
                self._ready.set()
                await session.ended.wait()
        except BaseException as exc:  # boundary: top of a background task; becomes the reason of the link's end
            if isinstance(exc, asyncio.CancelledError) and self._reason is not None:
                raise
            self._lose(_reason_of(exc))
        finally:
            self._lose("closed the connection")
            self._ready.set()

    def _notified(self, method: str, params: Mapping[str, Any]) -> None:
        # In the modern era the subscription reports changes of the list.
        if method == "notifications/message":
            self._on_event(LogLine(str(params.get("data"))))
        elif self.era == "handshake" and (event := announced_event(method, msgspec.json.encode(params))) is not None:
            self._on_event(event)

    async def _listen(self, session: Session) -> None:
        """Keep a subscription to list changes open; each reopening counts as a change."""
        pause, longest = _RELISTEN_S
        while self._reason is None:
            try:
                async for _ in session.tool_changes():
                    pause = _RELISTEN_S[0]
                    self._on_event(ToolsChanged())
            except (MCPError, RuntimeError, TimeoutError) as exc:
                _log.debug("server %s: the subscription to tool changes was lost: %s", self._server, exc)
            await asyncio.sleep(pause)
            pause = min(longest, pause * 2)

    def _obey_header_rules(self, session: Session, result: dict[str, Any]) -> None:
        tools = result.get("tools")
        if session.era != "modern" or not isinstance(tools, list):
            return
        refused = session.learn_header_rules(tools)
        for name, reason in refused.items():
            _log.warning(
                "Server '%s': tool %r is left out, its x-mcp-header cannot be used: %s.", self._server, name, reason
            )
        if refused:
            result["tools"] = [tool for tool in tools if not isinstance(tool, dict) or tool.get("name") not in refused]

    def _call_error(self, request_id: int, method: str, exc: MCPError) -> UpstreamError:
        failure = self._guard.take_failure(request_id)
        if not is_transport_verdict(exc.error.message):
            return rpc_error(self._server, method, exc.error.code, exc.error.message, exc.error.data)
        if failure is None:
            reason = self._reason or f"gave no proper answer to '{method}': {exc.error.message.splitlines()[0]}"
            return self._error(self._overlong, reason, was_sent=True)
        return self._error(failure, failure.reason, was_sent=True)

    def _error(self, failure: Failure | None, reason: str, *, was_sent: bool) -> UpstreamError:
        if failure is None:
            return lost_error(self._server, reason, was_sent=was_sent)
        was_refused = failure.was_refused or not was_sent
        is_signed_in = self._bearer is not None
        return failure_error(self._server, failure, was_refused=was_refused, is_signed_in=is_signed_in)

    def _lose_overlong(self) -> None:
        self._overlong = too_long(self._max_message_bytes)
        self._lose(self._overlong.reason)

    def _lose_sign_in(self, error: UpstreamAuthError) -> None:
        if self._reason is None:
            self._lost_sign_in = error
            self._lose("is no longer signed in to")

    def _lose(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
            self._lost.set()


async def _within(timeout_s: float, request: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    async with asyncio.timeout(timeout_s):
        return await request


def _reason_of(exc: BaseException) -> str:
    """The first real cause inside nested groups, as words after the server's name."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    if isinstance(exc, httpx2.HTTPStatusError):
        return f"answered with HTTP {exc.response.status_code}"
    text = str(exc).splitlines()
    return f"failed: {text[0] if text else type(exc).__name__}"
