"""Refusals of the sandbox, found in what a server wrote as it ended."""

import re
from collections.abc import Sequence
from typing import Final

from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig

_REFUSED: Final = re.compile(
    r"\bEACCES\b|\bEPERM\b|permission denied|operation not permitted|\[Errno 1\]|\[Errno 13\]|os error 13\b",
    re.IGNORECASE,
)
_PATH: Final = re.compile(r"""(?<![\w.:/])(/[^\s'"`:;,()\[\]]+)""")
_WRITING: Final = re.compile(r"\b(?:mkdir|creat|writ|unlink|rename|rmdir|temp|lock|append|save)", re.IGNORECASE)
_NETWORK: Final = re.compile(
    r"\bEAI_AGAIN\b|\bENOTFOUND\b|name resolution|dns error|socket|connect\b|network", re.IGNORECASE
)


def hint_refusal(config: ServerConfig, lines: Sequence[str]) -> str:
    """Hint on what a confined server was refused; empty where nothing it wrote tells.

    Args:
        config: The server.
        lines: The last ones that it wrote.
    """
    if config.isolation.mode != "sandbox":
        return ""
    command = f"mcpproxy server allow {shell_word(config.name)}"
    for line in reversed(lines):
        if _REFUSED.search(line) and (path := _PATH.search(line)):
            option = "--write" if _WRITING.search(line) else "--read"
            return f" It runs in a sandbox that keeps it from {path[1]}: {command} {option} {shell_word(path[1])}"
    allow = config.isolation.allow
    if allow is not None and not allow.network and any(_NETWORK.search(line) for line in lines):
        return f" It runs in a sandbox without a network: {command} --network on"
    if any(_REFUSED.search(line) for line in lines):
        return f" It runs in a sandbox, which may be why: {command} --help"
    return ""
