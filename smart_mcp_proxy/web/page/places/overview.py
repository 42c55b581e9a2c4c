"""Overview: what waits, how each server is, and what was served and saved over time."""

from datetime import datetime
from typing import Final

from starlette.responses import Response

from smart_mcp_proxy.policy.approval_groups import EFFECTS, group_waiting
from smart_mcp_proxy.web.page.places.servers import sort_servers
from smart_mcp_proxy.web.page.places.waiting import MOST_WAITING
from smart_mcp_proxy.web.page.plots import SPANS, build_bar_plot, build_curve_plot
from smart_mcp_proxy.web.page.visit import PageRoute, PageVisit

GROUPS: Final = ("server", "tool", "client")
SHOWN: Final = 5
WAITING_SHOWN: Final = 6


async def _show_overview(visit: PageVisit) -> Response:
    name = visit.read_parameter("span") if visit.read_parameter("span") in SPANS else "day"
    by = visit.read_parameter("by") if visit.read_parameter("by") in GROUPS else GROUPS[0]
    span = SPANS[name]
    wanted = {"since": span.since, "bucket": span.bucket}
    found = await visit.ask("GET", "stats", wanted | {"latency": "true"})
    of_groups = {"since": span.since, "bucket": "none", "by": by, "limit": SHOWN}
    busiest = (await visit.ask("GET", "stats", of_groups))["groups"]
    waiting = await visit.ask("GET", "approvals", {"limit": MOST_WAITING, "blocked": "false"})
    status = await visit.read_status()
    until = datetime.fromisoformat(found["until"])
    buckets = found["buckets"]
    return await visit.page(
        "overview.html",
        spans=SPANS,
        name=name,
        by=by,
        busiest=busiest,
        kinds=GROUPS,
        found=found,
        waiting=waiting,
        groups=group_waiting(waiting["tools"]),
        effects=EFFECTS,
        shown=WAITING_SHOWN,
        servers=sort_servers(status["servers"]),
        calls=build_bar_plot(buckets, "calls", part="failed", until=until, span=span),
        saved=build_bar_plot(buckets, "tokens_saved", until=until, span=span),
        took=build_curve_plot(buckets, ("p50_ms", "p95_ms"), until=until, span=span),
    )


PLACES: Final = (PageRoute("GET", "/", _show_overview),)
