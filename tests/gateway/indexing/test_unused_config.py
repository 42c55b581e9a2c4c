"""What is configured for tools that no server lists: its user is told, once, and of nothing that may still come."""

import asyncio

import anyio
import pytest
from gateway_fakes import Parts, config, definition

from smart_mcp_proxy.gateway.indexing.unused_config import Unmatched
from smart_mcp_proxy.servers import Profile, ServerConfig, ToolFilter

pytestmark = pytest.mark.anyio


async def found(
    parts: Parts, servers: dict[str, ServerConfig], profiles: dict[str, Profile] | None = None, listed: str = "docs ci"
) -> list[str]:
    """What a user is told where `docs` has the tools search and read, and `ci` has run."""
    await parts.sync("docs", [definition("search"), definition("read")])
    await parts.sync("ci", [definition("run")])
    look = Unmatched(parts.catalog, lambda: (servers, profiles or {}), listed.split().__contains__)
    return list(look.list_unmatched())


async def test_a_pin_that_no_tool_has_is_told(parts: Parts) -> None:
    """Which one, whose it is, and where the names are; every form of a name is known."""
    pins = ("search", "docs:read", "docs__read", "serch")
    (told,) = await found(parts, {"docs": config("docs", pin=pins), "ci": config("ci")})
    assert told == (
        "Server 'docs': 'serch' in its 'pin' fits no tool. Correct it or take it out. "
        "All names: mcpproxy tool list --server docs"
    )


async def test_a_pin_of_somebody_elses_tool_is_told(parts: Parts) -> None:
    """A server's entry pins its own tools, and a profile those of its servers."""
    servers = {"docs": config("docs", pin=("ci:run",)), "ci": config("ci")}
    told = await found(parts, servers, {"few": Profile("few", servers=("docs",), pin=("ci:run", "docs:read"))})
    assert [sentence.split(" fits ")[0] for sentence in told] == [
        "Server 'docs': 'ci:run' in its 'pin'",
        "Profile 'few': 'ci:run' in its 'pin'",
    ]


async def test_a_filter_that_no_tool_passes_is_told(parts: Parts) -> None:
    """Of what is let in, and of what is left out; `*` is right for a server without tools."""
    rules = ToolFilter(include=("sea*", "wri*", "*"), exclude=("re?d", "drop"))
    told = await found(parts, {"docs": config("docs", tools=rules), "ci": config("ci")})
    assert [sentence.split("'")[3] for sentence in told] == ["wri*", "drop"]


async def test_a_profile_is_looked_at_too(parts: Parts) -> None:
    """Its globs fit own and canonical names of its servers, its pins canonical and listed ones."""
    servers = {"docs": config("docs"), "ci": config("ci")}
    good = Profile("good", tools=("run", "docs:*"), pin=("ci:run", "docs__search"))
    bad = Profile("bad", servers=("docs", "gone"), tools=("run", "read"), pin=("docs:raed",))
    told = await found(parts, servers, {"good": good, "bad": bad})
    assert [sentence.split(" in its ")[0] for sentence in told] == [
        "Profile 'bad': 'docs:raed'",
        "Profile 'bad': 'run'",
    ]


async def test_nothing_is_told_of_servers_that_have_not_listed_yet(parts: Parts) -> None:
    """Nor of a profile with one of them: what it names may be there."""
    servers = {"docs": config("docs", pin=("nothing",)), "ci": config("ci")}
    assert await found(parts, servers, {"all": Profile("all", tools=("nothing",))}, listed="ci") == []


async def test_each_is_logged_once(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    """Also one that comes with another configuration; not again when lists change."""
    configured: list[dict[str, ServerConfig]] = [{"docs": config("docs", pin=("one",))}]
    look = Unmatched(parts.catalog, lambda: (configured[-1], {}), lambda _: True)
    changes = [asyncio.Event() for _ in range(4)]
    left = iter(changes)
    asked: list[asyncio.Event] = []

    def next_change() -> asyncio.Event:
        asked.append(next(left))
        return asked[-1]

    async def until_asked(count: int) -> None:
        with anyio.fail_after(20):
            while len(asked) < count:
                await asyncio.sleep(0.01)

    async with anyio.create_task_group() as group:
        group.start_soon(look.tell, next_change)
        for number, more in enumerate(({"docs": config("docs", pin=("one", "two"))}, configured[0])):
            await until_asked(number + 1)
            configured.append(more)
            changes[number].set()
        await until_asked(3)
        group.cancel_scope.cancel()
    told = [record.getMessage().split("'")[3] for record in caplog.records if record.name == "mcpproxy.config"]
    assert told == ["one", "two"]
