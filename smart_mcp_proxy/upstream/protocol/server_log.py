"""Log lines of a server: secrets hidden, the last lines only."""

import itertools
import re
from collections import deque
from typing import Final

from smart_mcp_proxy.telemetry import printable, redact

__all__ = ["ServerLog"]

_LINES: Final = 1_000
_SAID_CHARS: Final = 200
"""Of the last line that a server wrote before it failed; most name the reason within it."""


_TELLING: Final = re.compile(r"^npm (?:ERR!|error) .*(?:not in this registry|\bcode E|Not Found - |network request to)")
"""Lines of npm that say why it failed; it goes on with a dozen that do not."""
_NPM: Final = re.compile(r"^npm (?:ERR!|error|notice|warn|WARN)\b")


class ServerLog:
    """The last 1,000 lines of one server, over all its connections.

    Attributes:
        last_said: What it wrote last on its present connection, in one short line.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES)
        self.last_said = ""

    def add(self, text: str, *, is_said: bool) -> None:
        """Keeps a line.

        Args:
            text: As the server wrote it; secrets are hidden now, because later those in use are other ones.
            is_said: Whether it may tell why a connection ends.
        """
        text = redact(text)
        self._lines.append(text)
        if is_said and not self._is_told_by(text):
            self.last_said = printable(text.strip()[:_SAID_CHARS]) or self.last_said

    def _is_told_by(self, text: str) -> bool:
        """Whether the line before says more than this one, which belongs to the same failure."""
        return bool(_TELLING.match(self.last_said) and _NPM.match(text) and not _TELLING.match(text))

    def last(self, count: int) -> list[str]:
        """The last lines, oldest first."""
        return list(itertools.islice(self._lines, max(0, len(self._lines) - count), None))
