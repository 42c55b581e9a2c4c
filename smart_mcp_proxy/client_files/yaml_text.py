"""Edits of YAML text, one entry of a section at a time; every other byte stays.

Refused: *ruamel.yaml* (0.19.1, round trip). Without any edit it changes 154 of 500 generated files, line ends not
counted: indents, places of comments, commas in braces. An entry that was added and taken out again took a comment along
in 9. An edit of 259 kB takes it 9.7 s of processor time, and this 1.8 s.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from smart_mcp_proxy.errors import ConfigError

_UNIT = "  "
_MERGE = "tag:yaml.org,2002:merge"


class _BoundedLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """A loader that ends where a document grows beyond its bound.

    Args:
        text: The document.
        source: Name of the file.
        limit: Values that it may hold.
    """

    def __init__(self, text: str, source: str, limit: int) -> None:
        super().__init__(text)
        self._source = source
        self._limit = limit
        self._count = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node; an alias counts as all that it stands for, one that stands in itself without end."""
        before, is_alias = self._count, self.check_event(yaml.AliasEvent)
        self._count += 1
        node = super().compose_node(parent, index)
        if is_alias:
            self._count = before + self._sizes.get(id(node), self._limit + 1)
        if self._count > self._limit:
            raise ConfigError(
                f"{self._source} holds more than {self._limit:,} values, or an alias that stands in itself.",
                hint="Each alias counts as all that it stands for. Shorten the file.",
            )
        self._sizes[id(node)] = self._count - before
        return node

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """The next map, whose keys are text, as those of other languages are."""
        node = super().compose_mapping_node(anchor)
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                key.tag = self.DEFAULT_SCALAR_TAG
        return node


def parse_yaml(text: str, source: str, limit: int) -> Any:
    """Return the document that `text` holds; None where there is nothing in it.

    Args:
        text: The document.
        source: Name of the file.
        limit: Values that it may hold.

    Raises:
        ConfigError: It is not YAML, says something twice or holds too much; the message names the place and no content.
    """
    try:
        loader = _BoundedLoader(text, source, limit)
        node = loader.get_single_node()
        _refuse_repeated(node, source)
        return None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = f"at line {mark.line + 1}, column {mark.column + 1}" if mark else "as a whole"
        raise ConfigError(f"{source} is not YAML that can be read, {where}.", hint="Correct it there.") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigError(f"{source} is not YAML that can be read.", hint="Edit it by hand.") from None


def edit_yaml(
    text: str, section: str, entries: Mapping[str, Mapping[str, Any] | None], *, is_list: bool = False
) -> str:
    """The text with these entries of a section replaced, added, or, where they are None, taken out.

    Args:
        text: Valid YAML of one document, a map by names.
        section: Key of the section at the top level.
        entries: Entries by name.
        is_list: The section is a list, whose entries hold their names.
    """
    for name, entry in entries.items():
        text = (_ListDocument if is_list else _Document)(text).replace_entry(section, name, entry)
    return text


def _refuse_repeated(node: yaml.Node | None, source: str) -> None:
    """Raises ConfigError where a key of the top level or of a section is repeated."""
    inner = [node] if isinstance(node, yaml.MappingNode) else []
    for mapping in inner[:1]:
        inner += [value for _, value in mapping.value if isinstance(value, yaml.MappingNode)]
    for mapping in inner:
        keys = Counter(key.value for key, _ in mapping.value if isinstance(key, yaml.ScalarNode))
        if twice := [key for key, times in keys.items() if times > 1]:
            raise ConfigError(f"{source} has the key {twice[0]!r:.60} twice.", hint="Remove one of them.")


class _Document:
    """A text and the places of what is in it.

    Args:
        text: YAML of one document.
    """

    kind: type[yaml.CollectionNode] = yaml.MappingNode
    empty = "{}"

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._root = yaml.compose(text, yaml.SafeLoader)

    def replace_entry(self, section: str, name: str, entry: Mapping[str, Any] | None) -> str:
        """The text with one entry changed."""
        found = _member(self._root, section)
        if found is None:
            if entry is None:
                return self._text
            lines = [f"{section}:", *self.format_entry(name, entry, _UNIT)]
            return self._insert_lines(len(self._text.rstrip()) if self._text.strip() else 0, lines)
        key, inner = found
        member = self.find(inner, name)
        if isinstance(inner, self.kind) and inner.value and not inner.flow_style:
            return self._block_changed(inner, member, name, entry)
        return self._flow_changed(key, inner, member, name, entry)

    def find(self, section: yaml.Node, name: str) -> tuple[yaml.Node, yaml.Node] | None:
        """The first and the last node of an entry."""
        return _member(section, name)

    def format_entry(self, name: str, entry: Mapping[str, Any], indent: str) -> list[str]:
        """Lines of an entry, in block style one level deep."""
        return [f"{indent}{_scalar(name)}:", *_pairs(entry, indent + _UNIT)]

    def format_flow(self, name: str, flow: str) -> str:
        """A new entry in braces."""
        return f"{json.dumps(name)}: {flow}"

    def _block_changed(
        self,
        inner: yaml.CollectionNode,
        member: tuple[yaml.Node, yaml.Node] | None,
        name: str,
        entry: Mapping[str, Any] | None,
    ) -> str:
        indent = " " * inner.start_mark.column
        lines = [] if entry is None else self.format_entry(name, entry, indent)
        if member is None:
            return self._insert_lines(_end(inner), lines) if lines else self._text
        start = self._text.rfind("\n", 0, member[0].start_mark.index) + 1
        end = self._line_end(_end(member[1], member[0]))
        if not lines and len(inner.value) == 1:
            lines = [f"{indent}{self.empty}"]
        written = "".join(line + self._newline for line in lines)
        return self._text[:start] + written + self._text[end:]

    def _flow_changed(
        self,
        key: yaml.Node,
        inner: yaml.Node,
        member: tuple[yaml.Node, yaml.Node] | None,
        name: str,
        entry: Mapping[str, Any] | None,
    ) -> str:
        """A section in braces, an empty one, or none; what else stands in braces stays as it is written."""
        if entry is None and member is None:
            return self._text
        pairs = inner.value if isinstance(inner, self.kind) else []
        if entry is None and member is not None:
            return self._cut(member[0].start_mark.index, member[1].end_mark.index)
        flow = json.dumps(entry, ensure_ascii=False)
        if member is not None:
            return self._text[: member[1].start_mark.index] + flow + self._text[member[1].end_mark.index :]
        if pairs or _is_flow(self._root):
            closing = inner.end_mark.index - 1
            before = self._text[:closing].rstrip()
            comma = "" if before.endswith(("{", "[", ",")) else ","
            gap = self._text[len(before) : closing]
            return f"{before}{comma} {self.format_flow(name, flow)}{gap}{self._text[closing:]}"
        between = self._text[key.end_mark.index : inner.start_mark.index].rstrip()
        remark, _, rest = self._text[inner.end_mark.index :].partition("\n")
        lines = [
            f"{self._text[: key.end_mark.index]}{between}{remark.rstrip()}",
            *self.format_entry(name, entry or {}, _UNIT),
        ]
        return "".join(line + self._newline for line in lines) + rest

    def _cut(self, start: int, end: int) -> str:
        """The text without a member of braces, and without one of the commas beside it."""
        before, after = self._text[:start], self._text[end:]
        if after.lstrip().startswith(","):
            return before + after.lstrip()[1:].lstrip()
        return (before.rstrip().removesuffix(",") if before.rstrip().endswith(",") else before) + after

    def _insert_lines(self, at: int, lines: list[str]) -> str:
        """The text with lines behind the one that holds `at`."""
        end = self._line_end(at)
        before = self._text[:end]
        if before and not before.endswith("\n"):
            before += self._newline
        return before + "".join(line + self._newline for line in lines) + self._text[end:]

    def _line_end(self, at: int) -> int:
        """The place behind the line that holds what ends at `at`."""
        if at and self._text[at - 1] == "\n":
            return at
        found = self._text.find("\n", at)
        return len(self._text) if found < 0 else found + 1


class _ListDocument(_Document):
    """A text whose section is a list, whose entries hold their names."""

    kind = yaml.SequenceNode
    empty = "[]"

    def find(self, section: yaml.Node, name: str) -> tuple[yaml.Node, yaml.Node] | None:
        items = section.value if isinstance(section, self.kind) else []
        named = ((item, _member(item, "name")) for item in items)
        return next(((item, item) for item, found in named if found and found[1].value == name), None)

    def format_entry(self, name: str, entry: Mapping[str, Any], indent: str) -> list[str]:
        first, *more = _pairs({"name": name, **entry}, indent + _UNIT)
        return [f"{indent}- {first.lstrip()}", *more]

    def format_flow(self, name: str, flow: str) -> str:
        return flow


def _member(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((pair for pair in pairs if isinstance(pair[0], yaml.ScalarNode) and pair[0].value == name), None)


def _is_flow(node: yaml.Node | None) -> bool:
    return isinstance(node, yaml.MappingNode) and bool(node.flow_style)


def _end(node: yaml.Node, key: yaml.Node | None = None) -> int:
    """The place behind a value's last letter: a block's own end lies behind the comments that follow it."""
    is_block = isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style
    if not is_block:
        ended = int(node.end_mark.index)
        return max(ended, int(key.end_mark.index)) if key is not None else ended
    last = node.value[-1]
    return _end(last[1], last[0]) if isinstance(last, tuple) else _end(last)


def _pairs(entry: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in entry.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{_scalar(key)}:"
            yield from _pairs(value, indent + _UNIT)
        else:
            yield f"{indent}{_scalar(key)}: {json.dumps(value, ensure_ascii=False)}"


def _scalar(text: str) -> str:
    is_plain = text.replace("_", "a").replace("-", "a").isalnum() and text.isascii() and text[0].isalpha()
    is_text = is_plain and isinstance(yaml.safe_load(text), str)
    return text if is_text else json.dumps(text, ensure_ascii=False)
