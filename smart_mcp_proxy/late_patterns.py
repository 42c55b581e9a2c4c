"""Regular expressions that are compiled when they are first used.

To compile all of them takes a tenth of a start, most of it for what few starts need.
"""

import re
from typing import Any, cast

__all__ = ["compile_late"]

_METHODS = ("search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")


class _LatePattern:
    """Stand-in for a pattern, which has the pattern's methods from the first use on."""

    def __init__(self, text: str, flags: int) -> None:
        self._given = (text, flags)

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._given)
        self.__dict__.update((each, getattr(compiled, each)) for each in _METHODS)
        return getattr(compiled, name)


def compile_late(text: str, flags: int = 0) -> re.Pattern[str]:
    """The pattern that `re.compile` makes, made when one of its methods is first called."""
    return cast("re.Pattern[str]", _LatePattern(text, flags))
