"""Log lines of a server: secrets hidden, the last lines only."""

import itertools
from collections import deque
from typing import Final

from smart_mcp_proxy.telemetry import printable, redact
from smart_mcp_proxy.upstream.protocol.crashes.reason import find_reason

_LINES: Final = 1_000
_SAID_CHARS: Final = 200
"""Of the last line that a server wrote."""


class ServerLog:
    """The last 1,000 lines of one server, over all its connections.

    Attributes:
        last_said: What it wrote last on its present connection, in one short line.
        mark: Number of lines so far that may tell why something failed.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES)
        self.mark = self._began = 0
        self.last_said = ""

    def begin(self) -> None:
        """Start with a new connection, whose end what was written before does not explain."""
        self._began, self.last_said = self.mark, ""

    def add(self, text: str, *, is_said: bool) -> None:
        """Keeps a line.

        Args:
            text: As the server wrote it; secrets are hidden now, because later those in use are other ones.
            is_said: Whether it may tell why a connection ends.
        """
        text = redact(text)
        self._lines.append(text)
        if is_said:
            self.mark += 1
            self.last_said = printable(text.strip()[:_SAID_CHARS]) or self.last_said

    def reason(self, mark: int | None = None) -> str:
        """Why something failed after `mark`, or the connection ended, as the server wrote it: one short line."""
        began = self._began if mark is None else mark
        return printable(find_reason(self.last(self.mark - began)))

    def last(self, count: int) -> list[str]:
        """The last lines, oldest first."""
        return list(itertools.islice(self._lines, max(0, len(self._lines) - count), None))
