"""Output: results to stdout, everything for people to stderr; honours NO_COLOR and pipes.

Servers and agents choose many of these words, so every way out of here takes away what commands a terminal.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from smart_mcp_proxy.cli.support.tables import Table, wrap_text
from smart_mcp_proxy.errors import ProxyError

_PIPE_WIDTH = 10_000
"""Off a terminal nothing is wrapped or cut: the reader is a program or a file."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Terminal commands, and marks that reverse the direction of text."""


class OutputError(ProxyError):
    """A command's result cannot be written to its destination."""

    code = "output_failed"


@contextmanager
def translate_write_errors(place: str) -> Iterator[None]:
    """Raises `OutputError` if what is written inside does not get there; a reader that left is none.

    Args:
        place: Where it goes, for the message.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as exc:
        hint = "Look whether the disk is full and who may write there, or send it elsewhere."
        raise OutputError(f"{place} cannot be written: {exc.strerror or exc}.", hint=hint) from exc


def clean(text: str) -> str:
    """`text` from elsewhere without anything that could take control of a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def indent_lines(text: str) -> str:
    """`text` from elsewhere whose further lines cannot pass for lines of ours."""
    return text.replace("\n", "\n    ")


def console(stream: TextIO) -> Console:
    """A writer for one of the standard streams as it is now."""
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def show(renderable: str | Text | Table) -> None:
    """Writes a result to stdout."""
    is_text = isinstance(renderable, str)
    with translate_write_errors("stdout"):
        console(sys.stdout).print(
            renderable if isinstance(renderable, Table) else _clean(renderable), soft_wrap=is_text
        )


def json_line(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON that a terminal can show: what would command it is written as `\\u` and four digits."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False, indent=indent))


def show_json(value: Any) -> None:
    """Writes one JSON value to stdout, indented on a terminal."""
    with translate_write_errors("stdout"):
        sys.stdout.write(json_line(value, indent=2 if sys.stdout.isatty() else None) + "\n")
        sys.stdout.flush()


def say(text: str = "", *, style: str = "") -> None:
    """Tells people something, on stderr. Where nobody can be told the command goes on."""
    with suppress(OSError):
        to_people = console(sys.stderr)
        cleaned = clean(text)
        lines = wrap_text(cleaned, to_people.width) if to_people.is_terminal else [cleaned]
        to_people.print(Text("\n".join(lines), style=style), soft_wrap=True)


def warn(text: str) -> None:
    """Tells people about something that is wrong but does not stop the command."""
    say(f"warning: {text}", style="yellow")


def plural(count: int, noun: str) -> str:
    """`1 tool`, `1,234 tools`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_waiting_count(count: int, noun: str = "tool") -> str:
    """`1 tool waits for you`, `2 tools wait for you`: for their approval."""
    return f"{plural(count, noun)} {'waits' if count == 1 else 'wait'} for you"


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Rows under plain headings; a column whose heading ends with `#` is aligned to the right."""
    return Table(columns, [[_clean(cell) for cell in row] for row in rows])


def _clean(text: str | Text) -> Text:
    """The same, a style where it was: each character that is taken away leaves another in its place."""
    if isinstance(text, str):
        return Text(clean(text))
    cleaned = text.copy()
    cleaned.plain = clean(cleaned.plain)
    return cleaned
