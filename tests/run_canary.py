"""A secret that the tests' servers are trusted with: after the whole run it stands nowhere that anybody reads.

Every gateway of tests/interaction is given it for each of its servers, in the environment of a process or in a header.
What agents get is searched as it arrives; what was printed and written, at the end.
"""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["HEADER", "entrusted", "found_in_files", "leaks", "look"]

CANARY = "kept-by-everybody-7f3a91c5d2"
HEADER = "x-run-canary"
_ALIGNED = [base64.b64encode(b"-" * shift + CANARY.encode())[4:-4] for shift in range(3)]
SPELLINGS = (CANARY.encode(), *_ALIGNED)

leaks: list[str] = []
"""Where it was seen so far."""


def entrusted(servers: Mapping[str, Any]) -> dict[str, Any]:
    """The same servers, each of them with the secret."""
    return {name: _with_canary(entry) if isinstance(entry, dict) else entry for name, entry in servers.items()}


def _with_canary(entry: dict[str, Any]) -> dict[str, Any]:
    if "command" in entry:
        return {**entry, "env": {**entry.get("env", {}), "RUN_CANARY": CANARY}}
    return {**entry, "headers": {**entry.get("headers", {}), HEADER: CANARY}} if "url" in entry else entry


def look(where: str, content: bytes | str) -> None:
    """Remembers the place if the secret stands in the content."""
    raw = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    leaks.extend(
        f"{where}: ...{raw[max(0, at - 100) : at + 60]!r}" for word in SPELLINGS if (at := raw.find(word)) >= 0
    )


def found_in_files(directory: Path) -> Iterator[str]:
    """The files below a directory in which it stands."""
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink() and any(word in path.read_bytes() for word in SPELLINGS):
            yield str(path)
