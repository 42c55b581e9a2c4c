"""Tables and texts at the width of a terminal, and in a pipe."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from smart_mcp_proxy.cli.support.output import table
from smart_mcp_proxy.cli.support.tables import wrap_text

LONG = "Adds a task to the list, most urgent first, and tells which other tasks are due on the same day. " * 2
ROWS = [
    ["todo:add_task_with_a_long_name", "(title: str)", "3", LONG.strip()],
    ["clock:now", "()", "1,204", "The time.\nIn any zone."],
    ["x", "", "7", ""],
]


def drawn(width: int, *, is_terminal: bool = True) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=is_terminal, color_system=None)
    console.print(table(["tool", "parameters", "uses#", "description"], ROWS))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_longer_than_the_terminal_and_no_word_is_cut(width: int) -> None:
    """All words are there, whole and in order, at every width."""
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    words = " ".join(lines).split()
    for row in ROWS:
        for cell in row:
            assert set(cell.split()) <= set(words)


def test_a_wide_terminal_shows_columns_and_a_narrow_one_rows_with_indented_rest() -> None:
    """Numbers stand to the right of their column."""
    wide = drawn(250)
    assert wide[0].split() == ["tool", "parameters", "uses", "description"]
    assert wide[1].index(" 3  Adds") + 4 == wide[2].index("1,204  The") + 7 == wide[0].index("description")
    narrow = drawn(60)
    assert narrow[1] == "todo:add_task_with_a_long_name  (title: str)  3"
    assert narrow[2].startswith("    Adds a task")


def test_a_narrow_row_has_a_word_below_each_heading() -> None:
    """A cell without text would let the next one pass for it."""
    assert drawn(60)[-1] == "x  -  7  -"


def test_a_pipe_gets_one_line_a_row_without_padding() -> None:
    """Short cells are aligned; a long one widens its own line only; lines inside a cell are joined."""
    lines = drawn(10_000, is_terminal=False)
    assert len(lines) == 1 + len(ROWS)
    assert all(line == line.rstrip() for line in lines)
    assert max(map(len, lines[2:])) < 80
    assert "The time. In any zone." in lines[2]


def test_styles_stay_where_they_were() -> None:
    """A coloured cell is padded outside of its colour."""
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system="standard", legacy_windows=False)
    console.print(table(["a", "b"], [[Text("ok", style="green"), "x"], ["longer", "y"]]))
    assert "\x1b[32mok\x1b[0m      x" in stream.getvalue()


def test_a_text_breaks_between_words_and_keeps_a_command_whole() -> None:
    """What is to be copied stands on a line of its own, however long."""
    command = "mcpproxy server patch github headers.Authorization='Bearer ${env:TOKEN}'"
    assert wrap_text(f"It was refused, so give it another one: {command}", 40) == [
        "It was refused, so give it another one:",
        command,
    ]
    assert wrap_text("Next: mcpproxy server logs a-server-with-a-long-name", 20) == [
        "Next: mcpproxy server logs a-server-with-a-long-name"
    ]
    assert wrap_text("  indented words go on below it", 18) == ["  indented words", "  go on below it"]
    assert wrap_text("short", 40) == ["short"]
    assert wrap_text("a\nb", 40) == ["a", "b"]
