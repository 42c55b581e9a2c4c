"""Activity: searches, calls, decisions and changes as they come, and one record with everything."""

from typing import Final, get_args

from starlette.responses import Response
from starlette.types import ASGIApp

from smart_mcp_proxy.telemetry import ActivityKind
from smart_mcp_proxy.web.page.operations import part
from smart_mcp_proxy.web.page.visit import PageRoute, PageVisit

SHOWN: Final = 50
_FILTERS: Final = ("kind", "server", "tool", "outcome", "principal", "since", "parent")


async def _show_activity(visit: PageVisit) -> Response:
    wanted = visit.read_parameters(_FILTERS)
    before = visit.read_parameter("before")
    query = wanted | {"limit": SHOWN, "before": before or None}
    found, problem = await visit.try_ask("activity", query, {"items": [], "next": None, "last": 0})
    return await visit.page(
        "activity.html",
        problem,
        wanted=wanted,
        found=found,
        kinds=get_args(ActivityKind),
        is_first=not before,
    )


async def _record(visit: PageVisit) -> Response:
    record = await visit.ask("GET", f"activity/{part(visit.read_parameter('id') or '-')}")
    parts = await visit.ask("GET", "activity", {"parent": record["id"], "limit": SHOWN})
    return await visit.page("record.html", record=record, parts=parts["items"])


async def _events(visit: PageVisit) -> ASGIApp:
    return await visit.stream_operation("events", {})


PLACES: Final = (
    PageRoute("GET", "/activity", _show_activity),
    PageRoute("GET", "/record", _record),
    PageRoute("GET", "/events", _events),
)
