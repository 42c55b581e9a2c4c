"""Profiles of widespread servers, as data, each tried with the real package."""

from collections.abc import Sequence
from typing import Final, NamedTuple


class ServerProfile(NamedTuple):
    """Needs of a server that any user of it has.

    Attributes:
        has_own_world: Whether it needs sockets, shared memory or processes of its own, as browsers do.
    """

    has_own_world: bool = False


BROWSER: Final = ServerProfile(has_own_world=True)
PROFILES: Final = {
    "@playwright/mcp": BROWSER,
    "chrome-devtools-mcp": BROWSER,
    "@modelcontextprotocol/server-puppeteer": BROWSER,
}
"""By name of the package."""
_AFTER_NAME: Final = ("", "@", "=", "[")


def find_profile(words: Sequence[str]) -> ServerProfile:
    """The profile of the package that a command names; an empty one for others."""
    found = (profile for name, profile in PROFILES.items() if any(_names(word, name) for word in words))
    return next(found, ServerProfile())


def _names(word: str, package: str) -> bool:
    """Whether it is the package, in whatever version, or a file of it."""
    inside = f"/node_modules/{package}/"
    return (word.startswith(package) and word[len(package) : len(package) + 1] in _AFTER_NAME) or inside in word
