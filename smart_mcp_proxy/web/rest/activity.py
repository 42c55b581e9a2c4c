"""REST: the activity log, its figures, and its events as they come."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final, cast, get_args

import msgspec
from anyio import create_task_group, move_on_after
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from smart_mcp_proxy.catalog import GROUPINGS, ActivityFilter, Grouping
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.activity.records import (
    PAGE_LIMIT,
    SINCE,
    ActivityPage,
    ActivityView,
    UnknownRecordError,
    activity_page,
    activity_record,
    moment_s,
    parse_filter,
    read_stored_page,
    view_record,
)
from smart_mcp_proxy.gateway.activity.stats import BUCKETS, GROUPS, GROUPS_LIMIT, Bucket, Stats, stats
from smart_mcp_proxy.telemetry import ActivityKind
from smart_mcp_proxy.web.rest.route import (
    SWITCH,
    Endpoint,
    Parameter,
    build_choice_parameter,
    choice,
    integer,
    whole_number,
)

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
SINCE_DEFAULT: Final = "7d"
_BUCKETS: Final[tuple[Bucket, ...]] = tuple(BUCKETS)
_STATS_QUERY: Final[Mapping[str, str | Parameter]] = {
    "by": build_choice_parameter("What to group by (none); client is on whose behalf.", GROUPINGS),
    "bucket": build_choice_parameter("Span of time, in UTC (day); none leaves out buckets.", _BUCKETS),
    "since": Parameter(f"An ISO 8601 time, or how long ago: 30m, 2h, 7d ({SINCE_DEFAULT}).", SINCE),
    "limit": whole_number(f"Groups, the largest first, 1 to {GROUPS_LIMIT} ({GROUPS}).", 1, GROUPS_LIMIT),
    "latency": build_choice_parameter("true: with p50_ms and p95_ms, which takes longer (false).", SWITCH),
}
STREAM_TYPE: Final = "text/event-stream"
LOOK_S: Final = 0.25
"""Between two looks for records: other processes on the store write some, too. With the quarter of a second for which
the recorder collects them, what one browser does is seen in another within a second."""
QUIET_S: Final = 15.0
"""After so long without an event a comment is sent: proxies end connections that are silent for a minute."""
MOST_RECORDS: Final = 100
"""Sent at a time; more follow at once."""

_FILTERS: Final = ("kind", "server", "tool", "outcome", "principal", "parent")
_EVENTS_QUERY = {name: QUERY[name] for name in _FILTERS} | {
    "after": Parameter(
        "Only records stored after this place, see GET /activity; from now on where it is left out. A browser that "
        "connects again sends the header Last-Event-ID instead.",
        {"type": "integer", "minimum": 0, "maximum": FURTHEST_PLACE},
    )
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


async def _stats(gateway: Gateway, request: Request) -> Stats:
    by = cast(Grouping, choice(request, "by", GROUPINGS))
    bucket = cast(Bucket, choice(request, "bucket", _BUCKETS))
    return await stats(
        gateway.catalog,
        since_s=moment_s(request.query_params.get("since", SINCE_DEFAULT), gateway.catalog.now_s),
        by=by,
        bucket=bucket,
        limit=integer(request, "limit", GROUPS, 1, GROUPS_LIMIT),
        has_latency=choice(request, "latency", SWITCH) == "true",
    )


async def _events(gateway: Gateway, request: Request) -> Response:
    wanted = parse_filter(request.query_params, gateway.catalog.now_s)
    after = _place(request, "after")
    last = request.headers.get("last-event-id", "")
    if after is None and last.isascii() and last.isdigit() and len(last) < len(str(FURTHEST_PLACE)):
        after = int(last)
    if after is None:
        after = await gateway.catalog.last_activity_place()
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return _EventStream(_stream_events(gateway, wanted, after), headers)


class _EventStream(Response):
    """An answer that goes on until its reader leaves or the gateway ends, and then is whole.

    Args:
        events: Are sent as they come.
        headers: Beside the type.
    """

    media_type = STREAM_TYPE

    def __init__(self, events: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers)
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends them."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with create_task_group() as work:

            async def stop() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                work.cancel_scope.cancel()

            work.start_soon(stop)
            async for event in self._events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _stream_events(gateway: Gateway, wanted: ActivityFilter, after: int) -> AsyncIterator[bytes]:
    """Yield the events until the reader leaves."""
    clock = asyncio.get_running_loop().time
    change = gateway.base.changes.next()
    yield _encode_change(gateway)
    told_s = clock()
    while True:
        try:
            found, follows, last = await read_stored_page(gateway.catalog, wanted, MOST_RECORDS, after=after)
        except CatalogError:  # for a moment, or until the store is back: there is nothing to tell
            found, follows, last = (), None, after
        for stored in found:
            after = stored.place  # a reader whose connection breaks here goes on with the next record
            yield b"id: %d\nevent: activity\ndata: %s\n\n" % (after, msgspec.json.encode(view_record(stored.activity)))
            told_s = clock()
        after = follows or last  # further than the last one sent: what a filter leaves out is looked at once
        if follows is not None:
            continue
        with move_on_after(LOOK_S):
            await change.wait()
        if change.is_set():
            change = gateway.base.changes.next()
            yield _encode_change(gateway)
            told_s = clock()
        elif clock() - told_s >= QUIET_S:
            yield b": nothing new\n\n"
            told_s = clock()


def _encode_change(gateway: Gateway) -> bytes:
    """Report that servers or tools are different: what they are now is asked for as before."""
    return b'event: change\ndata: {"generation":%d}\n\n' % gateway.catalog.snapshot.generation


ROUTES = (
    Endpoint("GET", "/activity", _list, "Searches, calls, approvals and changes.", answer=ActivityPage, query=QUERY),
    Endpoint(
        "GET", "/activity/{id}", _get_activity_record, "One record.", ActivityView, failures=(UnknownRecordError,)
    ),
    Endpoint(
        "GET", "/stats", _stats, "What was served and saved, by time and by group.", answer=Stats, query=_STATS_QUERY
    ),
    Endpoint(
        "GET",
        "/events",
        _events,
        "Records of activity and changes of servers and tools as they come: `activity` with a record as in GET "
        "/activity, `change` with the catalog's generation.",
        answer=str,
        query=_EVENTS_QUERY,
        media_type=STREAM_TYPE,
    ),
)
