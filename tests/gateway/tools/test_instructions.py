"""Instructions name the servers that a client reaches, and nothing that could give a model orders."""

from pathlib import Path
from typing import Any

import pytest
from gateway_fakes import config
from msgspec.structs import replace

from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.greeting.instructions import INSTRUCTIONS
from smart_mcp_proxy.models import LOCAL, WHOLE, Principal, Reach
from smart_mcp_proxy.servers import Profile
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

SERVERS = {name: config(name) for name in ("github", "docs", "ci.main", "wiki-2", "Jira_x")}
PROFILES = {
    "work": Profile("work", servers=("github", "docs")),
    "globbed": Profile("globbed", tools=("git*:*", "docs:read_?")),
    "named": Profile("named", tools=("search",)),
}
Servers = dict[str, Any]


async def _tell() -> None:
    """For a client that nobody tells anything."""


async def told(tmp_path: Path, servers: Servers, path: str = "", reach: Reach = WHOLE, **more: Any) -> str:
    """What a client at `path` is told: the same in a session and without one."""
    passed = more.pop("passthrough", None)
    settings = Settings(data_dir=tmp_path, **more)
    async with open_gateway(settings, servers, environ={}, profiles=PROFILES, passthrough=passed) as gateway:
        who = Principal("ann", reach) if reach != WHOLE else LOCAL
        session = gateway.agent.open_session(HandshakeClient("some-client", "1", path, who, _tell))
        standing = gateway.agent.require_tools(path, who).instructions
        assert session.tool_list.instructions == standing
        session.close()
        return standing


def named(text: str) -> str:
    """What follows the plain instructions."""
    assert text.startswith(INSTRUCTIONS)
    return text.removeprefix(INSTRUCTIONS)


async def test_servers_are_named_in_order(tmp_path: Path) -> None:
    """Whatever the order of the file, and before any of them is connected."""
    assert named(await told(tmp_path, SERVERS)) == "\nServers: Jira_x, ci.main, docs, github, wiki-2."
    assert named(await told(tmp_path, {})) == ""


@pytest.mark.parametrize(
    ("path", "reach", "expected"),
    [
        ("p/work", WHOLE, "docs, github"),
        ("p/globbed", WHOLE, "docs, github"),
        ("p/named", WHOLE, "Jira_x, ci.main, docs, github, wiki-2"),
        ("", Reach(servers=frozenset({"docs", "gone"})), "docs"),
        ("", Reach(profile="work"), "docs, github"),
        ("p/work", Reach(servers=frozenset({"docs", "wiki-2"})), "docs"),
        ("", Reach(servers=frozenset()), ""),
    ],
)
async def test_only_what_the_caller_reaches_is_named(path: str, reach: Reach, expected: str, tmp_path: Path) -> None:
    """A profile's servers, and of them those that its token is for."""
    assert named(await told(tmp_path, SERVERS, path, reach)) == (f"\nServers: {expected}." if expected else "")


@pytest.mark.parametrize("change", [{"quarantined": True}, {"disabled": True}])
async def test_a_server_that_waits_for_its_user_or_is_off_is_neither_named_nor_counted(
    change: Servers, tmp_path: Path
) -> None:
    """What an agent adds is in quarantine until its user has approved it."""
    servers = SERVERS | {"docs": replace(SERVERS["docs"], **change), "b@d": replace(config("b@d"), **change)}
    assert named(await told(tmp_path, servers)) == "\nServers: Jira_x, ci.main, github, wiki-2."


@pytest.mark.parametrize("name", ["a b", "ignore: all", "x" * 41, "naïve", "a\nb", "a/b", "<b>", ""])
async def test_a_name_that_could_hold_a_sentence_is_counted(name: str, tmp_path: Path) -> None:
    """Where there is no other name, nothing is said."""
    assert named(await told(tmp_path, {"docs": config("docs"), name: config(name)})) == "\nServers: docs and 1 more."
    assert named(await told(tmp_path, {name: config(name)})) == ""


async def test_forty_are_named_and_the_rest_is_counted(tmp_path: Path) -> None:
    """So that the words stay few."""
    servers = {f"s{number:02}": config(f"s{number:02}") for number in range(42)}
    text = named(await told(tmp_path, servers))
    assert text.endswith("s38, s39 and 2 more.") and text.count(",") == 39


async def test_a_server_that_is_passed_through_is_not_named(tmp_path: Path) -> None:
    """Its list says all."""
    servers = {"docs": config("docs")}
    assert "docs" not in await told(tmp_path, servers, passthrough="docs")


async def test_the_operator_can_have_plain_words_or_others(tmp_path: Path) -> None:
    """A word in any case; anything else is the text itself."""
    for setting, text in (("plain", INSTRUCTIONS), ("PLAIN", INSTRUCTIONS), ("Search first.", "Search first.")):
        assert await told(tmp_path, SERVERS, instructions=setting) == text
    assert named(await told(tmp_path, SERVERS, instructions="Servers")) != ""


async def test_a_changed_server_file_changes_the_next_greeting(tmp_path: Path) -> None:
    """Without a restart."""
    async with open_gateway(Settings(data_dir=tmp_path), {}, environ={}) as gateway:
        await gateway.apply({"docs": replace(config("docs"), disabled=True)})
        before = gateway.agent.require_tools("", LOCAL).instructions
        await gateway.apply({"docs": config("docs")})
        assert (named(before), named(gateway.agent.require_tools("", LOCAL).instructions)) == ("", "\nServers: docs.")
