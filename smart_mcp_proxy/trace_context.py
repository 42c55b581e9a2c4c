"""Trace context on the wire: read from `_meta` or a header, written into both."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

TRACE_PARENT: Final = "traceparent"
TRACE_STATE: Final = "tracestate"
_PARENT: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]{0,200})?", re.ASCII
)
"""Value of `traceparent`; what later versions add is printable, and short: it becomes a header.

Source: https://www.w3.org/TR/trace-context/#traceparent-header"""
_STATE: Final = re.compile(r"[\x20-\x7e]{1,512}", re.ASCII)
"""Printable, and short: it becomes a header. Source: https://www.w3.org/TR/trace-context/#tracestate-header"""
_SAMPLED: Final = 0x01
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
"""Stand for none."""


class TraceParent(NamedTuple):
    """The place in a trace that a request comes from.

    Attributes:
        trace_id: 128 bits, not 0.
        span_id: 64 bits, not 0.
        is_sampled: Whether its sender records the trace.
        state: What tracing systems add to it, as it came; empty where there is none.
    """

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""


def read_trace_parent(meta: Mapping[str, Any]) -> TraceParent | None:
    """Read the trace context of a request's `_meta`; None where there is none, or none that is valid.

    Source: https://modelcontextprotocol.io/seps/414-request-meta
    """
    found = _match_trace_parent(meta)
    if found is None:
        return None
    is_sampled = bool(int(found[4], 16) & _SAMPLED)
    return TraceParent(int(found[2], 16), int(found[3], 16), is_sampled, _read_trace_state(meta))


def _match_trace_parent(meta: Mapping[str, Any]) -> re.Match[str] | None:
    text = meta.get(TRACE_PARENT)
    found = _PARENT.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    return None if found[2] == _NO_TRACE or found[3] == _NO_SPAN else found


def traceparent(trace_id: int, span_id: int) -> str:
    """The text that names a recorded span as the parent of what follows."""
    return f"00-{trace_id:032x}-{span_id:016x}-01"


def trace_fields(meta: Mapping[str, Any]) -> bytes:
    """The lines of an HTTP head that say what `_meta` says; none where its trace context is not valid."""
    if TRACE_PARENT not in meta or _match_trace_parent(meta) is None:
        return b""
    field, state = f"{TRACE_PARENT}: {meta[TRACE_PARENT]}\r\n", _read_trace_state(meta)
    return (f"{field}{TRACE_STATE}: {state}\r\n" if state else field).encode("ascii")


def with_context(meta: Mapping[str, Any], headers: Mapping[str, str]) -> Mapping[str, Any]:
    """`meta` with the trace context of its request's HTTP headers, where it has none itself.

    Args:
        meta: Of the request.
        headers: Of HTTP, names in lower case.
    """
    if TRACE_PARENT not in headers or TRACE_PARENT in meta:
        return meta
    if _match_trace_parent(headers) is None:
        return meta
    found, state = {TRACE_PARENT: headers[TRACE_PARENT]}, _read_trace_state(headers)
    return {**meta, **found, TRACE_STATE: state} if state else {**meta, **found}


def _read_trace_state(meta: Mapping[str, Any]) -> str:
    state = meta.get(TRACE_STATE)
    return state if isinstance(state, str) and _STATE.fullmatch(state) else ""
