"""Files by which a user's service manager runs the gateway: a systemd unit, a launchd property list."""

import plistlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from smart_mcp_proxy.errors import ConfigError

UNIT_NAME = "mcpproxy.service"
LABEL = "dev.smartmcpproxy.gateway"
MARK = "Written by: mcpproxy service install"
"""Stands in every file of ours; one without it is somebody else's and is left alone."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_STOP_S = 30
"""Longer than a gateway takes to end its servers."""


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """The gateway as a service manager is to run it.

    Attributes:
        command: Program and arguments.
        variables: Environment; no secrets.
        data_dir: Where its log and a file with further variables lie.
    """

    command: Sequence[str]
    variables: Mapping[str, str]
    data_dir: Path


def systemd_unit(plan: ServicePlan) -> str:
    """The unit of systemd's user manager.

    Raises:
        ConfigError: A value holds a line break or another control character.

    Source: https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html;
    https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html;
    https://www.freedesktop.org/software/systemd/man/latest/systemd.syntax.html
    """
    variables = [f"Environment={_quote_word(f'{name}={value}')}" for name, value in plan.variables.items()]
    return "\n".join(
        [
            f"# {MARK}",
            "[Unit]",
            "Description=smart-mcp-proxy, one endpoint for all MCP servers",
            "",
            "[Service]",
            "ExecStart=" + " ".join(_quote_word(word).replace("$", "$$") for word in plan.command),
            *variables,
            "# Further variables, secrets of servers say: NAME=VALUE, a line each.",
            f"EnvironmentFile=-{_escape_word(str(plan.data_dir / 'service.env'))}",
            "Restart=on-failure",
            "RestartSec=5",
            # 2: settings or files are at fault, which a restart does not mend.
            "RestartPreventExitStatus=2",
            f"TimeoutStopSec={_STOP_S}",
            "NoNewPrivileges=yes",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def launchd_list(plan: ServicePlan) -> str:
    """The property list of a launchd agent, with the keys that launchd.plist(5) describes."""
    for word in (*plan.command, *plan.variables.values()):
        _refuse_control_chars(word)
    log = str(plan.data_dir / "service.log")
    content = {
        "Label": LABEL,
        "ProgramArguments": list(plan.command),
        "EnvironmentVariables": dict(plan.variables),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": _STOP_S,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    head, newline, rest = plistlib.dumps(content, sort_keys=False).decode().partition("\n")
    return f"{head}{newline}<!-- {MARK} -->\n{rest}"


def is_our_file(text: str) -> bool:
    """Whether a service file was written by us."""
    return MARK in text


def _quote_word(word: str) -> str:
    return f'"{_escape_word(word)}"'


def _escape_word(word: str) -> str:
    return _refuse_control_chars(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _refuse_control_chars(word: str) -> str:
    if _CONTROL.search(word):
        raise ConfigError("A setting holds a line break, which a service file cannot.", hint="Unset it, or use a file.")
    return word
