"""The gateway as the tests of coding agents see it."""

from pathlib import Path
from typing import NamedTuple

from programs import Target


class Front(NamedTuple):
    """The gateway for an agent, the file in which the server behind it notes what it was sent, and its variables."""

    target: Target
    notes: Path
    env: dict[str, str]
