"""Help pages that fit any terminal: wrapped prose, and remarks of examples below their commands."""

import io
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import IO, Any, cast

from cyclopts.help import InlineText
from rich.console import Console
from rich.text import Text

from smart_mcp_proxy.cli.support.tables import wrap_text

_EXAMPLE = "  "
"""Begins the line of a command to copy."""
_REMARK = "      "
"""Begins the line of a remark below its command."""
_PARTS = re.compile(r"( +\S.*?) {2,}(\S.*)")


class HelpConsole(Console):
    """Writer of help pages to standard output, at the width of the terminal; 80 columns without one."""

    def __init__(self) -> None:
        if sys.stdout.isatty():
            super().__init__()
        else:
            super().__init__(file=cast("IO[str]", _Unpadded()), markup=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Writes a part of a page; the text below the tables is fitted first."""
        if len(objects) == 1 and isinstance(part := objects[0], InlineText) and not part.force_empty_end:
            text = part.primary_renderable
            if isinstance(text, Text):
                super().print(Text(wrap_epilogue(text.plain, self.width)), soft_wrap=True)
                return
        super().print(*objects, **options)


class _Unpadded(io.TextIOBase):
    """Standard output, lines without blanks at their ends: help pages are wrapped off a terminal, too."""

    def __init__(self) -> None:
        self._begun = ""

    def write(self, text: str) -> int:
        """Writes the lines that are complete; called by rich, which ends with one that is."""
        *lines, self._begun = (self._begun + text).split("\n")
        sys.stdout.writelines(line.rstrip() + "\n" for line in lines)
        return len(text)

    def flush(self) -> None:
        """Writes what is left."""
        sys.stdout.write(self._begun)
        sys.stdout.flush()
        self._begun = ""


def wrap_epilogue(text: str, room: int) -> str:
    """A page's closing text with lines of at most `room` characters; a command to copy stays whole."""
    return "\n\n".join(_block(block, room) for block in text.split("\n\n"))


def _block(block: str, room: int) -> str:
    lines = block.split("\n")
    if all(len(line) <= room for line in lines):
        return block
    placed: list[str] = []
    for is_example, group in groupby(lines, key=lambda line: line.startswith(_EXAMPLE)):
        together = list(group)
        placed += _with_remarks_below(together, room) if is_example else wrap_text(" ".join(together), room)
    return "\n".join(placed)


def _with_remarks_below(lines: Iterable[str], room: int) -> Iterator[str]:
    for line in lines:
        parts = _PARTS.fullmatch(line)
        yield parts[1] if parts else line
        if parts:
            yield from wrap_text(_REMARK + parts[2], room)
