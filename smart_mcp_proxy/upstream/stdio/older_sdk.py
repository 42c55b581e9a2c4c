"""Hint for servers that were written for version 1 of the MCP SDK for Python and got version 2."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import redact

_REQUIREMENT: Final = "mcp<2"
_LEFT_OUT: Final = re.compile(
    r"No module named '?mcp\.|cannot import name '\w+' from '?mcp[.' ]|module 'mcp(?:\.[\w.]+)?' has no attribute|"
    r"'(?:Server|FastMCP|RequestContext|ServerSession)' object has no attribute|"
    r"\b(?:Server|FastMCP)\.\w+\(\) got an unexpected"
)
"""What Python says where something of version 1 is not there any more.

Source: https://py.sdk.modelcontextprotocol.io/v2/migration/
"""
_BROUGHT_ALONG: Final = re.compile(r"No module named '(?:httpx|httpx_sse)'")
"""The same of packages that came with version 1 and were never asked for."""
_WITH: Final = ("--with", _REQUIREMENT)


def older_sdk_hint(config: ServerConfig, said: str) -> str:
    """The command that has a server started with version 1; empty where its end has another cause.

    Args:
        config: The server, not expanded.
        said: What is known of its end.
    """
    if config.transport != "stdio" or any(_REQUIREMENT in arg for arg in config.args):
        return ""
    args = _with_older(Path(config.command or "").name, config.args)
    if not _LEFT_OUT.search(said) and not (args and _BROUGHT_ALONG.search(said)):
        return ""
    why = "It was written for version 1 of the MCP SDK for Python and got version 2."
    if not args:
        return f"{why} Install version 1 where it runs: pip install {shell_word(_REQUIREMENT)}"
    change = f"args={json.dumps(args, ensure_ascii=False)}"
    if redact(change) != change:  # a command that writes "[hidden]" into the entry is worse than none
        return f'{why} Put "--with", "{_REQUIREMENT}" in front of the package in its args.'
    return f"{why} Start it with version 1: mcpproxy server patch {shell_word(config.name)} {shell_word(change)}"


def _with_older(program: str, args: Sequence[str]) -> list[str]:
    """Arguments with which uv installs version 1; empty for another program."""
    program = program.removesuffix(".exe")
    if program == "uvx":
        return [*_WITH, *args]
    if program == "uv" and "run" in args:
        at = args.index("run") + 1
        return [*args[:at], *_WITH, *args[at:]]
    return []
