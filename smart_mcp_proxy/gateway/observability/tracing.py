"""Traces of requests: a span for what a client asks, and below it one for each request to a server.

Whether a trace is recorded is decided before any span exists, so a request that is not costs a random number.
"""

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

from mcp.shared.exceptions import MCPError

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway.results.results import facts_of
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import traced_in
from smart_mcp_proxy.trace_context import TRACE_PARENT, TraceParent, parent_in, traceparent

__all__ = ["ClientSpan", "Sampled", "Span", "SpanMaker", "Tracing"]

Attributes = Mapping[str, str | int]
SpanKind = Literal["server", "client"]
Sampled = Callable[[int, TraceParent | None], bool]
"""Decides whether a trace is recorded, from its id and the request's parent."""

TOOL_CALL: Final = "tools/call"
NAME_CHARS: Final = 100
"""Of a tool's or prompt's name in a span."""
_GOOD: Final = frozenset({"ok", "input_required", "empty"})
"""Outcomes that are no errors."""


class Span(Protocol):
    """A span that is recorded."""

    trace_id: int
    span_id: int

    def end(self, error: str, facts: Attributes) -> None:
        """End it.

        Args:
            error: Type of the error; empty where there was none.
            facts: More attributes.
        """


class SpanMaker(Protocol):
    """Makes spans and hands those that have ended to an exporter."""

    def begin(
        self, kind: SpanKind, name: str, trace_id: int, parent: TraceParent | None, attributes: Attributes
    ) -> Span:
        """Begin a span of a trace; without a parent it is the trace's root."""


class _Serving:
    """A client's request that is being served.

    Attributes:
        span: Its own; None where the trace is not recorded.
        state: What tracing systems add to the context.
        outcome: Of the last request to a server that went wrong.
        is_over: Whether it was answered: a task that began meanwhile may outlive it.
    """

    __slots__ = ("is_over", "outcome", "span", "state")

    def __init__(self, span: Span | None = None, state: str = "") -> None:
        self.span = span
        self.state = state
        self.outcome = ""
        self.is_over = False


_serving: ContextVar[_Serving | None] = ContextVar("serving", default=None)


class ClientSpan:
    """A request to a server, on its way.

    Args:
        span: Its own.
    """

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def stamped(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The request's parameters with its trace context in `_meta`."""
        mark = traceparent(self._span.trace_id, self._span.span_id)
        return {**params, "_meta": {**(params.get("_meta") or {}), TRACE_PARENT: mark}}

    def end(self, outcome: str) -> None:
        """The request has ended, with this outcome of the activity log."""
        self._span.end("" if outcome in _GOOD else outcome, {})


class Tracing:
    """Makes the spans of requests.

    Args:
        spans: Makes and exports them.
        is_sampled: Decides before a span is made.
    """

    def __init__(self, spans: SpanMaker, is_sampled: Sampled) -> None:
        self._spans = spans
        self._is_sampled = is_sampled
        self._random = random.Random(os.urandom(32))

    def serve(
        self,
        method: str,
        name: str,
        meta: Mapping[str, Any],
        work: Coroutine[Any, Any, RawResult],
        *,
        is_first: bool = False,
    ) -> Coroutine[Any, Any, RawResult]:
        """The answer to a client's request, made within a span unless it is a part of another.

        Args:
            method: Of the protocol.
            name: Tool or prompt that is asked for; empty where there is none that may be shown.
            meta: The request's.
            work: Makes the answer.
            is_first: Whether it is certainly no part of another: a task's context may be that of an earlier request.
        """
        if not is_first and (present := _serving.get()) is not None and not present.is_over:
            return work
        parent = parent_in(meta) if TRACE_PARENT in meta else None
        trace_id = parent.trace_id if parent is not None else self._random.getrandbits(128) or 1
        if not self._is_sampled(trace_id, parent):
            return _unrecorded(work)
        span = self._spans.begin("server", _title(method, name), trace_id, parent, _attributes(method, name))
        return _recorded(span, _Serving(span, parent.state if parent is not None else ""), work)

    def calling(self, method: str, name: str, config: ServerConfig) -> ClientSpan | None:
        """Begin a request to a server as a part of the one being served; None if not recorded.

        Args:
            method: Of the protocol.
            name: Tool or prompt, as the server calls it; empty where there is none that may be shown.
            config: The server.
        """
        serving = _serving.get()
        if serving is None or (served := serving.span) is None:
            return None  # the client's context, where it sent one, is passed on as it is
        parent = TraceParent(served.trace_id, served.span_id, True, serving.state)
        facts = _attributes(method, name) | _address(config)
        return ClientSpan(self._spans.begin("client", _title(method, name), parent.trace_id, parent, facts))

    def note(self, outcome: str) -> None:
        """Keep the outcome of a request to a server that went wrong: its client's span says the same."""
        if outcome not in _GOOD and (serving := _serving.get()) is not None:
            serving.outcome = outcome


async def _unrecorded(work: Coroutine[Any, Any, RawResult]) -> RawResult:
    """Await an answer; its parts know that it was decided for them."""
    serving = _Serving()
    token = _serving.set(serving)
    try:
        return await work
    finally:
        _serving.reset(token)
        serving.is_over = True


async def _recorded(span: Span, serving: _Serving, work: Coroutine[Any, Any, RawResult]) -> RawResult:
    token, trace = _serving.set(serving), traced_in.set(f"{span.trace_id:032x}")
    error, facts = "internal", dict[str, str | int]()
    try:
        result = await work
        stated = facts_of(result)
        error = (serving.outcome or "tool_error") if stated is not None and stated.isError else ""
        return result
    except ProxyError as exc:
        error = exc.error_code
        raise
    except MCPError as exc:
        error = serving.outcome or str(exc.error.code)
        facts["rpc.response.status_code"] = str(exc.error.code)
        raise
    except asyncio.CancelledError:
        error = "cancelled"
        raise
    finally:
        _serving.reset(token)
        traced_in.reset(trace)
        serving.is_over = True
        span.end(error, facts)


def _title(method: str, name: str) -> str:
    return f"{method} {name[:NAME_CHARS]}" if name else method


def _attributes(method: str, name: str) -> dict[str, str | int]:
    """Attributes of both kinds of span; never a URI, an argument or a session's id.

    Source: semantic conventions for generative AI, MCP.
    """
    attributes: dict[str, str | int] = {"mcp.method.name": method}
    if method == TOOL_CALL:
        attributes["gen_ai.operation.name"] = "execute_tool"
    if name:
        attributes["gen_ai.tool.name" if method == TOOL_CALL else "gen_ai.prompt.name"] = name[:NAME_CHARS]
    return attributes


def _address(config: ServerConfig) -> dict[str, str | int]:
    """Attributes of the server that a request goes to."""
    attributes: dict[str, str | int] = {"mcpproxy.server": config.name}
    if not config.url:
        return attributes | {"network.transport": "pipe"}
    attributes |= {"network.transport": "tcp", "network.protocol.name": "http"}
    try:
        parts = urlsplit(config.url)
        host, port = parts.hostname, parts.port
    except ValueError:  # a variable stands where the port is
        return attributes
    if host and "$" not in host:
        attributes["server.address"] = host
        attributes["server.port"] = port or (443 if parts.scheme == "https" else 80)
    return attributes
