"""Client sessions of the MCP SDK, held open and asked for raw results.

Private names used: `ClientSession._stamp`, `._dispatcher`, `._x_mcp_header_maps`, `JSONRPCDispatcher._allocate_id`,
`mcp.client._probe.negotiate_auto`, `mcp.shared._httpx_utils.sse_within_origin`, and that `sse_client` looks it up by
that name.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import FunctionType
from typing import Any, Literal, Self

import httpx2
import mcp_types
from mcp.client._probe import negotiate_auto
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen
from mcp.shared._httpx_utils import sse_within_origin
from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from smart_mcp_proxy.models import Era, Progress
from smart_mcp_proxy.request_ids import next_request_id

__all__ = ["Session", "is_transport_verdict", "open_session"]

ClientFactory = Callable[[], httpx2.AsyncClient]

_OWN_MESSAGES = frozenset({"Not Found", "Session terminated", "Server returned an error response", "Connection closed"})
_OWN_BEGINNINGS = (
    "Redirect to ",
    "Unexpected content type: ",
    "Failed to parse JSON response: ",
    "Failed to parse SSE message: ",
    "SSE stream ",
    "server answered a request with 202 Accepted",
)
"""How the SDK words the errors it makes up itself where the server sent no JSON-RPC answer."""


def is_transport_verdict(message: str) -> bool:
    """Whether an error message is the SDK's own stand-in for an HTTP failure, not the server's word."""
    return message in _OWN_MESSAGES or message.startswith(_OWN_BEGINNINGS)


class Session:
    """A negotiated SDK session.

    Args:
        inner: The SDK's session, entered.
        ended: Set when the server's stream has ended.
    """

    def __init__(self, inner: ClientSession, ended: asyncio.Event) -> None:
        self._inner = inner
        self.ended = ended

    @property
    def protocol_version(self) -> str:
        """The version agreed on."""
        return self._inner.protocol_version or ""

    @property
    def era(self) -> Era:
        """The era agreed on."""
        return "modern" if self.protocol_version in MODERN_PROTOCOL_VERSIONS else "handshake"

    @property
    def capabilities(self) -> dict[str, Any]:
        """Capabilities that the server declared, as JSON."""
        found = self._inner.server_capabilities
        return found.model_dump(by_alias=True, mode="json", exclude_none=True) if found else {}

    @property
    def server_info(self) -> dict[str, Any]:
        """The server's `serverInfo` as JSON; empty if absent."""
        found = self._inner.server_info
        return found.model_dump(by_alias=True, mode="json", exclude_none=True) if found else {}

    async def request(
        self,
        request_id: int,
        method: str,
        params: Mapping[str, Any],
        *,
        on_progress: Callable[[Progress], None] | None,
    ) -> dict[str, Any]:
        """The `result` of one request, unvalidated.

        Raises:
            MCPError: An error answer, or a stand-in for one (see `is_transport_verdict`).
        """
        data: dict[str, Any] = {"method": method, "params": dict(params)}
        if "_meta" in params:
            data["params"]["_meta"] = dict(params["_meta"])
        options: CallOptions = {"request_id": request_id}
        self._inner._stamp(data, options)
        if on_progress is not None:

            async def report(progress: float, total: float | None, message: str | None) -> None:
                on_progress(Progress(progress, total, message))

            options["on_progress"] = report
        return await self._inner._dispatcher.send_raw_request(method, data["params"], options)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends one notification."""
        await self._inner._dispatcher.notify(method, dict(params) or None)

    async def tool_changes(self) -> AsyncIterator[None]:
        """Yield once when the subscription opens, then once per change, while it is open.

        Raises:
            MCPError, RuntimeError: The server does not offer it, or it was lost.
        """
        async with listen(self._inner, tools_list_changed=True) as changes:
            yield
            async for _ in changes:
                yield

    def learn_header_rules(self, tools: list[Any]) -> dict[str, str]:
        """Remembers which arguments of these listed tools must travel as HTTP headers too.

        Returns:
            Tools that must not be used because their header annotations are invalid, with the reason.
            Source: MCP 2026-07-28, server/tools.
        """
        refused: dict[str, str] = {}
        for tool in tools:
            if not isinstance(tool, Mapping) or not isinstance(name := tool.get("name"), str):
                continue
            schema = tool.get("inputSchema")
            if reason := find_invalid_x_mcp_header(schema):
                refused[name] = reason
            else:
                self._inner._x_mcp_header_maps[name] = x_mcp_header_map(schema)
        return refused


class _WatchedStream:
    """The transport's read stream; tells when it has ended, which the SDK keeps to itself."""

    def __init__(self, inner: Any, ended: asyncio.Event) -> None:
        self._inner = inner
        self._ended = ended

    @property
    def last_context(self) -> Any:
        return self._inner.last_context

    async def receive(self) -> Any:
        return await self._inner.receive()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._ended.set()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._inner.__aexit__(*failure)


@asynccontextmanager
async def open_session(
    transport: Literal["http", "sse"],
    url: str,
    new_client: ClientFactory,
    *,
    client_info: Mapping[str, str],
    era: Era | None,
    max_event_bytes: int,
    on_overlong: Callable[[], None],
    on_notification: Callable[[str, Mapping[str, Any]], None],
) -> AsyncIterator[Session]:
    """Open a negotiated session over HTTP or SSE; enter and leave it in one task.

    Failures may come as a group.

    No client capability is declared, no result is validated, no header of a caller is passed on.

    Args:
        transport: Streamable HTTP, or the older SSE.
        url: The server's endpoint.
        new_client: Makes the HTTP client; closed with the session.
        client_info: Who we say we are.
        era: What the server spoke last time, None to find out.
        max_event_bytes: Largest single server-sent event that is accepted.
        on_overlong: Told when a larger one ends a session over SSE; over HTTP it fails its request only.
        on_notification: Told method and params of what the server announces by itself.
    """

    async def announce(message: IncomingMessage) -> None:
        if not isinstance(message, Exception):
            data = message.model_dump(by_alias=True, mode="json", exclude_none=True)
            on_notification(data["method"], data.get("params") or {})

    ended = asyncio.Event()
    async with (
        _streams(transport, url, new_client, max_event_bytes, on_overlong) as (read, write),
        ClientSession(
            _WatchedStream(read, ended),
            write,
            message_handler=announce,
            client_info=mcp_types.Implementation.model_validate(client_info),
        ) as session,
    ):
        dispatcher: Any = session._dispatcher
        dispatcher._allocate_id = next_request_id  # its own are a counter, which a server could foresee
        if transport == "sse" or era == "handshake":
            await session.initialize()
        else:
            await negotiate_auto(session)
        yield Session(session, ended)


def _streams(
    transport: Literal["http", "sse"],
    url: str,
    new_client: ClientFactory,
    max_event_bytes: int,
    on_overlong: Callable[[], None],
) -> AbstractAsyncContextManager[Any]:
    if transport == "http":
        return _http_streams(url, new_client, max_event_bytes)

    def factory(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return new_client()  # it knows headers, time limits and credentials of its server already

    return _sse_client(max_event_bytes, on_overlong)(url, httpx_client_factory=factory)


def _sse_client(
    max_event_bytes: int, on_overlong: Callable[[], None]
) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """The SDK's SSE client with this limit for one event: its own, of a megabyte, is no parameter."""

    @asynccontextmanager
    async def opened(client: httpx2.AsyncClient, url: str) -> AsyncIterator[_Events]:
        async with sse_within_origin(client, url, max_event_size=max_event_bytes) as events:
            yield _Events(events, on_overlong)

    original: Any = inspect.unwrap(sse_client)
    names = original.__globals__ | {"sse_within_origin": opened}
    return asynccontextmanager(FunctionType(original.__code__, names, original.__name__, original.__defaults__))


class _Events:
    """The events of a stream; tells when one is too long, before the SDK gives up whoever waits for it."""

    def __init__(self, inner: httpx2.EventSource, on_overlong: Callable[[], None]) -> None:
        self.response = inner.response
        self._inner = inner
        self._on_overlong = on_overlong

    async def __aiter__(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        try:
            async for event in self._inner:
                yield event
        except httpx2.SSEError as exc:
            if "byte limit" in str(exc):
                self._on_overlong()
            raise


@asynccontextmanager
async def _http_streams(url: str, new_client: ClientFactory, max_event_bytes: int) -> AsyncIterator[Any]:
    async with (
        new_client() as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=max_event_bytes) as streams,
    ):
        yield streams
