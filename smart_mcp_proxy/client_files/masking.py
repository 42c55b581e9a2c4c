"""Diffs of files that hold secrets: only known words are shown, in any language."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_CONTEXT = 3
_MASK = "***"
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|[^\s{}\[\]()<>,:;="\'#]+')
_MASKS = re.compile(r"\*\*\*(?:[ \t,:;=()<>]*\*\*\*)+")
_CONSTANTS = frozenset({"true", "false", "null"})
_HUNK = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def build_masked_diff(before: str, after: str, documents: Iterable[Mapping[str, Any]], shown: Any, path: str) -> str:
    """A unified diff that shows keys and our own entry, and hides every other word.

    Args:
        before: The text as it is.
        after: As it is to be.
        documents: Both, parsed: their keys are shown.
        shown: Value whose texts are shown, our own entry.
        path: Name of the file.

    Returns:
        The diff; empty where the texts are equal.
    """
    if before == after:
        return ""
    words = {*_CONSTANTS, *_iterate_words(shown, has_values=True)}
    for document in documents:
        words.update(_iterate_words(document, has_values=False))
    old, new = before.splitlines(), after.splitlines()
    both = min(len(old), len(new))
    head = next((at for at in range(both) if old[at] != new[at]), both)
    tail = next((at for at in range(both - head) if old[-1 - at] != new[-1 - at]), both - head)
    first = max(0, head - _CONTEXT)
    kept = max(0, tail - _CONTEXT)
    # Of a file of megabytes only these lines are looked at.
    one = [_mask_line(line, words) for line in old[first : len(old) - kept]]
    other = [_mask_line(line, words) for line in new[first : len(new) - kept]]
    lines = difflib.unified_diff(one, other, path, path, n=_CONTEXT, lineterm="")
    return "\n".join(_shift_hunk(line, first) for line in lines)


def _shift_hunk(line: str, by: int) -> str:
    """The line, and if it heads a hunk with the numbers that its lines have in the whole file."""
    found = _HUNK.fullmatch(line)
    if not found:
        return line
    old, old_count, new, new_count = found.groups()
    return f"@@ -{int(old) + by}{old_count or ''} +{int(new) + by}{new_count or ''} @@"


def _mask_line(line: str, words: set[str]) -> str:
    return _MASKS.sub(_MASK, _TOKEN.sub(lambda found: _word(found[0], words), line))


def _word(token: str, words: set[str]) -> str:
    """The token if it may be shown."""
    if token[0] not in "\"'":
        is_shown = token in words or words.issuperset(token.split("."))  # a heading of TOML
        return token if is_shown else _MASK
    try:
        text = json.loads(token) if token[0] == '"' else token[1:-1]
    except ValueError:
        return f'"{_MASK}"'
    return token if text in words else f"{token[0]}{_MASK}{token[0]}"


def _iterate_words(value: Any, *, has_values: bool) -> Iterator[str]:
    """Every key of a value, and every text and number where these are wanted."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _iterate_words(inner, has_values=has_values)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _iterate_words(inner, has_values=has_values)
    elif has_values and isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)
