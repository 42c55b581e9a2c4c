"""Confinement by macOS: the profile that `sandbox-exec` holds a server to. Never tried on a Mac.

Source: https://github.com/WebKit/WebKit/blob/main/Source/WebKit/WebProcess/com.apple.WebProcess.sb.in
"""

import os
import platform
import shutil
from collections.abc import Iterable
from typing import Final

from smart_mcp_proxy.upstream.confinement.places import DEVICES
from smart_mcp_proxy.upstream.confinement.reach import ServerReach

_SYSTEM: Final = ("/System", "/Library", "/private/etc/ssl", "/private/var/db/timezone", "/private/var/select")
_HEAD: Final = """\
(version 1)
(deny default)
(import "system.sb")
(allow process-fork sysctl-read file-read-metadata)
(allow signal process-info* (target same-sandbox))
"""
_NETWORK: Final = """\
(allow system-socket)
(allow network-outbound (remote ip) (literal "/private/var/run/mDNSResponder"))
(allow network-bind network-inbound (local ip))
"""


def find_sandbox_exec() -> str | None:
    """The program, on a Mac."""
    return shutil.which("sandbox-exec", path="/usr/bin") if platform.system() == "Darwin" else None


def write_profile(reach: ServerReach) -> str:
    """The profile of a server; what it does not name is refused.

    Raises:
        ValueError: A path cannot be written into one.
    """
    write = _name_paths("subpath", reach.write)
    read = _name_paths("subpath", (*_SYSTEM, *reach.read))
    devices, listed = _name_paths("literal", DEVICES), _name_paths("literal", reach.listed)
    rules = [
        f"(allow process-exec file-read* {read} {write})",
        f"(allow file-read* file-write* {write} {devices})",
        *([f"(allow file-read-data {listed})"] if listed else ()),
        *([f"(allow network-outbound {read} {write})"] if reach.has_sockets else ()),
    ]
    return _HEAD + (_NETWORK if reach.network else "") + "\n".join(rules) + "\n"


def _name_paths(filter_: str, paths: Iterable[str]) -> str:
    real = dict.fromkeys(map(os.path.realpath, paths))
    if odd := next((path for path in real if not path.isprintable()), ""):
        raise ValueError(f"no profile can name {odd!r}")
    return " ".join('({} "{}")'.format(filter_, path.replace("\\", "\\\\").replace('"', '\\"')) for path in real)
