"""Finding of `mcpproxy doctor`."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Outcome of one check of `mcpproxy doctor`.

    Attributes:
        subject: What: config, a server's name, ...
        outcome: Whether it is as it should be; a warning does not make the check fail.
        message: What was found.
        hint: What to do about it.
        command: The command that helps if it fails.
    """

    subject: str
    outcome: Literal["ok", "warning", "fail"]
    message: str
    hint: str = ""
    command: str = "mcpproxy config show --origin"
