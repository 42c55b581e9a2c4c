"""Profiles in the server file."""

from typing import Any

import pytest

from smart_mcp_proxy.servers import Profile
from smart_mcp_proxy.servers.load import parse_profiles


@pytest.mark.parametrize(
    ("profile", "server", "tool", "is_allowed"),
    [
        (Profile("p"), "any", "thing", True),
        (Profile("p", servers=("git",)), "git", "log", True),
        (Profile("p", servers=("git",)), "github", "log", False),
        (Profile("p", tools=("read_*",)), "files", "read_file", True),
        (Profile("p", tools=("read_*",)), "files", "write_file", False),
        (Profile("p", tools=("git:*",)), "git", "log", True),
        (Profile("p", tools=("git:*",)), "github", "log", False),
        (Profile("p", tools=("git:Log",)), "git", "log", False),
        (Profile("p", servers=("git",), tools=("read_*",)), "files", "read_file", False),
    ],
)
def test_a_profile_has_a_tool_if_server_and_name_fit(
    profile: Profile, server: str, tool: str, is_allowed: bool
) -> None:
    """Globs see the tool's own and its canonical name, letter case included; an empty list means all."""
    assert profile.allows(server, tool) is is_allowed


def test_profiles_are_read_as_written() -> None:
    """With lists that are left out empty."""
    raw = {"work": {"servers": ["git"], "tools": ["*log*"], "pin": ["git:log"]}, "all": {}}
    profiles, problems = parse_profiles(raw, {"git"})
    assert profiles == {"work": Profile("work", ("git",), ("*log*",), ("git:log",)), "all": Profile("all")}
    assert problems == []


@pytest.mark.parametrize(
    ("name", "entry", "words"),
    [
        ("a/b", {}, "no part of an address"),
        ("", {}, "no part of an address"),
        ("x" * 65, {}, "no part of an address"),
        ("work", [], "not an object"),
        ("work", {"servers": "git"}, "'servers' that is not a list of strings"),
        ("work", {"tools": [1]}, "'tools' that is not a list of strings"),
        ("work", {"server": ["git"]}, "a key that is not known: 'server'"),
    ],
)
def test_a_profile_that_is_not_understood_is_left_out(name: str, entry: Any, words: str) -> None:
    """A typo must not open what was meant to be closed."""
    profiles, (problem,) = parse_profiles({name: entry}, {"git"})
    assert profiles == {}
    assert problem.severity == "error"
    assert words in problem.message


def test_a_server_that_is_not_configured_is_told() -> None:
    """The profile is used all the same: the server may come."""
    profiles, (problem,) = parse_profiles({"work": {"servers": ["git", "gti"]}}, {"git"})
    assert set(profiles) == {"work"}
    assert problem.severity == "warning"
    assert "'gti'" in problem.message


@pytest.mark.parametrize(
    ("glob", "holding"),
    [
        ("github:*", {"github"}),
        ("git*:read", {"github"}),
        ("read_*", {"github", "docs"}),
        ("memo://*", {"github", "docs"}),
    ],
)
def test_a_glob_says_which_servers_may_hold_what_it_fits(glob: str, holding: set[str]) -> None:
    """A part before the colon is a server; a glob of URIs fits resources of any."""
    profile = Profile("some", tools=(glob,))
    assert {server for server in ("github", "docs") if profile.may_hold(server)} == holding
