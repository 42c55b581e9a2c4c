"""Traces of requests: a span for what a client asks, and below it one for each request to a server.

Whether a trace is recorded is decided before any span exists. A request whose trace is not costs a random number and a
comparison: nothing is made for it, and nothing wrapped around its work.
"""

import asyncio
import os
import random
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from mcp.shared.exceptions import MCPError

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway.results.results import read_facts
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import traced_in
from smart_mcp_proxy.trace_context import TRACE_PARENT, TraceParent, read_trace_parent, traceparent

if TYPE_CHECKING:
    from smart_mcp_proxy.gateway.observability.otel_edge import OtelSpan, OtelSpans

Attributes = Mapping[str, str | int]
SpanKind = Literal["server", "client"]

_HALF_BITS: Final = 64
"""Bits of half a trace's id."""
ID_RANGE: Final = 1 << _HALF_BITS
"""Values of the part of a trace's id that a share of traces is chosen by.

Source: https://opentelemetry.io/docs/specs/otel/trace/sdk/#traceidratiobased"""
TOOL_CALL: Final = "tools/call"
NAME_CHARS: Final = 100
"""Characters of a tool's or prompt's name in a span."""
_GOOD: Final = frozenset({"ok", "input_required", "empty"})
"""Outcomes that are no errors."""


class Sampler(NamedTuple):
    """Decides which traces are recorded.

    Attributes:
        bound: That part of their ids is below it: nothing of `ID_RANGE` for none, all of it for all.
        follows_parent: Whether a request that has a parent does what that does.
    """

    bound: int
    follows_parent: bool = True

    def takes(self, trace_id: int, parent: TraceParent | None) -> bool:
        """Whether a trace is recorded."""
        if parent is not None and self.follows_parent:
            return parent.is_sampled
        return trace_id % ID_RANGE < self.bound


class _Serving:
    """A client's request that is being served.

    Attributes:
        span: Its own.
        state: What tracing systems add to the context.
        outcome: Of the last request to a server that went wrong.
        is_over: Whether it was answered: a task that began meanwhile may outlive it.
    """

    __slots__ = ("is_over", "outcome", "span", "state")

    def __init__(self, span: "OtelSpan", state: str) -> None:
        self.span = span
        self.state = state
        self.outcome = ""
        self.is_over = False


_serving: ContextVar[_Serving | None] = ContextVar("serving", default=None)
"""Set while the work of a recorded trace is done, and by that alone."""


class ClientSpan:
    """A request to a server, on its way.

    Args:
        span: Its own.
    """

    __slots__ = ("_span",)

    def __init__(self, span: "OtelSpan") -> None:
        self._span = span

    def add_trace_context(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
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
        sampler: Decides before a span is made.
    """

    def __init__(self, spans: "OtelSpans", sampler: Sampler) -> None:
        self._spans = spans
        self._sampler = sampler
        self._bound = sampler.bound
        self._draw = random.Random(os.urandom(32)).getrandbits

    def serve(
        self, method: str, name: str, meta: Mapping[str, Any], work: Coroutine[Any, Any, RawResult]
    ) -> Coroutine[Any, Any, RawResult]:
        """The answer to a client's request, made within a span if its trace is recorded.

        Args:
            method: Of the protocol.
            name: Tool or prompt that is asked for; empty where there is none that may be shown.
            meta: The request's.
            work: Makes the answer.
        """
        parent = read_trace_parent(meta) if TRACE_PARENT in meta else None
        if parent is not None:
            trace_id = parent.trace_id
            if not self._sampler.takes(trace_id, parent):
                return work
        elif (low := self._draw(_HALF_BITS)) >= self._bound:
            return work
        else:
            trace_id = self._draw(_HALF_BITS) << _HALF_BITS | low
        span = self._spans.begin("server", _title(method, name), trace_id, parent, _attributes(method, name))
        return _record_request(span, _Serving(span, parent.state if parent is not None else ""), work)

    def is_recorded(self) -> bool:
        """Whether the request that is being served is."""
        # A task's context may be that of an earlier request, in which the task began.
        return (serving := _serving.get()) is not None and not serving.is_over

    def begin_client_span(self, method: str, name: str, config: ServerConfig) -> ClientSpan:
        """Begin a request to a server as a part of the recorded one that is being served.

        Args:
            method: Of the protocol.
            name: Tool or prompt, as the server calls it; empty where there is none that may be shown.
            config: The server.
        """
        serving = _serving.get()
        assert serving is not None, "is_recorded() was asked"
        parent = TraceParent(serving.span.trace_id, serving.span.span_id, True, serving.state)
        facts = _attributes(method, name) | _address(config)
        return ClientSpan(self._spans.begin("client", _title(method, name), parent.trace_id, parent, facts))

    def note(self, outcome: str) -> None:
        """Keep the outcome of a request to a server that went wrong: its client's span says the same."""
        if outcome not in _GOOD and (serving := _serving.get()) is not None:
            serving.outcome = outcome


async def _record_request(span: "OtelSpan", serving: _Serving, work: Coroutine[Any, Any, RawResult]) -> RawResult:
    token, trace = _serving.set(serving), traced_in.set(f"{span.trace_id:032x}")
    error, facts = "internal", dict[str, str | int]()
    try:
        result = await work
        stated = read_facts(result)
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

    Source: https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
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
