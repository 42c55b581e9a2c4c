"""The gateway as a client starts it."""

import sys
from dataclasses import dataclass, field

GATEWAY = (sys.executable, "-m", "smart_mcp_proxy", "serve")


@dataclass(frozen=True)
class Installation:
    """What a user has set up: the command that a client starts, and its variables."""

    command: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
