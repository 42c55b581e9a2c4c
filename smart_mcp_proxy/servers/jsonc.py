"""JSON with comments, trailing commas and a byte order mark; errors name the place."""

import codecs
import json
import re
from collections import Counter
from typing import Any, Final, NoReturn

from smart_mcp_proxy.errors import ConfigError

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"?'
"""String; without an end it reaches to the end: looked for at each of its quotes it would take time by the square."""
_COMMENTS = rf"(?s){_STRING}|//[^\n]*|/\*.*?\*/"
_TRAILING_COMMAS = rf"(?s){_STRING}|,(?=\s*[}}\]])"
_NOT_NEWLINE = r"[^\n]"

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


MAX_MEMBERS: Final = 1_000_000
"""Objects and members of a file; a hundred thousand take a tenth of a second."""


class JsonObject(dict[str, Any]):
    """An object of the file; the last of equal keys counts, and `duplicates` names them."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.duplicates: tuple[str, ...] = ()
        if len(self) < len(pairs):
            self.duplicates = tuple(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)


def parse_jsonc(data: bytes, source: str, limit: int = MAX_MEMBERS) -> Any:
    """The value that `data` holds; objects are `JsonObject`s.

    Args:
        data: UTF-8 text, with or without a byte order mark.
        source: Name of the file, for messages.
        limit: Members that its objects may have.

    Raises:
        ConfigError: It is empty, not UTF-8, not JSON or too much; the message names file,
            line and column, never its content.
    """
    text = _decode(data, source)
    try:
        return _loads(text, source, limit)
    except ValueError:  # not plain JSON: read it again without what only people write
        # Blanks instead of what is removed: every position in a message stays true.
        text = re.sub(_TRAILING_COMMAS, _blank, re.sub(_COMMENTS, _blank, text))
    if not text.strip():
        raise ConfigError(f"{source} is empty.", hint='Write at least: {"mcpServers": {}}')
    try:
        return _loads(text, source, limit)
    except json.JSONDecodeError as exc:
        where = f"line {exc.lineno}, column {exc.colno}"
        raise ConfigError(f"{source}, {where}: {exc.msg}.", hint="Correct the JSON there.") from None
    except ValueError as exc:  # NaN and Infinity, too deep, or an integer of thousands of digits
        raise ConfigError(f"{source} is not valid JSON: {exc}.", hint="Correct the JSON.") from None


def _loads(text: str, source: str, limit: int) -> Any:
    count = 0

    def build(pairs: list[tuple[str, Any]]) -> JsonObject:
        nonlocal count
        count += 1 + len(pairs)
        if count > limit:
            raise ConfigError(f"{source} holds more than {limit:,} objects and members.", hint="Shorten the file.")
        return JsonObject(pairs)

    try:
        return json.loads(text, object_pairs_hook=build, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _decode(data: bytes, source: str) -> str:
    if data.startswith(_UTF16_MARKS) or b"\0" in data[:4]:
        raise ConfigError(f"{source} is UTF-16 text, line 1, column 1.", hint="Save it as UTF-8.")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        before = data[: exc.start].decode("utf-8")
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        raise ConfigError(
            f"{source}, line {line}, column {column}: the text is not UTF-8.", hint="Save it as UTF-8."
        ) from None


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found.startswith('"') else re.sub(_NOT_NEWLINE, " ", found)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
