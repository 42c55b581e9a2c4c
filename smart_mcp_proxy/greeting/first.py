"""Answers of the first start ever, where program, settings and server file are plain."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from smart_mcp_proxy.desktop.places import PREFIX, data_directory, read_option, server_source
from smart_mcp_proxy.greeting.eras import StdioEras, stdio_eras
from smart_mcp_proxy.greeting.record import SAYS_NOTHING, Known, default_answers

_PLAIN: Final = {"command", "args", "env", "url", "headers", "type"}
"""Members of a server's entry on which no answer depends."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")


def first_answers(words: Sequence[str], environ: Mapping[str, str]) -> tuple[Known, str, StdioEras] | None:
    """The answers, the gateway's name and the eras; None where they may depend on what is stored or set.

    Args:
        words: The command line.
        environ: The environment.
    """
    settings = {name for name, text in environ.items() if name.startswith(PREFIX) and text}
    is_known = os.path.lexists(os.path.join(data_directory(environ), "proxy.db"))
    if is_known or settings - SAYS_NOTHING or read_option("--profile", words) is not None:
        return None
    servers = _read_names(server_source(words, environ))
    return None if servers is None else (*default_answers(servers), stdio_eras("auto", "CALL_TOOL"))


def _read_names(path: str) -> list[str] | None:
    """The names of the servers in this file; None where it says more than how to reach them."""
    if not os.path.lexists(path):
        return []
    with suppress(OSError, ValueError, RecursionError), open(path, encoding="utf-8") as file:
        found = json.load(file)
        servers = found.get("mcpServers") if isinstance(found, dict) and found.keys() == {"mcpServers"} else None
        if isinstance(servers, dict) and all(map(_is_plain, servers, servers.values())):
            return list(servers)
    return None


def _is_plain(name: str, entry: Any) -> bool:
    return (
        _NAME.fullmatch(name) is not None
        and isinstance(entry, dict)
        and entry.keys() <= _PLAIN
        and any(isinstance(entry.get(way), str) for way in ("command", "url"))
    )
