"""How far a principal reaches: what a narrowed view of the catalog shows, whatever becomes of the configuration."""

from typing import Any

import pytest
from gateway_fakes import Parts, config, definition
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy import policy
from smart_mcp_proxy.errors import RefusedError, ToolNotFoundError
from smart_mcp_proxy.gateway.visibility.visibility import NarrowedView
from smart_mcp_proxy.models import Reach
from smart_mcp_proxy.servers import Profile

pytestmark = pytest.mark.anyio

HINTS: dict[str, dict[str, Any]] = {
    "look": {"readOnlyHint": True},
    "save": {"readOnlyHint": False, "destructiveHint": False},
    "drop": {"destructiveHint": True},
    "silent": {},
}


def marked() -> list[dict[str, Any]]:
    """One tool for each kind of hints."""
    return [definition(name) | {"annotations": hints} for name, hints in HINTS.items()]


def names(visible: Any) -> set[str]:
    return {str(record.key) for record in visible.records()}


async def test_a_reach_is_the_part_that_servers_access_and_profile_leave(parts: Parts) -> None:
    """Each alone and all together; a profile that does not exist leaves nothing."""
    profiles = {"work": Profile("work", servers=("beta",), tools=("look", "s*"))}
    for server in ("alpha", "beta"):
        await parts.sync(server, marked())
    parts.visible.reconfigure({name: config(name) for name in ("alpha", "beta")})
    everything = names(parts.visible)
    assert len(everything) == 8
    for reach, seen in (
        (Reach(), everything),
        (Reach(frozenset({"alpha"})), {name for name in everything if name.startswith("alpha")}),
        (Reach(access="read"), {"alpha:look", "beta:look"}),
        (Reach(access="write"), {name for name in everything if not name.endswith("drop")}),
        (Reach(profile="work"), {"beta:look", "beta:save", "beta:silent"}),
        (Reach(frozenset({"beta"}), "read", "work"), {"beta:look"}),
        (Reach(frozenset({"alpha"}), "destructive", "work"), set()),
        (Reach(frozenset()), set()),
        (Reach(frozenset({"gamma"})), set()),
        (Reach(profile="gone"), set()),
    ):
        assert names(NarrowedView(parts.visible, reach, profiles.get)) == seen, reach


async def test_what_is_narrowed_twice_stays_within_both(parts: Parts) -> None:
    """Servers, access and every profile that either is held to, in whichever order, for tools and other contents."""
    profiles = {
        "looks": Profile("looks", tools=("look",)),
        "near": Profile("near", servers=("alpha",), tools=("look", "s*")),
    }
    for server in ("alpha", "beta"):
        await parts.sync(server, marked())
    parts.visible.reconfigure({name: config(name) for name in ("alpha", "beta")})
    for one, other, seen in (
        (Reach(profile="looks"), Reach(frozenset({"beta"})), {"beta:look"}),
        (Reach(profile="looks"), Reach(profile="near"), {"alpha:look"}),
        (Reach(access="read"), Reach(frozenset({"alpha"})), {"alpha:look"}),
        (Reach(frozenset({"alpha"})), Reach(frozenset({"beta"})), set()),
        (Reach(profile="gone"), Reach(frozenset({"alpha"})), set()),
        (Reach(access="write"), Reach(profile="near"), {"alpha:look", "alpha:save", "alpha:silent"}),
    ):
        for first, second in ((one, other), (other, one)):
            view = NarrowedView(NarrowedView(parts.visible, first, profiles.get), second, profiles.get)
            assert names(view) == seen, (first, second)
            assert view.ids() is not None
    held = NarrowedView(parts.visible, Reach(profile="looks"), profiles.get)
    alone = NarrowedView(held, Reach(frozenset({"alpha"})), profiles.get)
    assert alone.sees_content("alpha", "look") and not alone.sees_content("alpha", "save")
    reader = NarrowedView(
        NarrowedView(parts.visible, Reach(access="read"), profiles.get), Reach(frozenset({"alpha"})), profiles.get
    )
    with pytest.raises(RefusedError, match="allows read"):
        await reader.require("alpha:drop")


async def test_a_narrowed_view_follows_the_configuration(parts: Parts) -> None:
    """A server that comes, a filter, a profile that is redefined: nobody has to tell it."""
    profiles = {"work": Profile("work", tools=("look",))}
    for server in ("alpha", "beta"):
        await parts.sync(server, marked())
    parts.visible.reconfigure({"alpha": config("alpha")})
    view = NarrowedView(parts.visible, Reach(frozenset({"beta"}), profile="work"), profiles.get)
    assert names(view) == set()
    parts.visible.reconfigure({name: config(name) for name in ("alpha", "beta")})
    assert names(view) == {"beta:look"}
    assert set(view.servers) == {"beta"}
    profiles["work"] = Profile("work", tools=("save",))
    parts.visible.reconfigure({name: config(name) for name in ("alpha", "beta")})
    assert names(view) == {"beta:save"}
    profiles.clear()
    parts.visible.reconfigure({name: config(name) for name in ("alpha", "beta")})
    assert names(view) == set()
    assert dict(view.servers) == {}


async def test_beyond_the_servers_a_tool_is_unknown_beyond_the_access_refused(parts: Parts) -> None:
    """The one must not be told from what does not exist; the other is the holder's to ask for."""
    for server in ("alpha", "beta"):
        await parts.sync(server, marked())
    parts.visible.reconfigure({name: config(name) for name in ("alpha", "beta")})
    view = NarrowedView(parts.visible, Reach(frozenset({"alpha"}), "write"), {}.get)
    for name in ("beta:look", "beta:drop", "beta__look", "gamma:look"):
        with pytest.raises(ToolNotFoundError) as unknown:
            await view.require(name)
        assert "beta:" not in unknown.value.hint
    for name in ("alpha:drop", "alpha__drop"):
        with pytest.raises(RefusedError) as refused:
            await view.require(name)
        assert (refused.value.error_code, refused.value.data) == (
            "access_denied",
            {"access": "write", "needed": "destructive"},
        )
    assert (await view.require("alpha:silent")).key.tool == "silent"


@given(hints=st.dictionaries(st.sampled_from(["readOnlyHint", "destructiveHint", "x"]), st.sampled_from([True, False])))
def test_access_grows(hints: dict[str, bool]) -> None:
    """Whatever a tool says: what a smaller access allows, a larger one does, and destructive allows all."""
    allowed = [policy.is_within(access, hints) for access in ("read", "write", "destructive")]  # type: ignore[arg-type]
    assert allowed == sorted(allowed)
    assert allowed[2]
    assert allowed[0] == (policy.call_with(hints) == "read")
