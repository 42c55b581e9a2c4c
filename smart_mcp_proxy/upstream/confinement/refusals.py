"""Refusals of a sandbox, as programs word them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple

_REFUSED: Final = re.compile(
    r"EACCES|EPERM|EROFS|permission denied|operation not permitted|read-only file system|access denied", re.IGNORECASE
)
_PLACE: Final = re.compile(r"""["'`](/[^"'`]+)["'`]|(?<![\w/.:~-])(/[^\s"'`:,;()]+)""")
_CHANGES: Final = re.compile(
    r"EROFS|read-only|mkdir|rmdir|unlink|rename|creat|writ|truncate|link|chmod|copyfile|touch|lock", re.IGNORECASE
)
"""In a line about something that was to be changed."""


class SandboxRefusal(NamedTuple):
    """Something that a program says it was refused.

    Attributes:
        line: As it was written.
        path: Empty where the line names none.
        access: The access that it lacks, as far as the line tells.
    """

    line: str
    path: str
    access: Literal["read", "write"]


def find_refusals(lines: Iterable[str]) -> list[SandboxRefusal]:
    """Find lines that speak of a refusal, of several about one path the first."""
    found: dict[str, SandboxRefusal] = {}
    for line in filter(_REFUSED.search, lines):
        place = _PLACE.search(line)
        path = (place[1] or place[2]) if place else ""
        changes = _CHANGES.search(line) or (path and not Path(path).exists())
        found.setdefault(path or line, SandboxRefusal(line, path, "write" if changes else "read"))
    return [*found.values()]
