"""Edits of TOML text, one table of a section at a time; every other byte stays.

Refused: *tomlkit* (0.15.2). What is not edited it gives back as it was, but it puts a new table between dotted keys of
its section, which then fall into the table (202 of 500 generated files), and takes out a table together with the
comment above the next one. 1 MB takes it 7.8 s of processor time, and this 0.7 s.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from smart_mcp_proxy.errors import ConfigError

_HEADER = re.compile(r"\[([^\[\]]+)\][ \t]*(?:#.*)?$")
_ANY_HEADER = re.compile(r"\[")
_KEY = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(\.|=|$)""")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
"""Not `splitlines`: texts may hold line ends that are none of TOML's."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_QUOTES = re.compile(r'"""|\'\'\'')
_ENDS = {
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    "'''": re.compile(r"(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
}
"""Rest of a long text by its quotes, its end included: up to two more quotes belong to it."""
_LINE_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*')


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return the document that `text` holds.

    Raises:
        ConfigError: It is not TOML; the message names the place and no content.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        where = found[0] if (found := re.search(r"line \d+, column \d+", str(exc))) else "its end"
        raise ConfigError(f"{source} is not TOML, at {where}.", hint="Correct it there.") from None
    except RecursionError:
        raise ConfigError(f"{source} is nested too deeply.", hint="Edit it by hand.") from None


def edit_toml(text: str, section: tuple[str, ...], entries: Mapping[str, Mapping[str, Any] | None], source: str) -> str:
    """The text with these tables of a section replaced, added, or, where they are None, taken out.

    Args:
        text: Valid TOML.
        section: Keys that lead to the section.
        entries: Tables by name.
        source: Name of the file.

    Raises:
        ConfigError: The section is written in braces, to which TOML lets nothing be added elsewhere.
    """
    for number, (_, keys, is_header) in enumerate(_statements(_LINES.findall(text)), 1):
        if keys == section and not is_header:
            name = ".".join(section)
            raise ConfigError(
                f"{source}, line {number}: '{name}' is written in braces, which cannot be edited here.",
                hint=f"Write each server under a heading [{name}.NAME] instead; empty braces can just be removed.",
            )
    for name, entry in entries.items():
        newline = "\r\n" if "\r\n" in text else "\n"
        text, at = _without(text, (*section, name))
        if entry is None:
            if (
                at is not None
                and text[:at].endswith(newline * 2)
                and (text[at:] == "" or text[at:].startswith(newline))
            ):
                text = text[: at - len(newline)] + text[at:]  # the blank line in front of it
            continue
        written = newline.join(_table((*section, name), entry))
        if at is None:
            before = text if not text or text.endswith("\n") else text + newline
            gap = newline if before.strip() and not before.endswith(newline * 2) else ""
            text = before + gap + written + newline
        else:
            text = text[:at] + written + newline + text[at:]
    return text


def _without(text: str, path: tuple[str, ...]) -> tuple[str, int | None]:
    """The text without a table, however it is written, and the place where its first heading stood."""
    kept: list[str] = []
    waiting: list[str] = []  # blank lines and comments of ours, or of what follows: the next line tells
    at: int | None = None
    is_inside = False
    for line, keys, is_header in _statements(_LINES.findall(text)):
        if keys is not None:
            is_inside = keys[: len(path)] == path
            if is_inside and is_header and at is None:
                at = len("".join(kept))
        is_remark = not line.strip() or line.lstrip().startswith("#")
        if is_inside and is_remark:
            waiting.append(line)
            continue
        if not is_inside:
            kept += [*waiting, line]
        waiting = []
    return "".join(kept + waiting), at


def _statements(lines: list[str]) -> Iterator[tuple[str, tuple[str, ...] | None, bool]]:
    """Lines with the path of the table or key that each begins, and whether it is a heading."""
    closing = ""
    depth = 0
    table: tuple[str, ...] = ()
    for line in lines:
        stripped = line.strip()
        if not closing and depth <= 0 and _ANY_HEADER.match(stripped):
            found = _HEADER.match(stripped)
            table = _path(found[1]) if found else ("",)  # an array of tables, which is none of ours
            yield line, table, True
            continue
        is_key = not closing and depth <= 0 and bool(stripped) and not stripped.startswith("#")
        yield line, (*table, *_path(stripped)) if is_key else None, False
        closing, depth = _open_at_end(line, closing, depth)


def _open_at_end(line: str, closing: str, depth: int) -> tuple[str, int]:
    """The quotes that are still open behind a line, and the number of open brackets."""
    rest = line
    while True:
        if closing:
            end = _ENDS[closing].match(rest)
            if not end:
                return closing, depth
            closing, rest = "", rest[end.end() :]
            continue
        quotes = _QUOTES.search(_LINE_STRINGS.sub(_blank_match, rest))
        before = rest[: quotes.start()] if quotes else rest
        plain = _LINE_STRINGS.sub("", before)
        depth += plain.count("[") - plain.count("]") + plain.count("{") - plain.count("}")
        if not quotes:
            return "", depth
        closing, rest = quotes[0], rest[quotes.end() :]


def _blank_match(found: re.Match[str]) -> str:
    """The match as blanks, unless it is the beginning of a text of several lines."""
    text = found[0]
    return text if text in ('""', "''") else " " * len(text)


def _path(written: str) -> tuple[str, ...]:
    """The keys that a heading holds, or that stand in front of a value."""
    keys: list[str] = []
    at = 0
    while found := _KEY.match(written, at):
        quoted, literal, bare, dot = found.groups()
        keys.append(tomllib.loads(f'x = "{quoted}"')["x"] if quoted is not None else bare or literal or "")
        at = found.end()
        if dot != ".":
            break
    return tuple(keys)


def _table(path: tuple[str, ...], entry: Mapping[str, Any]) -> list[str]:
    """Lines of a table; tables inside it follow under headings of their own."""
    lines = [f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in entry.items() if not isinstance(value, Mapping)]
    for key, value in entry.items():
        if isinstance(value, Mapping):
            lines += ["", *_table((*path, key), value)]
    return lines


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
