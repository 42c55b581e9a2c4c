"""Trace context on the wire: what is valid is passed on, what is not becomes no header."""

import pytest

from smart_mcp_proxy.trace_context import TraceParent, read_trace_parent, trace_fields, traceparent, with_context

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_a_parent_is_read_with_its_decision_and_its_state() -> None:
    """The last bit of the flags says whether it is recorded."""
    found = read_trace_parent({"traceparent": GOOD, "tracestate": "a=1,b=2"})
    assert found == TraceParent(int(TRACE, 16), int(SPAN, 16), True, "a=1,b=2")
    assert traceparent(found.trace_id, found.span_id) == GOOD
    unsampled = read_trace_parent({"traceparent": f"00-{TRACE}-{SPAN}-02"})
    assert unsampled is not None and not unsampled.is_sampled and unsampled.state == ""


def test_the_fields_of_a_head_say_what_meta_says() -> None:
    """Lines as they are sent."""
    found = trace_fields({"traceparent": GOOD, "tracestate": "a=1,b=2", "baggage": "user=ann"})
    assert found == f"traceparent: {GOOD}\r\ntracestate: a=1,b=2\r\n".encode()
    assert trace_fields({}) == b""


def test_a_later_version_may_say_more() -> None:
    """Of version 00 nothing may follow."""
    assert read_trace_parent({"traceparent": f"01-{TRACE}-{SPAN}-01-more"}) is not None
    assert read_trace_parent({"traceparent": f"{GOOD}-more"}) is None


@pytest.mark.parametrize(
    "value",
    [
        *("", "00", GOOD.upper(), f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01"),
        *(f"{GOOD}\r\nx-evil: 1", f" {GOOD}", f"{GOOD}\n", GOOD[:-1], 7, None, [GOOD], {"a": GOOD}),
        *(f"01-{TRACE}-{SPAN}-01-{more}" for more in ("a\rx-evil: 1", "a\nx-evil: 1", "\u00e9", "a" * 201)),
    ],
)
def test_what_is_no_context_is_neither_parent_nor_header(value: object) -> None:
    """An agent may write anything there; none of it gets into a request's head."""
    assert read_trace_parent({"traceparent": value}) is None
    assert trace_fields({"traceparent": value}) == b""


@pytest.mark.parametrize("state", ["a=1\r\nx-evil: 1", "\u00e9=1", "a" * 513, 7, None, ""])
def test_a_state_that_is_no_header_value_is_left_out(state: object) -> None:
    """The parent is good all the same."""
    assert trace_fields({"traceparent": GOOD, "tracestate": state}) == f"traceparent: {GOOD}\r\n".encode()


def test_a_header_counts_where_meta_says_nothing() -> None:
    """Nothing else of the headers is taken over, and nothing that is not valid."""
    headers = {"traceparent": GOOD, "tracestate": "a=1", "baggage": "user=ann"}
    assert with_context({"k": 1}, headers) == {"k": 1, "traceparent": GOOD, "tracestate": "a=1"}
    own = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
    assert with_context(own, headers) is own
    assert with_context({}, {"traceparent": "evil"}) == {}
    assert with_context({}, {"traceparent": GOOD, "tracestate": "a" * 513}) == {"traceparent": GOOD}
    assert with_context({}, {}) == {}
