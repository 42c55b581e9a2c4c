"""Handover of a greeted stdio client: the SDK learns what was said, nothing is sent twice."""

from collections.abc import AsyncIterator, Iterator

import anyio
import msgspec
from mcp.shared.dispatcher import coerce_request_id

from smart_mcp_proxy.greeting import BacklogLine, Handed
from smart_mcp_proxy.io.lines import LineSplitter, OverlongLine
from smart_mcp_proxy.telemetry import get_logger

REPEATED_S = 10.0
"""How long the SDK may take to answer what was answered already; the client's next message waits for it."""
_GROUPS = ("prompts", "resources")

log = get_logger("stdio")


class Greeted:
    """The client's first messages, and what became of them.

    Args:
        handed: From the process that answered until now; None where there was none.
    """

    def __init__(self, handed: Handed | None) -> None:
        self._handed = handed or Handed([], b"", b"")
        self._said: dict[int | str, BacklogLine] = {}
        """Messages that the SDK is answering once more, by their ids; usually one."""
        self._repeated = anyio.Event()

    @property
    def unsent(self) -> bytes:
        """Answers that the client has not been sent yet."""
        return self._handed.unsent

    async def lines(self, splitter: LineSplitter) -> AsyncIterator[bytes | OverlongLine]:
        """The lines that came before, one after the other; an unfinished one stays in `splitter`.

        What was answered already is repeated by itself: a client may give its next request the same id.
        """
        for kept in self._handed.kept:
            for line in splitter.feed(kept.line + b"\n"):
                if kept.said is not None and kept.request is not None:
                    self._said[coerce_request_id(kept.request.id)] = kept
                    self._repeated = anyio.Event()
                yield line
                if kept.said is not None:
                    with anyio.move_on_after(REPEATED_S):
                        await self._repeated.wait()
        for line in splitter.feed(self._handed.rest):
            yield line

    def take_back(self, request_id: int | str | None, answer: bytes) -> list[bytes] | None:
        """Messages for the client in place of an answer that it has; None if it has not.

        Args:
            request_id: Of the request that the SDK has answered.
            answer: The whole message.
        """
        kept = None if request_id is None else self._said.pop(coerce_request_id(request_id), None)
        if kept is None or kept.request is None or kept.said is None:
            return None
        self._repeated.set()
        return list(_corrections(kept.request.method, kept.said, answer)) if kept.said != answer else []


def _corrections(method: str, said: bytes, answer: bytes) -> Iterator[bytes]:
    """Notifications of changes since the last start, as far as the protocol has them."""
    log.debug("the answer to %s has changed since the last start", method)
    before, now = (msgspec.json.decode(each).get("result") for each in (said, answer))
    if now is None:
        log.warning("%s was answered as at the last start, and is an error now: %s", method, answer.decode())
    elif method == "tools/list" and "resultType" not in now:  # the modern era tells only those that listen
        yield _encode_list_changed("tools")
    elif method == "initialize":
        yield from (
            _encode_list_changed(group)
            for group in _GROUPS
            if now["capabilities"].get(group) != before["capabilities"].get(group)
        )


def _encode_list_changed(group: str) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": f"notifications/{group}/list_changed"})
