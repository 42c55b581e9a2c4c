"""REST: figures of the activity log."""

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

from smart_mcp_proxy.catalog import GROUPINGS, Grouping
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.activity.records import SINCE, moment_s
from smart_mcp_proxy.gateway.activity.stats import BUCKETS, GROUPS, GROUPS_LIMIT, Bucket, Stats, stats
from smart_mcp_proxy.web.rest.route import Endpoint, Parameter, build_choice_parameter, choice, integer, whole_number

SINCE_DEFAULT: Final = "7d"
_BUCKETS: Final[tuple[Bucket, ...]] = tuple(BUCKETS)
_QUERY: Final[Mapping[str, str | Parameter]] = {
    "by": build_choice_parameter("What to group by (none); client is on whose behalf.", GROUPINGS),
    "bucket": build_choice_parameter("Span of time, in UTC (day).", _BUCKETS),
    "since": Parameter(f"An ISO 8601 time, or how long ago: 30m, 2h, 7d ({SINCE_DEFAULT}).", SINCE),
    "limit": whole_number(f"Groups, the largest first, 1 to {GROUPS_LIMIT} ({GROUPS}).", 1, GROUPS_LIMIT),
}


async def _stats(gateway: Gateway, request: Request) -> Stats:
    by: Grouping = next(one for one in GROUPINGS if one == choice(request, "by", GROUPINGS))
    bucket: Bucket = next(one for one in _BUCKETS if one == choice(request, "bucket", _BUCKETS))
    return await stats(
        gateway.catalog,
        since_s=moment_s(request.query_params.get("since", SINCE_DEFAULT), gateway.catalog.now_s),
        by=by,
        bucket=bucket,
        limit=integer(request, "limit", GROUPS, 1, GROUPS_LIMIT),
    )


ROUTES = (
    Endpoint("GET", "/stats", _stats, "What was served and saved, by time and by group.", answer=Stats, query=_QUERY),
)
