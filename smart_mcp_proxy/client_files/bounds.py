"""Bounds within which the files of clients are read: they are found, not given, and may be anybody's."""

from collections.abc import Mapping
from typing import Literal

import msgspec

TextFormat = Literal["json", "toml", "yaml"]
_MIB = 1 << 20


class ReadBounds(msgspec.Struct, frozen=True):
    """Bounds of reading; what is beyond them is left out, and said.

    Attributes:
        size_bytes: Of one file, by its language. Claude Code keeps its history in JSON; what is larger is a log.
        values: Of one file: members of JSON, values of YAML, in which an alias counts as all that it stands for.
        servers: Of all files.
        time_s: After which no further file is begun.
    """

    size_bytes: Mapping[TextFormat, int] = msgspec.field(
        default_factory=lambda: {"json": 50 * _MIB, "toml": _MIB, "yaml": _MIB}
    )
    values: Mapping[TextFormat, int] = msgspec.field(default_factory=lambda: {"json": 1_000_000, "yaml": 20_000})
    servers: int = 1_000
    time_s: float = 10.0


BOUNDS = ReadBounds()
