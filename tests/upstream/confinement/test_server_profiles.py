"""Profiles of widespread servers, found by what their entries start."""

from pathlib import Path

import pytest
from published import BATCHES, FEW

from smart_mcp_proxy.upstream.confinement.profiles import BROWSER, PROFILES, ServerProfile, find_profile


@pytest.mark.parametrize(
    "words",
    [
        ["npx", "-y", "@playwright/mcp"],
        ["npx", "@playwright/mcp@0.0.83", "--headless"],
        ["node", "/home/u/node_modules/@playwright/mcp/cli.js"],
        ["npx", "--package=a", "chrome-devtools-mcp@latest"],
        ["chrome-devtools-mcp"],
    ],
)
def test_a_profile_is_found_by_the_package(words: list[str]) -> None:
    """In whatever version, from a runner or a folder."""
    assert find_profile(words) == BROWSER


@pytest.mark.parametrize("word", ["chrome-devtools-mcp-of-mine", "@playwright/mcp-x", "a@playwright/mcp", ""])
def test_a_package_of_another_name_has_none(word: str) -> None:
    """However alike."""
    assert find_profile(["npx", word]) == ServerProfile()


def test_the_documentation_lists_what_was_tried() -> None:
    """Each package with its version; each profile is of one of them."""
    tried = [each.package.rpartition("@")[::2] for each in (*FEW, *(each for batch in BATCHES for each in batch))]
    page = (Path(__file__).parents[3] / "docs" / "isolation.md").read_text("utf-8")
    assert [f"`{name}` {version}" for name, version in tried if f"| `{name}` {version} |" not in page] == []
    assert PROFILES.keys() <= {name for name, _ in tried}
