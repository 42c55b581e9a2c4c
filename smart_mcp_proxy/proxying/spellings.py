"""Agents' spellings of our tools' parameters: for absent values, objects and lists.

Agent frameworks fill in every optional parameter with null or an empty text, and models send an object as JSON text.
Only parameters of our own are read so; what is passed on to a server stays as it was sent.

Source: docs/design/protocol-surface.md#spellings
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

Kind = Literal["value", "object", "texts", "objects"]
"""Kind of a parameter: a single value, an object, a list of texts, a list of objects."""

SHOWN_CHARS: Final = 80
"""Characters shown of a value that does not fit."""
_ABSENT: Final = object()


class Spellings:
    """The parameters of one tool, or the members of an object that is one of them.

    Args:
        kinds: Kind of each parameter, by name.
        within: Members of those parameters that are objects with known members, by name.
    """

    def __init__(self, kinds: Mapping[str, Kind], within: Mapping[str, "Spellings"] = MappingProxyType({})) -> None:
        self._kinds = kinds
        self._within = within

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters without absent ones, with objects and lists in place of texts that spell them.

        Names that are no parameters and values that fit no spelling stay: to refuse them is the tool's own business.
        """
        meant = {name: self._normalize_value(name, value) for name, value in given.items()}
        return {name: value for name, value in meant.items() if value is not _ABSENT}

    def _normalize_value(self, name: str, value: Any) -> Any:
        if value is None:
            return _ABSENT
        kind = self._kinds.get(name)
        if kind is not None and isinstance(value, str):
            value = _read_text(kind, value)
        if name in self._within and isinstance(value, Mapping):
            value = self._within[name].read(value)
        return value


def _read_text(kind: Kind, text: str) -> Any:
    if not text:
        return _ABSENT
    if kind == "object":
        value = decode_json_text(text)
        return _ABSENT if value is None else value if isinstance(value, dict) else text
    if kind == "value":
        return text
    value = decode_json_text(text) if text.lstrip().startswith("[") else text
    if isinstance(value, list):
        return value
    return [text] if kind == "texts" else text


def decode_json_text(text: str) -> Any:
    """The JSON value that a text holds; the text itself where it holds none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text


def abbreviate_value(value: Any) -> str:
    """A value for an error message: as JSON unless text, and its beginning only."""
    if isinstance(value, str):
        return repr(_cut(value))
    try:
        return _cut(msgspec.json.encode(value).decode())
    except (msgspec.MsgspecError, TypeError, UnicodeError, RecursionError):
        return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."
