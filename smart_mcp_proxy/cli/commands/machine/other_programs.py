"""Other programs of this name: an older package on the index, and binaries that are called the same."""

import shutil
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

NAMES = ("mcpproxy", "smart-mcp-proxy")
"""Names of our scripts."""
_PACKAGE = "smart-mcp-proxy"
_MODULE = "smart_mcp_proxy"
_READ_BYTES = 4_096
"""The beginning of a script, which imports what it runs."""


def other_programs(environ: Mapping[str, str]) -> list[str]:
    """Paths at which a client that starts one of our names finds another program."""
    found = (shutil.which(name, path=environ.get("PATH", "")) for name in NAMES)
    return [path for path in found if path is not None and not _may_be_ours(Path(path))]


def older_package(find: Callable[[str], metadata.Distribution] = metadata.distribution) -> str:
    """Version of the older program of this name, where that is the installed package; empty if it is not."""
    try:
        installed = find(_PACKAGE)
    except metadata.PackageNotFoundError:
        return ""  # run from a checkout
    is_ours = any(_MODULE in str(file) for file in installed.files or ())
    return "" if is_ours else installed.version


def _may_be_ours(path: Path) -> bool:
    """Whether a program may start this package: its own script, or one of a shell."""
    try:
        with path.open("rb") as file:
            head = file.read(_READ_BYTES)
    except OSError:
        return True
    if _MODULE.encode() in head:
        return True
    first = head.partition(b"\n")[0]
    return first.startswith(b"#!") and b"python" not in first
