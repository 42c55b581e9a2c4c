"""What stays of a profile that left the configuration: its sessions see nothing, and after them nothing stays."""

import gc
import weakref

import pytest
from gateway_fakes import Parts, config, definition

from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import Reach
from smart_mcp_proxy.servers import Profile

pytestmark = pytest.mark.anyio

SERVERS = {name: config(name) for name in ("alpha", "beta")}
WORK = {"work": Profile("work", servers=("alpha",))}
READER = Reach(access="read")


@pytest.fixture
async def views(parts: Parts) -> Views:
    for server in SERVERS:
        await parts.sync(server, [definition("look", hints={"readOnlyHint": True}), definition("drop")])
    parts.visible.reconfigure(SERVERS)

    def look(profile: Profile | None) -> CatalogView:
        return (
            parts.visible
            if profile is None
            else CatalogView(parts.catalog, SERVERS, parts.index.nearest_names, profile)
        )

    return Views(look, WORK)


def seen(view: CatalogView) -> set[str]:
    return {str(record.key) for record in view.records()}


async def test_who_came_in_at_a_profile_that_is_gone_sees_nothing_until_it_comes_back(views: Views) -> None:
    """Whether all of it was seen or a part, and whatever else the configuration becomes."""
    whole, part = views.of("work"), views.of("work", READER)
    assert whole is not None and part is not None
    assert (seen(whole), seen(part)) == ({"alpha:look", "alpha:drop"}, {"alpha:look"})
    for _ in range(2):
        for profiles in ({}, {"other": Profile("other", servers=("beta",))}):
            views.reconfigure(SERVERS, profiles)
            assert views.of("work") is None
            assert not seen(whole) and not seen(part)
        views.reconfigure(SERVERS, {"work": Profile("work", servers=("beta",))})
        assert (seen(whole), seen(part)) == ({"beta:look", "beta:drop"}, {"beta:look"})


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("reach", [Reach(), READER])
async def test_one_session_is_enough_for_a_profile_to_be_found_again(views: Views, reach: Reach) -> None:
    """Nobody but it holds on to the profile's tools meanwhile."""
    view = views.of("work", reach)
    assert view is not None
    views.reconfigure(SERVERS, {})
    gc.collect()
    assert not seen(view)
    views.reconfigure(SERVERS, WORK)
    assert "alpha:look" in seen(view)


@pytest.mark.long  # a third of a second of processor time
async def test_nothing_stays_of_a_profile_that_is_gone_with_its_sessions(views: Views) -> None:
    """A gateway whose profiles are renamed all day grows by none of them."""
    view = views.of("work")
    assert view is not None
    kept = weakref.ref(view)
    views.reconfigure(SERVERS, {})
    del view
    gc.collect()
    assert kept() is None
    views.reconfigure(SERVERS, WORK)
    again = views.of("work")
    assert again is not None and seen(again) == {"alpha:look", "alpha:drop"}
