"""Internal errors that a server answers without a reason, and the reason that it wrote to stderr."""

import asyncio
from typing import Final

from mcp_types import INTERNAL_ERROR

from smart_mcp_proxy.errors import RpcAnswer, UpstreamError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.upstream.protocol.server_log import ServerLog

__all__ = ["Reasons", "is_bare"]

_BARE: Final = ("", "internal error", "internal server error")
"""Messages that say no more than the code. In the modern era version 2 of the SDK for Python answers with the last of
them in place of an exception, which it logs."""
_TURNS: Final = 3
"""Of the event loop: what was written to stderr before the answer may be read after it."""


def is_bare(error: UpstreamError) -> bool:
    """Whether a server answered that something failed inside of it, and nothing more."""
    answer = error.answer
    if answer is None or answer.code != INTERNAL_ERROR or answer.data:
        return False
    return answer.message.strip(" .").lower() in _BARE


class Reasons:
    """Reasons of one server's bare errors: what it wrote to stderr, else the era in which it tells them.

    Args:
        server: Configured name.
        log: Its lines.

    Attributes:
        era: That the next session is to begin with; None where it does not matter.
        under_way: Requests without an answer.
        may_lose_state: Whether a call succeeded on the present connection: the server may hold a state.
    """

    def __init__(self, server: str, log: ServerLog) -> None:
        self.era: Era | None = None
        self.under_way = 0
        self.may_lose_state = False
        self._server = server
        self._log = log

    def begin(self) -> int:
        """Count a request; returns the place in the log behind which its reason would stand."""
        self.under_way += 1
        return self._log.mark

    async def begins_anew(self, error: UpstreamError, era: Era, mark: int) -> bool:
        """Append the reason to the words of a bare answer; else whether the older era can be tried at once.

        Args:
            error: Changed where it is bare.
            era: Spoken with the server.
            mark: Of the request; see `begin`.
        """
        if not is_bare(error):
            return False
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if reason := self._log.reason(mark):
            words = f" (on stderr it wrote meanwhile: {reason})"
            assert error.answer is not None
            error.message, error.said = error.message + words, error.said + words
            error.answer = RpcAnswer(error.answer.code, error.answer.message + words, error.answer.data)
            return False
        self.era = "handshake"
        if era == "handshake":
            return False
        can_begin = self.under_way == 1 and not self.may_lose_state
        restart = f"tried once it is started anew: mcpproxy server restart {shell_word(self._server)}"
        error.hint = (
            "It wrote nothing to stderr either. Some servers tell reasons in the older protocol versions alone, which "
            f"are {'tried now: the next call shows it.' if can_begin else restart}"
        )
        return can_begin
