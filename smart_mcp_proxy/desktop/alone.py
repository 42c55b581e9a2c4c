"""Reasons for which a client gets a gateway of its own, as far as no gateway has to be asked."""

import os
from collections.abc import Mapping, Sequence

from smart_mcp_proxy.desktop.places import PREFIX, read_option, words_for_stdio

STARTED_BY = "SMART_MCP_PROXY_STARTED_BY"
"""Environment variable of children: `INSTANCE:CONFIGURATION` of every gateway above, the outermost first."""
_OFF = frozenset({"0", "false", "off", "no", "f", "n"})


def find_reason_to_stay_alone(environ: Mapping[str, str], words: Sequence[str]) -> str | None:
    """Reason for a gateway of its own without asking any, in words; empty where the client wants that.

    None where it can share one.
    """
    is_server = bool(environ.get(STARTED_BY))  # of a gateway, perhaps the very one that would be joined
    is_other = not words_for_stdio(words, environ) or read_option("--passthrough", words) is not None
    if is_server or is_other or "--alone" in words or environ.get(f"{PREFIX}SHARED", "").strip().lower() in _OFF:
        return ""
    if sandbox := _find_sandbox(environ):
        return f"the client runs it in a sandbox ({sandbox})"
    return None


def _find_sandbox(environ: Mapping[str, str]) -> str:
    """Name what confines this process and not the system's first one; empty where nothing is seen.

    In a container all processes share its limits, the first among them.
    """
    if environ.get("APP_SANDBOX_CONTAINER_ID"):  # macOS
        return "App Sandbox"
    if os.path.exists("/.flatpak-info"):
        return "Flatpak"
    own, first = _read_confinement("self"), _read_confinement("1")
    for key, name in (("NoNewPrivs", "no new privileges"), ("Seccomp", "seccomp")):
        if own.get(key, "0") != "0" and first.get(key, own.get(key)) == "0":
            return name
    is_alone_in_it = [line.split()[2:] for line in _read_lines("/proc/self/uid_map")] == [["1"]]
    return "a user namespace" if is_alone_in_it else ""


def _read_confinement(process: str) -> dict[str, str]:
    lines = (line.partition(":") for line in _read_lines(f"/proc/{process}/status"))
    return {key: text.strip() for key, _, text in lines}


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError:  # not Linux, or hidden
        return []
