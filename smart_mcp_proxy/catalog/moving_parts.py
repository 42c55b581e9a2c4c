"""Parts of a definition that move by themselves from one start of its server to the next.

A server that is started anew, elsewhere or by another client writes the same definition with another working folder or
with the words of a set in another order. That is no change: the definition stays the one that was approved, hash and
text. No agent ever reads the text that was listed instead, so a server gains nothing by moving these parts: what it is
believed to say is what its user approved, and what it does it could do unannounced.
"""

from collections.abc import Collection, Iterable
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

from smart_mcp_proxy.catalog.hashing import canonical_json

_TEXTS: Final = frozenset({"description", "title", "default", "examples"})
"""Members that say where something is; what decides on a call (`const`, `pattern`, names) has to be equal."""
_SETS: Final = frozenset({"default", "examples", "enum", "required"})
"""Members whose order means nothing, or no more than which words come first in a default.
Source: https://json-schema.org/draft/2020-12/json-schema-validation#section-6.1.2;
https://json-schema.org/draft/2020-12/json-schema-validation#section-6.5.3"""
_LONGEST_FOLDER: Final = 4_096


def is_unchanged(approved: Any, listed: Any, folders: Collection[str]) -> bool:
    """Whether a listed definition is the approved one but for its server's folder or the order of words.

    Args:
        approved: As it was approved.
        listed: As it is listed now.
        folders: Those that the gateway gave the server at this start.
    """
    try:
        return _Comparison(folders).holds(approved, listed)
    except RecursionError:  # nested as deep as nothing that moves by itself
        return False


class _Comparison:
    """Comparison of two definitions, in which each folder has at most one former location.

    Args:
        folders: As they are now.
    """

    def __init__(self, folders: Collection[str]) -> None:
        self._folders = sorted(folders, key=len, reverse=True)  # a home is the beginning of what lies in it
        self._former: dict[str, str] = {}

    def holds(self, approved: Any, listed: Any, member: str = "") -> bool:
        """Whether two values are equal, in the member of that name."""
        if isinstance(approved, dict) and isinstance(listed, dict):
            return approved.keys() == listed.keys() and all(
                self.holds(approved[name], listed[name], name) for name in approved
            )
        if isinstance(approved, list) and isinstance(listed, list):
            if member in _SETS and _sort_canonical_json(approved) == _sort_canonical_json(listed):
                return True
            within = member if member in _TEXTS else ""
            return len(approved) == len(listed) and all(
                self.holds(before, now, within) for before, now in zip(approved, listed, strict=True)
            )
        if canonical_json(approved) == canonical_json(listed):
            return True
        if not (isinstance(approved, str) and isinstance(listed, str) and member in _TEXTS):
            return False
        return (member in _SETS and _sort_comma_list(approved) == _sort_comma_list(listed)) or self._is_moved(
            approved, listed
        )

    def _is_moved(self, approved: str, listed: str) -> bool:
        """Whether one of the folders, each time it stands in a text, is in the place of one former folder."""
        for folder in self._folders:
            parts = listed.split(folder)
            length, rest = divmod(len(approved) - sum(map(len, parts)), max(len(parts) - 1, 1))
            if len(parts) == 1 or rest or not 1 < length <= _LONGEST_FOLDER:
                continue
            former = approved[len(parts[0]) :][:length]
            is_folder = PurePosixPath(former).is_absolute() or PureWindowsPath(former).is_absolute()
            if is_folder and "\n" not in former and former.join(parts) == approved:
                return self._former.setdefault(folder, former) == former
        return False


def _sort_canonical_json(values: Iterable[Any]) -> list[bytes]:
    return sorted(map(canonical_json, values))


def _sort_comma_list(text: str) -> list[str]:
    return sorted(word.strip() for word in text.split(","))
