"""REST of approvals: what waits and the decision; for the operator alone, reading included.

What is withheld from agents is shown here, so that it can be judged; an agent that could read it would be told it.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from starlette.requests import Request

from smart_mcp_proxy import policy
from smart_mcp_proxy.catalog import Voter
from smart_mcp_proxy.errors import ConflictError, RequestError, ServerNotFoundError, ToolNotFoundError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.approvals import PendingApproval
from smart_mcp_proxy.gateway.admin.roles import REST, require_role
from smart_mcp_proxy.models import CallVariant, ToolKey
from smart_mcp_proxy.web.rest.route import (
    PLACES_MOST,
    SWITCH,
    Endpoint,
    build_choice_parameter,
    choice,
    decode_body,
    get_admitted,
    integer,
    whole_number,
)


class FindingView(msgspec.Struct, frozen=True):
    """Reason to look closely: the check, the place, why, and the text there, escaped."""

    check: str
    severity: str
    place: str
    reason: str
    excerpt: str


class WordsView(msgspec.Struct, frozen=True):
    """A run of text that is `same`, `removed` or `added`."""

    kind: str
    text: str


class FieldView(msgspec.Struct, frozen=True):
    """A field that differs, as runs of text; control and invisible characters are spelled out."""

    path: str
    words: list[WordsView]


class ApprovalView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that is withheld from agents.

    Attributes:
        name: Canonical.
        server: Configured name.
        tool: The tool's own name.
        effect: The most that it says it may do: read, write or destructive.
        state: pending, changed, blocked or altered.
        hash: Of the definition as its server lists it now; approving it takes this back.
        approved_hash: Of the definition approved last, empty where there is none.
        fields: Paths of the fields that differ from it; of a new tool all.
        findings: What the scanner says.
        changes: Every difference from what was approved; left out of a list that is not asked for them.
        approvals: How many persons of those that are needed have approved it, and who; empty for none.
    """

    name: str
    server: str
    tool: str
    effect: CallVariant
    state: str
    hash: str
    approved_hash: str
    fields: list[str]
    findings: list[FindingView]
    changes: list[FieldView] | msgspec.UnsetType = msgspec.UNSET
    approvals: str = ""


class ApprovalsView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Withheld tools, how many there are in all, and whether the record of approvals was lost.

    Without `is_sealed` no decision counts: the key of their seals was lost or is another. `altered_servers` are those
    of which something else than a gateway has written that they ran before there was a sandbox.
    """

    is_closed: bool
    total: int
    tools: list[ApprovalView]
    is_sealed: bool
    altered_servers: list[str] = []


class ApprovalDetail(msgspec.Struct, frozen=True):
    """A withheld tool with every difference from what was approved."""

    approval: ApprovalView
    changes: list[FieldView]


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A definition that the user looked at."""

    name: str
    hash: str


class Approve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Definitions to approve, exactly these.

    `reopens` trusts first lists again after the record was lost. Without `lifts_blocks` what somebody has blocked
    meanwhile stays so, and is among `moved`.
    """

    tools: list[Seen]
    reopens: bool = False
    lifts_blocks: bool = True


class Resealed(msgspec.Struct, frozen=True):
    """Number of decisions that are believed as they stand."""

    decisions: int


class Approved(msgspec.Struct, frozen=True, omit_defaults=True):
    """Approved tools, those that moved since they were looked at, and those that need more people."""

    approved: list[str]
    moved: list[str]
    counted: list[str] = []


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tool, by canonical or listed name."""

    name: str


async def _list(gateway: Gateway, request: Request) -> ApprovalsView:
    server = request.query_params.get("server")
    if server is not None:
        gateway.visible.require_servers([server])
    start = integer(request, "offset", 0, 0, PLACES_MOST)
    limit = integer(request, "limit", PLACES_MOST, 1, PLACES_MOST)
    has_changes = choice(request, "changes", SWITCH) == "true"
    has_blocked = choice(request, "blocked", ("true", "false")) == "true"
    approvals = gateway.admin.approvals
    withheld = approvals.withheld(server, has_blocked=has_blocked)
    waiting = await approvals.explain(withheld[start : start + limit])
    progress = await approvals.explain_progress()
    tools = [_view(each, _changes(each) if has_changes else msgspec.UNSET, progress) for each in waiting]
    catalog = gateway.catalog
    is_closed, altered = catalog.is_closed and catalog.is_sealed, gateway.base.config.list_altered()
    return ApprovalsView(is_closed, len(withheld), tools, catalog.is_sealed, altered)


async def _get_approval(gateway: Gateway, request: Request) -> ApprovalDetail:
    waiting = await gateway.admin.approvals.show(request.path_params["name"])
    progress = await gateway.admin.approvals.explain_progress()
    return ApprovalDetail(_view(waiting, progress=progress), _changes(waiting))


async def _approve(gateway: Gateway, request: Request) -> Approved:
    body = await decode_body(request, Approve)
    if not body.tools and not body.reopens:
        raise RequestError("tools is empty.", hint='Send {"tools": [{"name": ..., "hash": ...}]}.')
    seen = {each.name: each.hash for each in body.tools}
    if body.reopens:  # all first lists at once, as far as nobody looked at them
        require_role(get_admitted(request).role, REST["POST /approvals/reseal"])
    who, lifts = get_admitted(request), body.lifts_blocks
    voter = Voter(who.person, who.name)
    decided = await gateway.admin.approvals.approve(seen, who.id, reopens=body.reopens, lifts=lifts, voter=voter)
    return Approved(list(decided.approved), list(decided.moved), list(decided.counted))


async def _block(gateway: Gateway, request: Request) -> Named:
    body = await decode_body(request, Named)
    return Named(await gateway.admin.approvals.block(body.name, get_admitted(request).id))


async def _unblock(gateway: Gateway, request: Request) -> Named:
    body = await decode_body(request, Named)
    return Named(await gateway.admin.approvals.unblock(body.name, get_admitted(request).id))


async def _reseal(gateway: Gateway, request: Request) -> Resealed:
    return Resealed(await gateway.admin.approvals.reseal(get_admitted(request).id))


def _changes(waiting: PendingApproval) -> list[FieldView]:
    return [
        FieldView(change.path, [WordsView(words.kind, words.text) for words in change.words])
        for change in waiting.changes
    ]


def _view(
    waiting: PendingApproval,
    changes: list[FieldView] | msgspec.UnsetType = msgspec.UNSET,
    progress: Mapping[ToolKey, tuple[str, str]] = MappingProxyType({}),
) -> ApprovalView:
    withheld = waiting.withheld
    key = withheld.record.key
    hash_, counted = progress.get(key, ("", ""))
    return ApprovalView(
        name=str(key),
        server=key.server,
        tool=key.tool,
        effect=policy.call_with(withheld.record.annotations),
        state=withheld.state.value,
        hash=withheld.record.change_hash,
        approved_hash=withheld.approved_hash,
        fields=[change.path for change in waiting.changes],
        findings=[
            FindingView(each.check, each.severity, each.place, each.reason, each.excerpt) for each in waiting.findings
        ],
        changes=changes,
        approvals=counted if hash_ == withheld.record.change_hash else "",
    )


_UNKNOWN = (ToolNotFoundError,)

ROUTES = (
    Endpoint(
        "GET",
        "/approvals",
        _list,
        "Tools that are withheld from agents until the user approves them.",
        ApprovalsView,
        query={
            "server": "Only of this server.",
            "limit": whole_number("Most of them (all).", 1, PLACES_MOST),
            "offset": whole_number("Leaves out so many at the beginning.", 0, PLACES_MOST),
            "blocked": build_choice_parameter("false: without those that the user blocked.", ("true", "false")),
            "changes": build_choice_parameter("true: with every difference from what was approved.", SWITCH),
        },
        failures=(ServerNotFoundError,),
    ),
    Endpoint(
        "GET",
        "/approvals/{name:path}",
        _get_approval,
        "One of them, with every difference from what was approved.",
        ApprovalDetail,
        failures=_UNKNOWN,
    ),
    Endpoint(
        "POST",
        "/approvals/approve",
        _approve,
        "Approves exactly the definitions sent.",
        Approved,
        Approve,
        failures=(*_UNKNOWN, ConflictError),
    ),
    Endpoint(
        "POST",
        "/approvals/block",
        _block,
        "Keeps a tool from agents, whatever it becomes.",
        Named,
        Named,
        failures=_UNKNOWN,
    ),
    Endpoint("POST", "/approvals/unblock", _unblock, "Lifts a block.", Named, Named, failures=_UNKNOWN),
    Endpoint(
        "POST",
        "/approvals/reseal",
        _reseal,
        "Believes all decisions as they stand, once the key of their seals was lost or changed.",
        Resealed,
        failures=(ConflictError,),
    ),
)
