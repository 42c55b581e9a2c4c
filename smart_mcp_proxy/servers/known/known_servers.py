"""Known servers: facts about published packages that do not stand in their entries."""

import json
import re
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

_FILE: Final = Path(__file__).with_name("known_servers.json")
"""By package; `scripts/atlas.py` writes what it has seen (`needs`, `installed_mb`), the rest is written by hand."""
_VERSION: Final = r"(?<=.)(?:@|==|\[)[^/]*$"
_IN_FOLDER: Final = r".*/node_modules/((?:@[^/]+/)?[^/]+)/"
_LARGE_MB: Final = 50
"""Less is fetched before anyone wonders."""


class KnownServer(NamedTuple):
    """Facts about a package.

    Attributes:
        needs: Variables without which it does not start.
        installed_mb: Size of it and of what it needs, as installed.
        separation: Why clients must not share a process; empty if they may.
        has_own_world: Whether it needs sockets, shared memory or processes of its own, as browsers do.
    """

    needs: tuple[str, ...] = ()
    installed_mb: int = 0
    separation: str = ""
    has_own_world: bool = False


NOTHING: Final = KnownServer()


def find_known_server(command: str, args: Sequence[str]) -> KnownServer:
    """Find what is known of the package that a command starts, in whatever version; empty for others."""
    known = _read_all()
    for word in (command.rpartition("/")[2], command, *args):
        inside = re.match(_IN_FOLDER, word)
        found = known.get(inside[1] if inside else re.sub(_VERSION, "", word))
        if found is not None:
            return found
    return NOTHING


def describe_missing(command: str, args: Sequence[str], variables: Collection[str]) -> str:
    """Say which variables a known server needs beside these; empty where none is missing."""
    missing = [name for name in find_known_server(command, args).needs if name not in variables]
    return f"It is known to need {' and '.join(missing)} in its environment." if missing else ""


def describe_known(command: str, args: Sequence[str], variables: Collection[str]) -> str:
    """Say what should be known before a first start: the variables that are missing, a long download."""
    size_mb = find_known_server(command, args).installed_mb
    large = f"Its first start installs {size_mb} MB." if size_mb >= _LARGE_MB else ""
    return " ".join(filter(None, (describe_missing(command, args, variables), large)))


@cache
def _read_all() -> dict[str, KnownServer]:
    rows: dict[str, dict[str, Any]] = json.loads(_FILE.read_text("utf-8"))
    return {name: KnownServer(**row | {"needs": tuple(row.get("needs", ()))}) for name, row in rows.items()}
