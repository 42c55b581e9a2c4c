"""REST: searches and calls in the user's own name."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from smart_mcp_proxy import errors
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.retrieval.kinds import ITEM_KINDS
from smart_mcp_proxy.gateway.retrieval.retrieval import Question
from smart_mcp_proxy.models import WHOLE, CallRequest
from smart_mcp_proxy.trace_context import with_context
from smart_mcp_proxy.web.rest.route import (
    COMMAND_LINE,
    SWITCH,
    Endpoint,
    Parameter,
    build_choice_parameter,
    choice,
    decode_body,
    get_admitted,
    integer,
    whole_number,
)

MOST_TOOLS = 50
_DETAILS = ("compact", "full")


async def _search(gateway: Gateway, request: Request) -> dict[str, Any]:
    query = request.query_params
    profile, name = query.get("profile", ""), query.get("why_not")
    who = get_admitted(request).who
    surface = gateway.surfaces.at(f"p/{profile}" if profile else "", gateway.surfaces.reach(who))
    if surface is None:
        known = ", ".join(sorted(gateway.base.config.profiles())) or "none"
        raise ProfileNotFoundError(f"Profile {profile[:40]!r} is not configured.", hint=f"Known: {known}.")
    question = Question(
        query=query.get("q", ""),
        limit=integer(request, "limit", gateway.settings.top_k, 1, MOST_TOOLS),
        detail="full" if choice(request, "detail", _DETAILS) == "full" else "compact",
        servers=tuple(query.getlist("server")),
        read_only=choice(request, "read_only", SWITCH) == "true",
        principal=who.id,
        session=COMMAND_LINE,
        explain=choice(request, "why", SWITCH) == "true",
        types=tuple(query.getlist("types")),
        is_agents=False,
    )
    return await (surface.retrieval.retrieve(question) if name is None else surface.retrieval.why_not(question, name))


async def _call(gateway: Gateway, request: Request) -> bytes:
    body = await decode_body(request, NamedCall)
    meta = with_context({}, request.headers)
    who = get_admitted(request).who
    reach = gateway.surfaces.reach(who)
    call = CallRequest(
        body.name, body.arguments, variant=None, principal=who.id, session=COMMAND_LINE, meta=meta, is_root=True
    )
    surface = None if reach == WHOLE else gateway.surfaces.at("", reach)
    with gateway.agent.in_flight():
        return (await gateway.calls.call(call, within=None if surface is None else surface.visible)).text


class ProfileNotFoundError(errors.RequestError):
    """No profile of that name is configured."""

    code = "profile_not_found"
    http_status = 404


class NamedCall(msgspec.Struct, forbid_unknown_fields=True):
    """A tool, canonical or listed, and its arguments."""

    name: str
    arguments: dict[str, Any] = {}


_SEARCH: Mapping[str, str | Parameter] = {
    "q": Parameter("What the tool should do, or its name.", {"type": "string", "pattern": r"\S"}, is_required=True),
    "limit": whole_number(f"Most tools, 1 to {MOST_TOOLS}.", 1, MOST_TOOLS),
    "detail": build_choice_parameter("Of each tool its signature, or its whole schema.", _DETAILS),
    "server": Parameter("Only this one; may be repeated.", {"type": "array", "items": {"type": "string"}}),
    "read_only": build_choice_parameter("true: only tools marked read-only.", SWITCH),
    "why": build_choice_parameter("true: why each was found.", SWITCH),
    "types": Parameter(
        "Find these, in found beside tools; may be repeated.", {"type": "array", "items": {"enum": list(ITEM_KINDS)}}
    ),
    "profile": "As an agent of this profile sees it.",
    "why_not": Parameter(
        "A tool, by its canonical or listed name: the answer is where it stands instead, with what keeps it out as "
        "verdict and reason, and the numbers. Verdicts: in_answer; not_configured, server_disabled, "
        "server_quarantined, server_not_ready, excluded, profile; new, changed, blocked; servers, read_only, filter, "
        "not_indexed; no_match, floor, clone, server_cap, stand_in, limit, cut, size.",
        {"type": "string", "pattern": r"\S"},
    ),
}
_CALLING: tuple[type[errors.ProxyError], ...] = (
    errors.ToolNotFoundError,
    errors.RateLimitedError,
    errors.ShuttingDownError,
    errors.UpstreamError,
    errors.UpstreamAuthError,
    errors.UpstreamBusyError,
    errors.UpstreamTimeoutError,
)

ROUTES = (
    Endpoint(
        "GET",
        "/search",
        _search,
        "The answer of retrieve_tools, or why a tool is not in it.",
        query=_SEARCH,
        failures=(errors.ServerNotFoundError, errors.ToolNotFoundError, ProfileNotFoundError),
    ),
    Endpoint("POST", "/call", _call, "Calls a tool in the user's own name.", body=NamedCall, failures=_CALLING),
)
