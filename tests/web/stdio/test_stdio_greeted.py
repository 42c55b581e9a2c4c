"""Answers that a stdio client has already: the SDK gives them once more, and the client does not get them twice."""

import anyio
import pytest

from smart_mcp_proxy.greeting.answers import BacklogLine, EarlyRequest
from smart_mcp_proxy.greeting.greeter import Handed
from smart_mcp_proxy.io.lines import LineSplitter
from smart_mcp_proxy.web.stdio import stdio
from smart_mcp_proxy.web.stdio.stdio import Greeted

pytestmark = pytest.mark.anyio


def answered(number: int, method: str) -> BacklogLine:
    """A message that was answered before the gateway was loaded."""
    request = EarlyRequest(id=number, method=method, params={}, is_modern=False, is_plain=True)
    return BacklogLine(b'{"id":%d}' % number, request, b'{"id":%d,"result":{}}' % number)


async def test_an_answer_that_comes_after_the_next_message_is_taken_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK took longer for the first than the next one is held back for."""
    monkeypatch.setattr(stdio, "REPEATED_S", 0.0)
    kept = [answered(1, "initialize"), answered(2, "tools/list")]
    greeted = Greeted(Handed(kept, b"", b""))
    with anyio.fail_after(20):
        assert [line async for line in greeted.lines(LineSplitter(1_000))] == [each.line for each in kept]
    assert greeted.take_back(1, b'{"id":1,"result":{}}') == []
    assert greeted.take_back(2, b'{"id":2,"result":{}}') == []
    assert greeted.take_back(2, b'{"id":2,"result":{}}') is None, "the next request may have the same id"
    assert greeted.take_back(None, b"{}") is None
