"""Server-sent events: what a stream means does not depend on how its bytes arrive."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.event_parser import EventParser, OversizedEventError, ServerSentEvent

LINES = [
    b"data: a",
    b"data:b",
    b"data",
    b"data:  c",
    b": note",
    b"",
    b"",
    b"event: x",
    b"id: 7",
    b"retry: 5",
    b"other: 1",
]


def read(*chunks: bytes, limit: int = 1000) -> list[ServerSentEvent]:
    """The events in these chunks."""
    parser = EventParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def message(data: bytes) -> ServerSentEvent:
    """An event of the usual type."""
    return ServerSentEvent("message", data)


@pytest.mark.long  # a third of a second of processor time
@given(
    st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=30),
    st.lists(st.integers(0, 300), max_size=20),
)
def test_chunks_and_line_ends_make_no_difference(lines, cuts):
    """Cut anywhere, with any mix of line ends: the events of the whole with plain line feeds."""
    whole = b"".join(line + end for line, end in lines)
    plain = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    assert read(*(whole[a:b] for a, b in pairwise(places))) == read(plain)
    assert read(*(whole[place : place + 1] for place in range(len(whole)))) == read(plain)


def test_data_lines_are_joined_and_fields_understood():
    """One space after the colon is not part of the value; what has no data is no event."""
    assert read(b"data: a\ndata:  b\ndata\ndata:c\n\n") == [message(b"a\n b\n\nc")]
    assert read(b"event: note\ndata: x\n\ndata: y\n\n") == [ServerSentEvent("note", b"x"), message(b"y")]
    assert read(b": ping\n\nevent: x\n\ndata:\n\n") == []
    assert read(b"\xef\xbb\xbfdata: x\n\n") == read(b"\xef", b"\xbb\xbfdata: x\n\n") == [message(b"x")]
    assert read(b"data: not ended\n") == []


def test_ids_and_pauses_are_kept():
    """For opening the stream again; what could not go back in a header is no id."""
    parser = EventParser(5000)
    for chunk in (b"id: 1\n\nid: a\x00b\nid: \xff\nid: " + b"x" * 2000 + b"\n", b"retry: 250\nretry: soon\n\n"):
        assert list(parser.feed(chunk)) == []
    assert (parser.last_id, parser.retry_s) == ("1", 0.25)


@pytest.mark.parametrize(
    "chunks", [[b"data: " + b"x" * 100], [b"x" * 60, b"x" * 60], [b"data: xxxxx\n"] * 20, [b"data\n"] * 200]
)
def test_an_event_over_the_limit_is_refused_while_it_arrives(chunks):
    """As one line, as one line in pieces, as many lines."""
    with pytest.raises(OversizedEventError):
        read(*chunks, limit=99)


def test_a_stream_may_be_endless_where_its_events_are_small():
    """Neither events that are over nor comments count."""
    assert len(read(*[b": keep-alive\ndata: xxxx\n\n"] * 1000, limit=20)) == 1000


@pytest.mark.parametrize(("asked", "retry_s"), [(b"0", 0.1), (b"99", 0.1), (b"2500", 2.5), (b"-1", None), (b"x", None)])
def test_a_pause_of_nothing_is_not_granted(asked: bytes, retry_s: float | None) -> None:
    """A server that ends every stream at once and asks for no pause would be asked again without end."""
    parser = EventParser(100)
    assert list(parser.feed(b"retry: " + asked + b"\n\n")) == []
    assert parser.retry_s == retry_s
