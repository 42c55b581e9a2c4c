"""Quotas as they are written: numbers of calls, each in a time."""

import re
from typing import Any, Final, NamedTuple

UNITS_S: Final = {"m": 60, "h": 3_600, "d": 86_400}
"""A minute, an hour, a day."""
_PART: Final = re.compile(r"([1-9][0-9]{0,8})/([mhd])")


class Quota(NamedTuple):
    """A number of calls within a period."""

    calls: int
    period_s: int

    def __str__(self) -> str:
        return f"{self.calls}/{next(unit for unit, period_s in UNITS_S.items() if period_s == self.period_s)}"


def parse_quota(text: Any) -> tuple[Quota, ...]:
    """Read quotas such as `60/m,1000/d`; of each time one. An empty text has none.

    Raises:
        ValueError: It says something else.
    """
    if not isinstance(text, str):
        raise ValueError("it is not a text such as '60/m,1000/d'")
    found: dict[str, Quota] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None or match[2] in found:
            raise ValueError(f"{part[:40]!r} is not a number of calls in a minute, hour or day, such as 60/m or 1000/d")
        found[match[2]] = Quota(int(match[1]), UNITS_S[match[2]])
    return tuple(found.values())


def check_quota(text: str) -> str:
    """Refuse what is no quota."""
    parse_quota(text)
    return text
