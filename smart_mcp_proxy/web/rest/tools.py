"""REST: the tools of the catalog, and what was learned about them."""

import time
from typing import Any

import msgspec
from starlette.requests import Request

from smart_mcp_proxy.catalog import Example
from smart_mcp_proxy.errors import (
    RequestError,
    ServerNotFoundError,
    ToolNotFoundError,
    UpstreamAuthError,
    UpstreamError,
)
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.indexing.learning import forget_examples
from smart_mcp_proxy.gateway.retrieval.preflight import NAMES_LIMIT, Checked, Preflight
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import WHOLE, ToolRecord
from smart_mcp_proxy.names import extract_server_name
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.web.rest.route import (
    PLACES_MOST,
    Endpoint,
    Parameter,
    build_choice_parameter,
    choice,
    get_admitted,
    integer,
    whole_number,
)

LISTED, LISTED_MOST = 50, 500
SHOWN_CHARS = 300
"""Characters of a description in a list."""
_STATES = ("all", "visible", "withheld")


def _find_view(gateway: Gateway, request: Request) -> CatalogView:
    """Find what the sender may look at; of servers that list each person their own, a person's part."""
    who = get_admitted(request).principal
    if who is None:
        return gateway.visible
    # A viewer may look at what they may not call.
    found = gateway.lists.views.of("", msgspec.structs.replace(gateway.surfaces.reach(who), access=WHOLE.access))
    assert found is not None  # the whole catalog is always there
    return found


async def _list(gateway: Gateway, request: Request) -> list[dict[str, Any]]:
    server, visible = request.query_params.get("server"), _find_view(gateway, request)
    if server is not None:
        visible.require_servers([server])
    records = (record for record in visible.records() if server in (None, record.key.server))
    return [gateway.retrieval.summarize(record) for record in sorted(records, key=lambda one: one.key)]


class ListedView(msgspec.Struct, frozen=True):
    """A tool in a list.

    Attributes:
        name: Canonical.
        server: Configured name.
        tool: The tool's own name.
        state: visible, or why agents do not see it: pending, changed, blocked.
        description: Its first words, as the server sent them.
        annotations: The server's hints.
        digest: Of its definition.
    """

    name: str
    server: str
    tool: str
    state: str
    description: str
    annotations: dict[str, Any]
    digest: str


class ListingView(msgspec.Struct, frozen=True):
    """A part of the list of tools, and how many the whole has."""

    total: int
    items: list[ListedView]


async def _list_tool_views(gateway: Gateway, request: Request) -> ListingView:
    query = request.query_params
    server, words = query.get("server"), query.get("name", "").casefold()
    state, visible = choice(request, "state", _STATES), _find_view(gateway, request)
    if server is not None:
        visible.require_servers([server])
    found: list[tuple[ToolRecord, str]] = []
    if state != "withheld":
        found += ((record, "visible") for record in visible.records())
    if state != "visible":
        found += ((each.record, each.state.value) for each in gateway.admin.approvals.withheld())
    found = [
        one
        for one in found
        if server in (None, extract_server_name(one[0].key.server)) and words in str(one[0].key).casefold()
    ]
    found.sort(key=lambda one: one[0].key)
    start = integer(request, "offset", 0, 0, PLACES_MOST)
    shown = found[start : start + integer(request, "limit", LISTED, 1, LISTED_MOST)]
    return ListingView(len(found), [_build_tool_view(record, each) for record, each in shown])


def _build_tool_view(record: ToolRecord, state: str) -> ListedView:
    description = msgspec.json.decode(record.raw).get("description")
    return ListedView(
        name=str(record.key),
        server=extract_server_name(record.key.server),
        tool=record.key.tool,
        state=state,
        description=description[:SHOWN_CHARS] if isinstance(description, str) else "",
        annotations=dict(record.annotations),
        digest=record.digest,
    )


async def _get_tool(gateway: Gateway, request: Request) -> dict[str, Any]:
    record = await _find_view(gateway, request).require(request.path_params["name"])
    examples = await gateway.catalog.read_examples(record.key)
    return gateway.retrieval.describe(record) | {"examples": [_example(example) for example in examples]}


async def _check(gateway: Gateway, request: Request) -> list[Checked]:
    names = request.query_params.getlist("tool")
    if not 1 <= len(names) <= NAMES_LIMIT:
        raise RequestError(f"{len(names)} tools are named.", hint=f"Name 1 to {NAMES_LIMIT}: ?tool=NAME&tool=NAME.")
    return await Preflight(_find_view(gateway, request), gateway.calls.clean_for_caller).check(names)


async def _forget_examples(gateway: Gateway, request: Request) -> dict[str, int]:
    query = request.query_params
    count = await forget_examples(gateway.catalog, query.get("tool"), query.get("question"))
    await gateway.lists.index_sync.follow()
    detail = {"change": "questions forgotten", "count": count}
    by, tool = get_admitted(request).id, query.get("tool", "all tools")
    gateway.base.recorder.record(Activity("config", by, tool, "ok", 0.0, time.time(), detail))
    return {"forgotten": count}


def _example(example: Example) -> dict[str, Any]:
    return {
        "question": example.question,
        "uses": example.uses,
        "last_used_s": example.last_used_s,
        "is_confirmed": example.is_confirmed,
    }


ROUTES = (
    Endpoint(
        "GET",
        "/check",
        _check,
        "Whether tools can be called now, as they were approved; none is called.",
        list[Checked],
        query={
            "tool": Parameter(
                "Canonical or listed name, with @ and a digest behind it where it is held to that definition; "
                f"may be repeated, at most {NAMES_LIMIT} times.",
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": NAMES_LIMIT},
                is_required=True,
            )
        },
    ),
    Endpoint(
        "GET",
        "/tools",
        _list,
        "All visible tools.",
        list[dict[str, Any]],
        query={"server": "Only of this server."},
        failures=(ServerNotFoundError,),
    ),
    Endpoint(
        "GET",
        "/listing",
        _list_tool_views,
        "Tools by name, those that are withheld from agents included.",
        ListingView,
        query={
            "server": "Only of this server.",
            "name": "Only those whose canonical name holds this.",
            "state": build_choice_parameter(
                "Only those that agents see, or those that are withheld from them.", _STATES
            ),
            "limit": whole_number(f"Most of them, 1 to {LISTED_MOST} ({LISTED}).", 1, LISTED_MOST),
            "offset": whole_number("Leaves out so many at the beginning.", 0, PLACES_MOST),
        },
        failures=(ServerNotFoundError,),
    ),
    Endpoint(
        "GET",
        "/tools/{name:path}",
        _get_tool,
        "One tool's whole definition, and what was learned about it.",
        failures=(ToolNotFoundError, UpstreamError, UpstreamAuthError),
    ),
    Endpoint(
        "DELETE",
        "/examples",
        _forget_examples,
        "Forgets what was learned from use, all of it if nothing is named.",
        dict[str, int],
        query={
            "tool": "Only about this tool.",
            "question": Parameter("Only this question.", {"type": "string", "pattern": r"[A-Za-z0-9]"}),
        },
        failures=(ToolNotFoundError,),
    ),
)
