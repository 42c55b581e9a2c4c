"""What is seen of prompts and resources at one place lives as long as that place."""

import gc
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
from gateway_fakes import Parts

from smart_mcp_proxy.gateway.sessions.content_lookup import ContentLookup
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView, NarrowedView
from smart_mcp_proxy.models import LOCAL, Reach

pytestmark = pytest.mark.anyio


@pytest.mark.long  # a third of a second of processor time
async def test_the_contents_of_a_view_go_when_the_view_goes(parts: Parts) -> None:
    """Each change of the configuration makes every narrowed view anew."""
    views: dict[str, CatalogView] = {}
    of_path: Any = SimpleNamespace(at=lambda path, reach: views.get(path), reach=lambda who: who.reach)
    lookup = ContentLookup(of_path, parts.catalog, 60, None)
    seen: WeakSet[Contents] = WeakSet()
    for number in range(50):
        views["p/work"] = NarrowedView(parts.visible, Reach(frozenset({str(number)})), {}.get)
        contents = lookup.at("p/work", LOCAL)
        assert contents is not None
        assert lookup.at("p/work", LOCAL) is contents
        seen.add(contents)
    gc.collect()
    assert list(seen) == [contents]
    assert lookup.at("t/none", LOCAL) is None
