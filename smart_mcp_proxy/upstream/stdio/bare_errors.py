"""Internal errors that a server answers without a reason, and the reason that it wrote to stderr."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mcp_types import INTERNAL_ERROR

from smart_mcp_proxy.errors import RpcAnswer, UpstreamError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream.confinement.refusals import hint_refusal, hint_refused_call
from smart_mcp_proxy.upstream.http_failures import LostSessionError
from smart_mcp_proxy.upstream.protocol.server_log import ServerLog

_BARE: Final = ("", "internal error", "internal server error")
"""Messages that say no more than the code. In the modern era version 2 of the SDK for Python answers with the last of
them in place of an exception, which it logs."""
_TURNS: Final = 3
"""Turns of the event loop to wait: what was written to stderr before the answer may be read after it."""


def is_bare(error: UpstreamError) -> bool:
    """Whether a server answered that something failed inside of it, and nothing more."""
    answer = error.answer
    if answer is None or answer.code != INTERNAL_ERROR or answer.data:
        return False
    return answer.message.strip(" .").lower() in _BARE


def older_era_error(server: str) -> LostSessionError:
    """The end of a session in favour of one in the older era."""
    return LostSessionError(
        f"Server '{server}' is started anew for the reason of a failure.",
        hint="Some servers tell reasons in the older protocol versions alone; it is ready again in a moment.",
    )


class Reasons:
    """Reasons of one server's bare errors: what it wrote to stderr, else the era in which it tells them.

    Args:
        config: Of the server.
        log: Its lines.
        guarded: What no server reaches.

    Attributes:
        era: That the next session is to begin with; None where it does not matter.
        under_way: Requests without an answer.
        may_lose_state: Whether a call succeeded on the present connection: the server may hold a state.
    """

    def __init__(self, config: ServerConfig, log: ServerLog, guarded: Iterable[Path] = ()) -> None:
        self.era: Era | None = None
        self.under_way = 0
        self.may_lose_state = False
        self._config = config
        self._log = log
        self._guarded = guarded
        self._has_begun_anew = False

    async def begins_anew(self, error: UpstreamError, method: str, era: Era, mark: int) -> bool:
        """Append reason and remedy to an answer or an end; for a bare one, whether the older era is tried now.

        Args:
            error: Of the request; changed where it tells no reason.
            method: Of the request. What lists say is worth no restart.
            era: Spoken with the server.
            mark: Of the log, from before the request.
        """
        if not (is_lost := error.is_lost) and not is_bare(error):
            error.hint = hint_refused_call(self._config, error.message, self._guarded).lstrip() or error.hint
            return False
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if is_lost:
            error.hint += hint_refusal(self._config, self._log.last_connection(), error.message, self._guarded)
        if reason := self._log.reason(mark):
            self._append(error, f" It wrote: {reason}" if is_lost else f" (on stderr it wrote meanwhile: {reason})")
            return False
        if is_lost or method != "tools/call":
            return False
        self.era = "handshake"
        if era == "handshake" or self._has_begun_anew:  # it told no more there, or speaks no other
            return False
        self._has_begun_anew = self.under_way == 1 and not self.may_lose_state
        restart = f"tried once it is started anew: mcpproxy server restart {shell_word(self._config.name)}"
        error.hint = (
            "It wrote nothing to stderr either. Some servers tell reasons in the older protocol versions alone, which "
            f"are {'tried now: the next call shows it.' if self._has_begun_anew else restart}"
        )
        return self._has_begun_anew

    @staticmethod
    def _append(error: UpstreamError, words: str) -> None:
        """Have an error end with words of the server, which are cleaned and fenced as such."""
        error.message, error.said = error.message + words, (error.said + words).lstrip()
        if error.answer is not None:
            error.answer = RpcAnswer(error.answer.code, error.answer.message + words, error.answer.data)
