"""Differences between a changed definition and the approved one, by field and by word."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

from smart_mcp_proxy.policy.scanner.findings import escape_unsafe

_WORD = re.compile(r"\s+|\w+|[^\w\s]+")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
MOST_WORDS = 2_000
"""Of a field on each side; comparing takes their product, so longer ones are shown whole, one after the other."""
MOST_CHARS = 100_000
"""The same for what is not even taken apart into words, which takes 50 ms for a megabyte (measured)."""

Path = tuple[str | int, ...]


class TextRun(NamedTuple):
    """A run of text: in both definitions, only in the approved one, or only in the present one."""

    kind: Literal["same", "removed", "added"]
    text: str


class FieldChange(NamedTuple):
    """Difference in one field of a definition.

    Attributes:
        path: Where it is, for example `inputSchema.properties.note.description`.
        words: Its text as runs, control and invisible characters spelled out.
    """

    path: str
    words: tuple[TextRun, ...]


def differences(approved: Mapping[str, Any] | None, current: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """List the fields that differ between two definitions; of a new one every field.

    Definitions with another change hash have at least one.
    """
    old = {} if approved is None else dict(_leaves(approved, ()))
    new = dict(_leaves(current, ()))
    changed = (path for path in dict.fromkeys((*new, *old)) if old.get(path) != new.get(path))
    return tuple(FieldChange(_format_path(path), _diff_words(old.get(path, ""), new.get(path, ""))) for path in changed)


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield every text, number and empty object of a JSON value by its path.

    Written so that `1`, `1.0` and `"1"` differ.
    """
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*path, place))
    else:
        yield path, f'"{value}"' if isinstance(value, str) else json.dumps(value)


def _format_path(path: Path) -> str:
    text = ""
    for step in path:
        if isinstance(step, str) and _PLAIN_KEY.fullmatch(step):
            text += f".{step}"
        else:
            text += f"[{escape_unsafe(json.dumps(step, ensure_ascii=False))}]"
    return text.removeprefix(".")


def _diff_words(old: str, new: str) -> tuple[TextRun, ...]:
    if max(len(old), len(new)) > MOST_CHARS:
        return _runs(("removed", [old]), ("added", [new]))
    before, after = _WORD.findall(old), _WORD.findall(new)
    if max(len(before), len(after)) > MOST_WORDS:
        return _runs(("removed", [old]), ("added", [new]))
    runs: list[tuple[Literal["same", "removed", "added"], list[str]]] = []
    for kind, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            runs.append(("same", before[start:end]))
        else:
            runs += [("removed", before[start:end]), ("added", after[first:last])]
    return _runs(*runs)


def _runs(*runs: tuple[Literal["same", "removed", "added"], list[str]]) -> tuple[TextRun, ...]:
    return tuple(TextRun(kind, escape_unsafe("".join(words))) for kind, words in runs if any(words))
