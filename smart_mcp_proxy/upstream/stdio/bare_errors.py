"""Internal errors that a server answers without a reason, and the reason that it wrote to stderr."""

import asyncio
from typing import Final

from mcp_types import INTERNAL_ERROR

from smart_mcp_proxy.errors import RpcAnswer, UpstreamError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.upstream.protocol.server_log import ServerLog

__all__ = ["add_reason", "is_bare"]

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


async def add_reason(error: UpstreamError, server: str, era: Era, log: ServerLog, mark: int) -> Era | None:
    """Append what the server wrote to stderr to the words of a bare answer; else hint at the other era.

    Args:
        error: See `is_bare`; changed.
        server: Configured name.
        era: Spoken with it.
        log: Its lines.
        mark: Of the log, from before the request.

    Returns:
        The era that the next session is to begin with; None where it does not matter.
    """
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    if reason := log.reason(mark):
        words = f" (on stderr it wrote meanwhile: {reason})"
        assert error.answer is not None
        error.message, error.said = error.message + words, error.said + words
        error.answer = RpcAnswer(error.answer.code, error.answer.message + words, error.answer.data)
        return None
    if era == "handshake":
        return "handshake"
    error.hint = (
        "It wrote nothing to stderr either. Some servers tell reasons in the older protocol versions alone, which are "
        f"tried once it is started anew: mcpproxy server restart {shell_word(server)}"
    )
    return "handshake"
