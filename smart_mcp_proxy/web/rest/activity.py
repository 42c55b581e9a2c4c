"""REST: the activity log."""

from collections.abc import Mapping
from typing import get_args

from starlette.requests import Request

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.activity.records import (
    PAGE_LIMIT,
    SINCE,
    ActivityPage,
    ActivityView,
    UnknownRecordError,
    activity_page,
    activity_record,
    parse_filter,
)
from smart_mcp_proxy.telemetry import ActivityKind
from smart_mcp_proxy.web.rest.route import Endpoint, Parameter, build_choice_parameter, integer, whole_number

PAGE = 50
FURTHEST_PLACE = 2**62
QUERY: Mapping[str, str | Parameter] = {
    "kind": build_choice_parameter("Of this kind only.", get_args(ActivityKind)),
    "server": "A server's name.",
    "tool": "A tool's own or canonical name.",
    "outcome": "An outcome; `failed` for all but ok and empty.",
    "principal": "On whose behalf.",
    "since": Parameter("An ISO 8601 time, or how long ago: 30m, 2h, 7d.", SINCE),
    "parent": "Id of the record whose parts are asked for.",
    "limit": whole_number(f"Records of a page, 1 to {PAGE_LIMIT} ({PAGE}).", 1, PAGE_LIMIT),
    "before": whole_number("The `next` of the page before this one.", 0, FURTHEST_PLACE),
    "after": whole_number(
        "Only records stored after this place, oldest first: a page's `last`, or `next` with `after`.",
        0,
        FURTHEST_PLACE,
    ),
}


async def _list(gateway: Gateway, request: Request) -> ActivityPage:
    return await activity_page(
        gateway.catalog,
        parse_filter(request.query_params, gateway.catalog.now_s),
        integer(request, "limit", PAGE, 1, PAGE_LIMIT),
        before=_place(request, "before"),
        after=_place(request, "after"),
    )


async def _get_activity_record(gateway: Gateway, request: Request) -> ActivityView:
    return await activity_record(gateway.catalog, request.path_params["id"])


def _place(request: Request, name: str) -> int | None:
    return integer(request, name, 0, 0, FURTHEST_PLACE) if name in request.query_params else None


ROUTES = (
    Endpoint("GET", "/activity", _list, "Searches, calls, approvals and changes.", answer=ActivityPage, query=QUERY),
    Endpoint(
        "GET", "/activity/{id}", _get_activity_record, "One record.", ActivityView, failures=(UnknownRecordError,)
    ),
)
