"""Activity: searches, calls and changes by conversation, as they come, and one record with everything."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from starlette.responses import Response
from starlette.types import ASGIApp

from smart_mcp_proxy.gateway.admin.doors import REFUSED_CHANGE
from smart_mcp_proxy.policy import short_digest
from smart_mcp_proxy.web.page.operations import part
from smart_mcp_proxy.web.page.visit import PageRoute, PageVisit
from smart_mcp_proxy.web.rest.route import COMMAND_LINE

SHOWN: Final = 50
SESSIONS: Final = 200
"""The latest clients that connected, whose names are looked for."""
PAUSE_S: Final = 1_800.0
"""Seconds without a record after which a new conversation begins."""
_FILTERS: Final = ("kind", "server", "tool", "outcome", "principal", "since", "parent")
_KINDS: Final = {
    "search": "searches",
    "call": "calls",
    "approval": "decisions about tools",
    "config": "changes of servers",
    "session": "clients that connected",
    "question": "questions to people",
    "access": "tokens and sign-ins",
}
_OPERATOR: Final = ("approval", "config", "access")
"""Kinds of what people do at the command line or on this page."""
_YOU: Final = "you, at the command line or on this page"
_NAMES: Final = 3
"""Names of clients that it may have been, at most."""

Record = Mapping[str, Any]


class Talk(NamedTuple):
    """Records of one client that follow each other without a long pause.

    Attributes:
        client: As it calls itself, or who it may be.
        principal: On whose behalf.
        records: The newest first.
    """

    client: str
    principal: str
    records: list[Record]

    def count_failures(self) -> int:
        """Count the records of what did not work."""
        return sum(record["outcome"] not in ("ok", "empty", "input_required") for record in self.records)


def group_conversations(records: Iterable[Record], sessions: Sequence[Record]) -> list[Talk]:
    """Group records, the newest first, by the client's name that they have, else by that of their session.

    Args:
        records: The newest first.
        sessions: Records of clients that connected.
    """
    latest: dict[tuple[str, str], Talk] = {}
    found = []
    for record in records:
        client = _name_client(record, sessions)
        key = (client, (client != _YOU and record["session"]) or record["principal"])
        known = latest.get(key)
        if known is None or _read_s(known.records[-1]) - _read_s(record) > PAUSE_S:
            known = latest[key] = Talk(client, record["principal"], [])
            found.append(known)
        known.records.append(record)
    return found


def _name_client(record: Record, sessions: Sequence[Record]) -> str:
    if record["detail"].get("change") == REFUSED_CHANGE:
        return f"a process of {record['server']}" if record["server"] else "a process on this machine"
    if record["session"] == short_digest(COMMAND_LINE) or record["kind"] in _OPERATOR:
        return _YOU if record["principal"] in ("local", "operator") else "a person"
    named = record["subject"] if record["kind"] == "session" else record["detail"].get("client", "")
    if named or record["kind"] in ("session", "question"):
        return str(named or "a client")
    fits = [
        each for each in sessions if each["session"] == record["session"] and each["principal"] == record["principal"]
    ]
    names = dict.fromkeys(each["subject"] for each in fits if each["subject"])
    return " or ".join([*names][:_NAMES]) or "a client"


def _read_s(record: Record) -> float:
    return datetime.fromisoformat(record["at"]).timestamp()


async def _show_activity(visit: PageVisit) -> Response:
    wanted = visit.read_parameters(_FILTERS)
    before = visit.read_parameter("before")
    query = wanted | {"limit": SHOWN, "before": before or None}
    found, problem = await visit.try_ask("activity", query, {"items": [], "next": None, "last": 0})
    sessions = (await visit.ask("GET", "activity", {"kind": "session", "limit": SESSIONS}))["items"]
    return await visit.page(
        "activity.html",
        problem,
        wanted=wanted,
        found=found,
        conversations=group_conversations(found["items"], sessions),
        kinds=_KINDS,
        is_first=not before,
    )


async def _show_record(visit: PageVisit) -> Response:
    record = await visit.ask("GET", f"activity/{part(visit.read_parameter('id') or '-')}")
    parts = await visit.ask("GET", "activity", {"parent": record["id"], "limit": SHOWN})
    return await visit.page("record.html", record=record, parts=parts["items"])


async def _stream_events(visit: PageVisit) -> ASGIApp:
    return await visit.stream_operation("events", {})


PLACES: Final = (
    PageRoute("GET", "/activity", _show_activity),
    PageRoute("GET", "/record", _show_record),
    PageRoute("GET", "/events", _stream_events),
)
