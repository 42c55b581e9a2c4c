"""Edits of JSON text: rewrites only what differs, keeps comments and layout."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers.jsonc import parse_jsonc

_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,\]}/]+', re.DOTALL)
_INDENT = r"(?m)^([ \t]+)\S"
_LINE_BLANKS = " \t"
_CLOSERS = {"{": "}", "[": "]"}
_DEFAULT_INDENT = "  "


class _Node(msgspec.Struct):
    """A value in the text: where it begins and ends, and what it holds."""

    start: int
    end: int = 0
    members: "list[_Member]" = msgspec.field(default_factory=list)


class _Member(msgspec.Struct):
    """A member of an object or an element of an array, and the place of the comma behind it."""

    start: int
    key: str | None
    node: _Node
    comma: int | None = None


class _Edit(NamedTuple):
    """Replaces a stretch of the text."""

    start: int
    end: int
    text: str


def rewrite(text: str, value: Any) -> str:
    """The text changed so that it holds `value`.

    What is equal in both stays as it was written, letter for letter. A member that goes takes its comma along and
    leaves the comments around it; a new one comes last, indented like its neighbours.

    Args:
        text: JSON with comments and trailing commas, as `parse_jsonc` reads it, without a byte order mark.
        value: What it is to hold.

    Raises:
        ConfigError: The text is not JSON, or nested too deeply to be edited.
    """
    old = parse_jsonc(text.encode("utf-8", "surrogatepass"), "the file")
    try:
        root, _ = _scan(text, _skip(text, 0))
        edits = _Rewriting(text).changes(root, old, value)
    except RecursionError:
        raise ConfigError("The file is nested too deeply to be edited.", hint="Edit it by hand.") from None
    return _apply_edits(text, edits)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; 1, 1.0 and true differ, key order does not."""
    return _canonical(one) == _canonical(other)


_canonical = partial(json.dumps, sort_keys=True)


def _apply_edits(text: str, edits: "Sequence[_Edit]") -> str:
    """The text with its edits; of two at the same place the first one's text comes first."""
    pieces, at = [], 0
    for edit in sorted(edits, key=attrgetter("start")):
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*pieces, text[at:]])


def _skip(text: str, at: int) -> int:
    """Behind blanks and comments."""
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _scan(text: str, at: int) -> tuple[_Node, int]:
    """The value that begins at `at`, and where it ends; the text is known to be well-formed."""
    node = _Node(at)
    closer = _CLOSERS.get(text[at])
    if closer is None:
        scalar = _SCALAR.match(text, at)
        node.end = at if scalar is None else scalar.end()
        return node, node.end
    at = _skip(text, at + 1)
    while text[at] != closer:
        if text[at] == ",":
            if node.members:
                node.members[-1].comma = at
            at = _skip(text, at + 1)
            continue
        member, at = _scan_member(text, at, has_key=closer == "}")
        node.members.append(member)
        at = _skip(text, at)
    node.end = at + 1
    return node, node.end


def _scan_member(text: str, at: int, *, has_key: bool) -> tuple[_Member, int]:
    start, key = at, None
    if has_key and (found := _STRING.match(text, at)) is not None:
        key = json.loads(found[0])
        at = _skip(text, _skip(text, found.end()) + 1)  # behind the colon
    node, at = _scan(text, at)
    return _Member(start, key, node), at


class _Rewriting:
    """Finds the edits that turn one document into another.

    Args:
        text: The document.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        indented = re.search(_INDENT, text)
        self._unit = indented[1] if indented else _DEFAULT_INDENT

    def changes(self, node: _Node, old: Any, new: Any) -> list[_Edit]:
        """Edits that turn `node`, which holds `old`, into `new`."""
        if is_same(old, new):
            return []
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            return self._object_changes(node, old, new)
        if isinstance(old, list) and isinstance(new, list) and old:
            return self._array_changes(node, old, new)
        return [_Edit(node.start, node.end, self._render_value(new, self._indent_at(node.start)))]

    def _object_changes(self, node: _Node, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[_Edit]:
        edits = []
        last = {member.key: member for member in node.members}  # of equal keys the last one counts
        for key, member in last.items():
            if key is not None and key in new:
                edits += self.changes(member.node, old[key], new[key])
        gone = [member for member in node.members if member.key not in new]
        added = [(key, value) for key, value in new.items() if key not in old]
        return edits + self._layout_changes(node, gone, added)

    def _array_changes(self, node: _Node, old: Sequence[Any], new: Sequence[Any]) -> list[_Edit]:
        """Edit an array: keep equal elements at both ends, change, remove or add those between."""
        both = min(len(old), len(new))
        head = next((place for place in range(both) if not is_same(old[place], new[place])), both)
        tail = next((back for back in range(both - head) if not is_same(old[-1 - back], new[-1 - back])), both - head)
        paired = both - tail
        edits = []
        for place in range(head, paired):
            edits += self.changes(node.members[place].node, old[place], new[place])
        if len(new) > len(old) and tail:  # in the middle: nothing of ours does it, and written anew it is right
            return [_Edit(node.start, node.end, self._render_value(new, self._indent_at(node.start)))]
        gone = node.members[paired : len(old) - tail]
        added = [(None, value) for value in new[paired : len(new) - tail]]
        return edits + self._layout_changes(node, gone, added)

    def _layout_changes(
        self, node: _Node, gone: Sequence[_Member], added: Sequence[tuple[str | None, Any]]
    ) -> list[_Edit]:
        """Takes members out and puts others behind the rest, with the commas that this needs."""
        edits = [edit for member in gone for edit in self._removal(member)]
        kept = [member for member in node.members if member not in gone]
        last = kept[-1] if kept else None
        if not added:
            is_new_last = last is not None and last is not node.members[-1]
            if is_new_last and last is not None and last.comma is not None and node.members[-1].comma is None:
                edits.append(_Edit(last.comma, last.comma + 1, ""))
            return edits
        if last is not None and last.comma is None:
            edits.append(_Edit(last.node.end, last.node.end, ","))
        has_last_comma = bool(node.members) and node.members[-1].comma is not None
        return [*edits, self._addition(node, added, "," if has_last_comma else "")]

    def _removal(self, member: _Member) -> list[_Edit]:
        """Without the line break, where nothing else stands on the member's lines."""
        start, end = member.start, member.node.end
        if member.comma is not None and not self._text[end : member.comma].strip():
            end = member.comma + 1
            separate: list[_Edit] = []
        else:
            separate = [] if member.comma is None else [_Edit(member.comma, member.comma + 1, "")]
        before, after = start, end
        while self._text[before - 1] in _LINE_BLANKS:
            before -= 1
        while self._text[after] in _LINE_BLANKS:
            after += 1
        if self._text[before - 1] == "\n" and self._text[after] in "\r\n":
            before -= 2 if self._text[before - 2] == "\r" else 1
            return [_Edit(before, end, ""), *separate]
        if self._text[after] in "}]" and self._text[before - 1] == ",":
            start = before  # the blank that parted it from the one in front
        # What is added behind the last member must not be taken along.
        return [_Edit(start, end if self._text[after] in "\r\n}]" else after, ""), *separate]

    def _addition(self, node: _Node, added: Sequence[tuple[str | None, Any]], comma: str) -> _Edit:
        """New members in front of the closing bracket, on lines of their own unless all stand on one line.

        Args:
            node: The object or array.
            added: Its new members.
            comma: Follows the last one, where the file has a comma there.
        """
        closing = node.end - 1
        inside = self._text[node.start + 1 : closing]
        behind = node.start + 1 + len(inside.rstrip())
        own = self._indent_at(node.start)
        if "\n" not in inside and node.members:
            words = (self._member(key, value, None) for key, value in added)
            return _Edit(behind, behind, " " + ", ".join(words) + comma)
        indent = self._indent_at(node.members[0].start) if "\n" in inside and node.members else own + self._unit
        lines = [self._newline + indent + self._member(key, value, indent) for key, value in added]
        ending = "" if "\n" in inside[len(inside.rstrip()) :] else self._newline + own
        return _Edit(behind, behind if ending == "" else closing, ",".join(lines) + comma + ending)

    def _indent_at(self, at: int) -> str:
        """The blanks that the line of this place begins with."""
        line = self._text[self._text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip(_LINE_BLANKS))]

    def _member(self, key: str | None, value: Any, indent: str | None) -> str:
        written = self._render_value(value, indent)
        return written if key is None else f"{_dumps(key)}: {written}"

    def _render_value(self, value: Any, indent: str | None) -> str:
        """A value as JSON, on one line where there is no indent to follow."""
        if indent is None:
            return _dumps(value)
        text = _dumps(value, self._unit)
        return text.replace("\n", self._newline + indent)


def _dumps(value: Any, indent: str | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair can only be written as an escape
        return json.dumps(value, indent=indent)
    return text
