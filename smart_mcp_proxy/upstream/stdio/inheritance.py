"""The variables that a server's process gets from ours: harmless ones, and what package runners need."""

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from smart_mcp_proxy.desktop.alone import STARTED_BY
from smart_mcp_proxy.desktop.variables import ADDRESSES, PLAIN
from smart_mcp_proxy.servers import ServerConfig

_PLAIN: Final = PLAIN | {STARTED_BY}
_SET: Final[Mapping[str, str]] = {"PYTHONHASHSEED": "0"}
"""Set unless the entry says otherwise. Python orders sets by a seed that it draws at each start: a default joined from
one would be another text each time, and wait for approval each time (mcp-atlassian 0.23.1). For every server, because
whether Python runs in the end (npx, uvx, docker, a script) cannot be told from a command; nothing else reads it.
Source: https://docs.python.org/3/using/cmdline.html#envvar-PYTHONHASHSEED"""
_NPM: Final = "npm_config_"
"""npm reads its settings from variables with this beginning, in either case."""
_NPM_PLAIN: Final = frozenset({
    "cache", "cafile", "ca", "noproxy", "offline", "prefer_offline", "prefer_online", "strict_ssl",
})  # fmt: skip
_NPM_ADDRESSES: Final = frozenset({"https_proxy", "proxy", "registry"})
_ABOUT_THE_NETWORK: Final = (
    r"(?i)(?:UV|PIP|NPM_CONFIG|NODE|GIT|COREPACK)_.*|.*(?:PROXY|CERT|CA_BUNDLE|INDEX_URL|REGISTRY).*|NETRC|.*_NETRC"
)
"""Variables that may be why a program has no way to the network without them."""
_NETWORK_WORDS: Final = (
    r"(?i)certificate|\bcerts?\b|\bssl\b|\btls\b|\bproxy\b|\bdns\b|self.signed|name resolution|resolve host|"
    r"\bENOTFOUND|\bECONN|\bETIMEDOUT|\bEAI_AGAIN|\bEHOSTUNREACH|unreachable|\bnetwork\b|"
    r"connect(?:ion)? (?:error|refused|timed out)|error sending request|failed to (?:fetch|download)|\b40[137]\b|"
    r"unauthorized|package (?:index|registry)"
)
_PROGRAM_WORDS: Final = (
    r"(?i)\b(?:ModuleNotFound|Import|Syntax|Name|Attribute|Type|FileNotFound|Key)Error\b|Cannot find (?:module|"
    r"package)|\bENOENT\b|validation errors? for|\busage:|\(allow\.network\)|is to run in a (?:sandbox|container),"
)
"""Ends that a way to the network would not have spared the program, or refusals to start it, whatever they name."""
_NAMES_SHOWN: Final = 5
_SCHEME: Final = "://"
_PLACE_END: Final = r"[/?#]"
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?"
_DOUBTFUL: Final = r"@|\?|://"
"""Signs that a password holds what ends an address's host, or that there is a token in a query."""


class Inherited(NamedTuple):
    """The variables that a process starts with, and what was kept from it.

    Attributes:
        variables: By name.
        cut: Names of those that lost a user and password, or were left out because these could not be cut out for sure.
    """

    variables: dict[str, str]
    cut: tuple[str, ...]


def select_inherited(environ: Mapping[str, str]) -> Inherited:
    """Select the variables of the gateway's environment that every server gets."""
    variables: dict[str, str] = {}
    cut = []
    for name, value in environ.items():
        setting = _npm_setting(name)
        if name in _PLAIN or name.startswith(("LC_", "XDG_")) or setting in _NPM_PLAIN:
            variables[name] = value
        elif name in ADDRESSES or setting in _NPM_ADDRESSES:
            kept = _without_credentials(value)
            if kept is not None:
                variables[name] = kept
            if kept != value:
                cut.append(name)
    return Inherited(variables, tuple(cut))


def child_environment(environ: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """The environment that a server starts with: inherited, set for every server, and configured for it."""
    return select_inherited(environ).variables | {**_SET, **configured}


def network_hint(environ: Mapping[str, str], config: ServerConfig, said: str) -> str:
    """Hint on variables that an ended process lacked to reach the network.

    Args:
        environ: The gateway's environment.
        config: The server.
        said: What is known of its end; where that is not about the network there is nothing to add.
    """
    if config.transport != "stdio" or not re.search(_NETWORK_WORDS, said) or re.search(_PROGRAM_WORDS, said):
        return ""
    if config.isolation.mode != "none" and config.isolation.allow and not config.isolation.allow.network:
        return ""
    configured = (*config.inherit, *config.env)
    passed = select_inherited(environ)
    cut = [name for name in passed.cut if name in passed.variables and name not in configured]
    withheld = [
        name
        for name in environ
        if name not in passed.variables
        and name not in (*cut, *configured)
        and re.fullmatch(_ABOUT_THE_NETWORK, name)
        and not name.startswith("MCPPROXY_")
    ]
    if not cut and not withheld:
        return ""
    parts = []
    if cut:
        parts.append(f"with {_join_names(cut)} without user and password")
    if withheld:
        parts.append(f"without {_join_names(withheld)}")
    names = ", ".join(f'"{name}"' for name in (*cut, *withheld)[:_NAMES_SHOWN])
    return f' It was started {" and ".join(parts)}; its user can pass them on: "inherit": [{names}] in its entry.'


def _join_names(names: Collection[str]) -> str:
    shown = list(names)[:_NAMES_SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _npm_setting(name: str) -> str:
    """The npm setting that a variable sets, empty for any other variable."""
    lower = name.lower()
    return lower.removeprefix(_NPM).replace("-", "_") if lower.startswith(_NPM) else ""


def _without_credentials(value: str) -> str | None:
    """A list of addresses without users and passwords; None where what is left could still hold one."""
    addresses = value.split()
    if len(addresses) > 1 and not all(_SCHEME in address for address in addresses):
        return None
    kept = [bare for bare in map(_bare, addresses) if bare is not None]
    if kept == addresses:
        return value
    return " ".join(kept) if len(kept) == len(addresses) else None


def _bare(address: str) -> str | None:
    """Strip user and password from an address, `name=address`, host and port, or path.

    None where what is left could still hold one.
    """
    if address.startswith(("/", "./", "~/", "file:///")):
        return None if "@" in address else address
    before, mark, rest = address.rpartition(_SCHEME)
    place = re.split(_PLACE_END, rest, maxsplit=1)[0]
    host, after = place.rpartition("@")[2], rest[len(place) :]
    is_sure = re.fullmatch(_HOST, host) and not re.search(_DOUBTFUL, before + after)
    return before + mark + host + after if is_sure else None
