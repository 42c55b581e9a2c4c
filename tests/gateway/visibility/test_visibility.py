"""Which tools may be seen, and how a name reaches one."""

from typing import Any

import pytest
from gateway_fakes import Parts, config, definition

from smart_mcp_proxy.errors import RequestError, ServerNotFoundError, ToolNotFoundError
from smart_mcp_proxy.gateway.indexing.documents import build_tool_document
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView, NarrowedView
from smart_mcp_proxy.models import Reach, ToolRecord
from smart_mcp_proxy.servers import Profile, ToolFilter

pytestmark = pytest.mark.anyio


async def refused(visible: CatalogView, name: str) -> ToolNotFoundError:
    """The error that a name ends with."""
    with pytest.raises(ToolNotFoundError) as caught:
        await visible.require(name)
    return caught.value


def found(record: ToolRecord | None) -> str | None:
    return str(record.key) if record is not None else None


async def test_canonical_and_listed_names_reach_the_same_tool(parts: Parts) -> None:
    """To the letter, and only to the letter."""
    await parts.sync("alpha", [definition("read_file"), definition("odd name:x")])
    assert found(parts.visible.find("alpha:read_file")) == "alpha:read_file"
    assert found(parts.visible.find("alpha__read_file")) == "alpha:read_file"
    odd = parts.visible.find("alpha:odd name:x")
    assert odd is not None
    assert await parts.visible.require(odd.listed_name) is odd
    for name in ("read_file", "Alpha:read_file", "alpha:read_file ", "", ":", "alpha:", "x" * 100_000):
        assert parts.visible.find(name) is None


async def test_a_wrong_name_is_answered_with_those_it_may_have_meant(parts: Parts) -> None:
    """At most three, best first, in the hint and as data; a name that is like nothing gets the way to search."""
    await parts.sync("alpha", [definition(name) for name in ("read_file", "write_file", "read_files", "read_fil")])
    error = await refused(parts.visible, "alpha:raed_file")
    assert error.data is not None
    near = error.data["did_you_mean"]
    assert near[0] == "alpha:read_file"
    assert len(near) == 3
    assert all(name in error.hint for name in near)
    error = await refused(parts.visible, "qqqqqqqq")
    assert (error.data, error.error_code) == (None, "tool_not_found")
    assert "retrieve_tools" in error.hint


async def test_a_servers_own_name_is_told_with_the_names_that_work(parts: Parts) -> None:
    """One tool of that name is suggested; of several the servers are named, and none is taken for another."""
    await parts.sync("alpha", [definition("read_file"), definition("send")])
    await parts.sync("beta", [definition("read_file"), definition("alpha:send"), definition("alpha:gone")])
    parts.visible.reconfigure({"alpha": config("alpha"), "beta": config("beta")})
    assert [found(each) for each in await parts.visible.find_by_own_name("read_file")] == [
        "alpha:read_file",
        "beta:read_file",
    ]
    assert [found(each) for each in await parts.visible.find_by_own_name("send")] == ["alpha:send"]
    assert (await refused(parts.visible, "send")).data == {"did_you_mean": ["alpha:send"]}
    with pytest.raises(RequestError, match="2 servers have a tool 'read_file': alpha, beta") as caught:
        await parts.visible.require("read_file")
    assert caught.value.hint == "Use one of: alpha:read_file, beta:read_file."
    for said in ("alpha:send", "alpha:gone", "alpha__send", "x" * 100_000):  # alpha is meant, or nothing
        assert await parts.visible.find_by_own_name(said) == []
    parts.visible.reconfigure({"alpha": config("alpha"), "beta": config("beta", disabled=True)})
    assert [found(each) for each in await parts.visible.find_by_own_name("read_file")] == ["alpha:read_file"]


async def test_a_long_wrong_name_does_not_fill_the_error(parts: Parts) -> None:
    """The agent knows what it sent."""
    await parts.sync("alpha", [definition("read_file")])
    assert len((await refused(parts.visible, "x" * 1_000_000)).message) < 500


async def test_a_hidden_tool_is_worded_like_one_that_does_not_exist(parts: Parts) -> None:
    """Neither existence nor reason leaks, and it is not suggested either."""
    await parts.sync("alpha", [definition("open_door"), definition("shut_door")])
    parts.visible.reconfigure({"alpha": config("alpha", tools=ToolFilter(exclude=("open_*",)))})
    hidden = await refused(parts.visible, "alpha:open_door")
    absent = await refused(parts.visible, "alpha:opan_door")
    assert hidden.data == absent.data == {"did_you_mean": ["alpha:shut_door"]}
    assert hidden.message.replace("open_door", "") == absent.message.replace("opan_door", "")


@pytest.mark.parametrize(
    ("servers", "seen"),
    [
        ({}, []),
        ({"alpha": config("alpha")}, ["alpha:get", "alpha:put"]),
        ({"alpha": config("alpha", disabled=True), "beta": config("beta")}, ["beta:get"]),
        ({"alpha": config("alpha", tools=ToolFilter(include=("g*",)))}, ["alpha:get"]),
        ({"alpha": config("alpha", tools=ToolFilter(exclude=("g*",)))}, ["alpha:put"]),
    ],
    ids=["none", "one", "disabled", "include", "exclude"],
)
async def test_the_configuration_decides_what_is_seen(parts: Parts, servers: Any, seen: list[str]) -> None:
    """In the list, by id and by name alike, from the next look on."""
    await parts.sync("alpha", [definition("get"), definition("put")])
    await parts.sync("beta", [definition("get")])
    everything = parts.visible.records()
    assert len(everything) == 3
    parts.visible.reconfigure(servers)
    assert [str(record.key) for record in parts.visible.records()] == seen
    for record in everything:
        is_seen = str(record.key) in seen
        assert (parts.visible.by_id(record.id) is record) == is_seen
        assert (parts.visible.find(str(record.key)) is record) == is_seen
        assert (parts.visible.find(record.listed_name) is record) == is_seen


async def test_the_list_is_made_once_per_state(parts: Parts) -> None:
    """And again after the catalog or the configuration has changed."""
    looks = []

    class Counting(dict[str, Any]):
        """A configuration that knows when it is read."""

        def get(self, name: str, default: Any = None) -> Any:
            looks.append(name)
            return config(name)

    parts.visible.reconfigure(Counting())
    await parts.sync("alpha", [definition("get")])
    for seen in (1, 2, 3):
        looks.clear()
        assert len(parts.visible.records()) == seen
        assert len(looks) == seen
        assert len(parts.visible.records()) == seen
        assert parts.visible.find("alpha:get") is not None
        assert len(looks) == seen
        await parts.sync("alpha", [definition(f"get{'x' * number}") for number in range(seen + 1)])
    parts.visible.reconfigure({})
    assert len(parts.visible.records()) == 0


async def test_a_look_that_began_before_a_change_of_configuration_does_not_outlive_it(parts: Parts) -> None:
    """Searches look from other threads, at any time."""
    await parts.sync("alpha", [definition("get")])
    without: dict[str, Any] = {}

    class Changing(dict[str, Any]):
        """A configuration that is replaced while it is being read."""

        def get(self, name: str, default: Any = None) -> Any:
            parts.visible.reconfigure(without)
            return config(name)

    parts.visible.reconfigure(Changing())
    assert len(parts.visible.records()) == 1
    assert len(parts.visible.records()) == 0


async def test_an_unknown_server_is_answered_with_close_or_known_ones(parts: Parts) -> None:
    """One round trip to the right name."""
    parts.visible.require_servers(["alpha", "beta"])
    with pytest.raises(ServerNotFoundError) as close:
        parts.visible.require_servers(["alpha", "betta"])
    assert "'betta' is not configured" in close.value.message
    assert close.value.hint == "Close: beta."
    with pytest.raises(ServerNotFoundError) as far:
        parts.visible.require_servers(["zzzz"])
    assert far.value.hint == "Known: alpha, beta."
    parts.visible.reconfigure({})
    with pytest.raises(ServerNotFoundError) as none:
        parts.visible.require_servers(["zzzz"])
    assert none.value.hint == "Known: none."


@pytest.mark.parametrize("held_by", ["path", "token"])
async def test_a_profile_of_tools_alone_tells_nothing_of_other_servers(parts: Parts, held_by: str) -> None:
    """Neither their names nor the states they are in: each is answered like a server that does not exist."""
    configured = {"github": config("github"), "secret": config("secret", disabled=True)}
    configured["vault"] = config("vault", quarantined=True)
    held_to = Profile("few", tools=("github:*",))
    parts.visible.reconfigure(configured, held_to if held_by == "path" else None)
    visible = parts.visible
    if held_by == "token":
        visible = NarrowedView(visible, Reach(profile="few"), {"few": held_to}.get)
    assert list(visible.servers) == visible.rules.list_reachable_servers() == ["github"]
    for name in ("secret", "vault", "nope"):
        assert (await refused(visible, f"{name}:x")).message == f"No tool is named '{name}:x'."
        assert visible.find_refusal(f"{name}:x") is None
        with pytest.raises(ServerNotFoundError) as caught:
            visible.require_servers([name])
        assert caught.value.hint == "Known: github."


async def test_search_is_told_a_tools_words(parts: Parts) -> None:
    """Title, description, parameter names and their descriptions; odd ones count as empty."""
    schema = {"properties": {"path": {"description": "Where"}, "mode": {"description": 5}, "odd": True}}
    await parts.sync("alpha", [definition("get", "Gets.", title="Get it", inputSchema=schema)])
    await parts.sync("beta", [definition("odd", "Odd.", title=5, inputSchema=[])])
    document, odd = map(build_tool_document, parts.visible.records())
    assert (document.server, document.name, document.listed_name) == ("alpha", "get", "alpha__get")
    assert (document.title, document.description) == ("Get it", "Gets.")
    assert document.parameters == (("path", "Where"), ("mode", ""), ("odd", ""))
    assert (odd.title, odd.parameters) == ("", ())
