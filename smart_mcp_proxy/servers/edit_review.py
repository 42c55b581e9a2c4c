"""What a user has to see of a server's entry before it may run."""

import re
from collections.abc import Mapping
from typing import Any

from smart_mcp_proxy.servers.edit_masks import masked
from smart_mcp_proxy.servers.entry import ADDRESS_KEYS

__all__ = ["reviewed", "warnings_about"]

_DECIDING = (*ADDRESS_KEYS, "args", "env", "cwd")
"""What runs, with what, and where data goes."""
_STEERING = re.compile(
    r"NODE_OPTIONS|NODE_PATH|LD_.*|DYLD_.*|PYTHON.*|PERL5.*|RUBY.*|JAVA_TOOL_OPTIONS|PATH|BASH_ENV|ENV"
)
"""Variables by which a trusted program is made to load or start something else."""


def reviewed(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry for its user's own eyes: what decides what a quarantined one runs is in full, all else as `masked`.

    A mask would hide from whoever approves it what somebody else has put there.
    """
    shown = masked(entry)
    if entry.get("quarantined") is True:
        shown |= {key: entry[key] for key in _DECIDING if key in entry}
    return shown


def warnings_about(entry: Mapping[str, Any]) -> list[str]:
    """What to look at twice in an entry that waits for approval, a sentence each; nothing of others."""
    env = entry.get("env")
    if entry.get("quarantined") is not True or not isinstance(env, Mapping):
        return []
    return [
        f"The variable {name} can make the program load or start something else: look at its value."
        for name in env
        if _STEERING.fullmatch(name.upper())
    ]
