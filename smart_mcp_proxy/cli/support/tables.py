"""Tables that no terminal breaks in the middle of a word, and that a pipe gets without padding."""

import re
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_GAP = 2
_INDENT = 4
_ALIGNED_CHARS = 40
"""Off a terminal, cells up to this are padded to a column: one long cell must not widen every line."""
_READABLE = 24
"""Narrower than this no column is wrapped: a line for each two words is none."""
_WORD = re.compile(r"\S+")
_COMMAND = re.compile(r"(?<=: )(?:MCPPROXY_\w+=\S+ )?(?:\S*/)?mcpproxy(?!\S).*\Z|^Next: .*\Z", re.DOTALL)
"""A command at the end of a text, which is copied as it stands."""


class Table:
    """Rows under headings; a column whose heading ends with `#` is aligned to the right.

    Args:
        columns: Headings.
        rows: A cell for each heading.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
        self.is_right = [column.endswith("#") for column in columns]
        self.head = [Text(column.removesuffix("#"), style="bold") for column in columns]
        self.rows = rows

    @property
    def _lines(self) -> list[Sequence[Text]]:
        return [self.head, *self.rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich."""
        if not console.is_terminal:
            yield from self._render_plain()
            return
        widths = self._widths(options.max_width)
        for cells in self._lines:
            yield from self._row(cells, widths) if widths else self._stack_cells(cells, options.max_width)

    def _render_plain(self) -> Iterator[Text]:
        """A line for each row, aligned where that takes little room."""
        widths = [
            max((width for width in map(_longest_line, column) if width <= _ALIGNED_CHARS), default=0)
            for column in self._columns()
        ]
        for cells in self._lines:
            flat = [Text(" ").join(cell.split()) if "\n" in cell.plain else cell for cell in cells]
            yield _join_cells([self._pad_cell(place, cell, widths[place]) for place, cell in enumerate(flat)])

    def _columns(self) -> list[list[Text]]:
        return [list(column) for column in zip(*self._lines, strict=True)]

    def _widths(self, room: int) -> list[int]:
        """Width of each column; empty where they do not fit beside each other."""
        columns = self._columns()
        natural = [max(map(_longest_line, column)) for column in columns]
        room -= _GAP * (len(columns) - 1)
        if sum(natural) <= room:
            return natural
        least = [max(map(_longest_word, column)) for column in columns]
        widths = [min(width, max(word, _READABLE)) for width, word in zip(natural, least, strict=True)]
        left = room - sum(widths)
        if left < 0:
            return []
        for place in sorted(range(len(widths)), key=lambda place: natural[place] - widths[place]):
            share = left // max(1, sum(natural[other] > widths[other] for other in range(len(widths))))
            given = min(share, natural[place] - widths[place])
            widths[place] += given
            left -= given
        return widths

    def _row(self, cells: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
        folded = [_fold_cell(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for line in range(max(map(len, folded))):
            parts = [lines[line] if line < len(lines) else Text() for lines in folded]
            yield _join_cells([self._pad_cell(place, part, widths[place]) for place, part in enumerate(parts)])

    def _stack_cells(self, cells: Sequence[Text], room: int) -> Iterator[Text]:
        """As many cells as fit on a line, the others below it, indented."""
        line = Text()
        indent = 0
        for cell in (each or Text("-") for each in cells):  # below each heading something
            if line.plain and len(line) + _GAP + _longest_line(cell) <= room and "\n" not in cell.plain:
                line = Text.assemble(line, " " * _GAP, cell)
                continue
            if line.plain:
                yield line
                indent = _INDENT
            pieces = _fold_cell(cell, room - indent)
            for piece in pieces[:-1]:
                yield Text.assemble(" " * indent, _strip_cell(piece))
                indent = _INDENT
            line = Text.assemble(" " * indent, _strip_cell(pieces[-1]))
        yield line

    def _pad_cell(self, place: int, cell: Text, width: int) -> Text:
        filling = " " * max(0, width - cell.cell_len)
        return (
            Text.assemble(filling, _strip_cell(cell))
            if self.is_right[place]
            else Text.assemble(_strip_cell(cell), filling)
        )


def wrap_text(text: str, room: int) -> list[str]:
    """Lines of at most `room` characters, broken between words; a command at the end keeps its line whole."""
    lines = []
    for paragraph in text.split("\n"):
        found = _COMMAND.search(paragraph)
        command = found[0] if found and len(paragraph) > room else ""
        prose = paragraph.removesuffix(command)
        lines += _wrap_prose(prose, room)
        if command and lines and len(lines[-1]) + 1 + len(command) <= room and lines[-1]:
            lines[-1] = f"{lines[-1]} {command}"
        elif command and prose:
            lines.append(command)
        elif command:
            lines[-1] = command
    return lines


def _wrap_prose(text: str, room: int) -> list[str]:
    indent = text[: len(text) - len(text.lstrip())]
    if len(text) <= room:
        return [text.rstrip()]
    lines, line = [], indent
    for word in text.split():
        if line.strip() and len(line) + 1 + len(word) > room:
            lines.append(line)
            line = indent
        line = f"{line} {word}" if line.strip() else line + word
    return [*lines, line]


def _fold_cell(cell: Text, room: int) -> list[Text]:
    """A cell's lines of at most `room` characters; a longer word has a line of its own, and stays whole."""
    lines: list[Text] = []
    for paragraph in cell.split("\n", allow_blank=True):
        breaks, begin, end = [], 0, 0
        for found in _WORD.finditer(paragraph.plain):
            if end > begin and Text(paragraph.plain[begin : found.end()]).cell_len > room:
                breaks.append(found.start())
                begin = found.start()
            end = found.end()
        lines += paragraph.divide(breaks) if breaks else [paragraph]
    return lines


def _join_cells(cells: Sequence[Text]) -> Text:
    line = Text(" " * _GAP).join(cells)
    line.rstrip()
    return line


def _strip_cell(cell: Text) -> Text:
    cell = cell.copy()
    cell.rstrip()
    return cell


def _longest_line(cell: Text) -> int:
    return max((line.cell_len for line in cell.split("\n")), default=0)


def _longest_word(cell: Text) -> int:
    return max((Text(word).cell_len for word in cell.plain.split()), default=0)
