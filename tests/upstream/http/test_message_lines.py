"""Notifications in front of an answer, however the body is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.upstream.http.http_session import MessageLines, is_notification

PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}'
LOGGED = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\\n"}}'
REPLY = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"a": [1, 2]}}, indent=2).encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PROGRESS, True),
        (LOGGED, True),
        (REPLY, False),
        (b'{"method":"notifications/tools/list_changed"}', False),
        (b'{"method":"notifications/progress","id":1}', False),
        (b'{"method":"notifications/progress","id":null}', False),
        (b'{"method":7}', False),
        (b"[]", False),
        (b"", False),
        (b"\xff", False),
        (b"[" * 100_000, False),
    ],
)
def test_only_what_is_said_about_a_request_is_a_notification_of_its_own(text: bytes, *, expected: bool) -> None:
    """Not what a server announces about itself, nor a request of the server's."""
    assert is_notification(text) is expected


@given(st.lists(st.sampled_from([PROGRESS, LOGGED, b"", b"  "]), max_size=5), st.integers(1, 40))
def test_the_notifications_come_off_and_the_rest_stays(before: list[bytes], size: int) -> None:
    """In order, whatever the pieces; an answer over many lines is left as it is."""
    body = b"".join(line + b"\r\n" for line in before) + REPLY + b"\n" + PROGRESS + b"\n"
    lines = MessageLines(10_000)
    found = [one for at in range(0, len(body), size) for one in lines.feed(body[at : at + size])]
    assert found == [line for line in before if line.strip()]
    assert lines.rest == REPLY + b"\n" + PROGRESS + b"\n"


def test_more_than_may_be_held_is_noticed() -> None:
    """A line without an end, and an answer without one."""
    lines = MessageLines(100)
    assert list(lines.feed(b" " * 100)) == [] and not lines.is_oversized
    assert list(lines.feed(b" ")) == [] and lines.is_oversized
