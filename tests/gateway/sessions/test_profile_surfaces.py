"""What stays of a profile that left the configuration: its sessions see nothing, and after them nothing stays."""

import gc
import weakref
from dataclasses import dataclass

import pytest
from gateway_fakes import Parts, config, definition

from smart_mcp_proxy.gateway.sessions.profile_surfaces import Fronts
from smart_mcp_proxy.gateway.visibility.visibility import Visible
from smart_mcp_proxy.models import Reach
from smart_mcp_proxy.servers import Profile

pytestmark = pytest.mark.anyio

SERVERS = {name: config(name) for name in ("alpha", "beta")}
WORK = {"work": Profile("work", servers=("alpha",))}
READER = Reach(access="read")


@dataclass
class Opened:
    """As much of a front as its profile's coming and going takes."""

    visible: Visible
    profile: str


@pytest.fixture
async def fronts(parts: Parts) -> Fronts:
    for server in SERVERS:
        await parts.sync(server, [definition("look", hints={"readOnlyHint": True}), definition("drop")])
    parts.visible.reconfigure(SERVERS)

    def look(profile: Profile) -> Visible:
        return Visible(parts.catalog, SERVERS, parts.index.nearest_names, profile)

    return Fronts(parts.visible, look, Opened, WORK)  # type: ignore[arg-type]


def seen(visible: Visible) -> set[str]:
    return {str(record.key) for record in visible.records()}


async def test_who_came_in_at_a_profile_that_is_gone_sees_nothing_until_it_comes_back(fronts: Fronts) -> None:
    """Whether all of it was seen or a part, and whatever else the configuration becomes."""
    whole, part = fronts.of("work"), fronts.of("work", READER)
    assert whole is not None and part is not None
    assert (seen(whole.visible), seen(part.visible)) == ({"alpha:look", "alpha:drop"}, {"alpha:look"})
    for _ in range(2):
        for profiles in ({}, {"other": Profile("other", servers=("beta",))}):
            fronts.reconfigure(SERVERS, profiles)
            assert fronts.of("work") is None
            assert not seen(whole.visible) and not seen(part.visible)
        fronts.reconfigure(SERVERS, {"work": Profile("work", servers=("beta",))})
        assert (seen(whole.visible), seen(part.visible)) == ({"beta:look", "beta:drop"}, {"beta:look"})


@pytest.mark.parametrize("reach", [Reach(), READER])
async def test_one_session_is_enough_for_a_profile_to_be_found_again(fronts: Fronts, reach: Reach) -> None:
    """Nobody but it holds on to the profile's tools meanwhile."""
    front = fronts.of("work", reach)
    assert front is not None
    visible = front.visible
    del front
    fronts.reconfigure(SERVERS, {})
    gc.collect()
    assert not seen(visible)
    fronts.reconfigure(SERVERS, WORK)
    assert "alpha:look" in seen(visible)


async def test_nothing_stays_of_a_profile_that_is_gone_with_its_sessions(fronts: Fronts) -> None:
    """A gateway whose profiles are renamed all day grows by none of them."""
    front = fronts.of("work")
    assert front is not None
    kept = [weakref.ref(front), weakref.ref(front.visible)]
    fronts.reconfigure(SERVERS, {})
    del front
    gc.collect()
    assert [each() for each in kept] == [None, None]
    fronts.reconfigure(SERVERS, WORK)
    again = fronts.of("work")
    assert again is not None and seen(again.visible) == {"alpha:look", "alpha:drop"}
