"""Records of the activity log as people and programs read them, and the words that pick some of them."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, get_args

import msgspec

from smart_mcp_proxy.catalog import ActivityFilter, Catalog, StoredActivity
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.telemetry import Activity, ActivityKind

PAGE_LIMIT: Final = 1_000
"""Records of one page."""
_PAST: Final = r"([0-9]{1,6})([smhdw])"
SINCE: Final[Mapping[str, Any]] = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "pattern": f"^{_PAST}$"}]
}
"""JSON schema of what `since` takes, but for dates and times without a zone, which are taken too."""
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class UnknownRecordError(RequestError):
    """No record of the activity log has that id."""

    code = "activity_not_found"
    http_status = 404


class ActivityView(msgspec.Struct, frozen=True):
    """Record of the activity log as users see it; fields that do not apply are empty.

    Attributes:
        id: Its own, ordered by time.
        at: When it was recorded, ISO 8601 in UTC with milliseconds.
        kind: search, call, approval, config, session, question, or access: of tokens and sign-ins.
        principal: On whose behalf.
        session: A short digest of the caller's session.
        server: Configured name.
        tool: The tool's own name.
        subject: The query, or the canonical name of the tool or server.
        outcome: ok, tool_error, empty (nothing found), cancelled, or an error code.
        delivery: Of a failed call: not_sent, unknown or executed.
        duration_ms: From request to answer.
        digest: Of the exact definition called.
        arguments: What MCPPROXY_ACTIVITY_ARGS lets be kept of them; null where that is nothing.
        detail: Small facts: the tools found, the reason an agent gave.
        parent: Id of the record that this one is a part of.
    """

    id: str
    at: str
    kind: str
    principal: str
    session: str
    server: str
    tool: str
    subject: str
    outcome: str
    delivery: str
    duration_ms: float
    digest: str
    arguments: Any
    detail: Mapping[str, Any]
    parent: str


class ActivityPage(msgspec.Struct, frozen=True):
    """Some records.

    Attributes:
        items: The newest first, or with `after` the oldest first.
        next: What to send as `before` (or as `after`) for the page that follows; null where none does.
        last: The place of the newest record of all: sent as `after`, it brings what comes from now on; of a database of
            several gateways maybe some of the newest once more.
    """

    items: list[ActivityView]
    next: int | None
    last: int


async def read_stored_page(
    catalog: Catalog, wanted: ActivityFilter, limit: int, *, before: int | None = None, after: int | None = None
) -> tuple[Sequence[StoredActivity], int | None, int]:
    """Read up to `limit` records with their places; then `next` and `last` of an `ActivityPage`."""
    last = await catalog.last_activity_place()
    # Of several gateways' records those with later places may be stored first: who follows them must miss none.
    until = last if catalog.is_shared and after is not None else None
    found = await catalog.activity_page(wanted, limit, before=before, after=after, until=until)
    if not catalog.is_shared:  # what was stored between the two looks is on this page or comes with the one after it
        last = max([last, *(one.place for one in found)])
    elif after is not None:  # a writer's lock may be seen only after a look that went past it; its records come later
        last = max(last, after)
    return found, found[-1].place if len(found) == limit else None, last


async def activity_page(
    catalog: Catalog, wanted: ActivityFilter, limit: int, *, before: int | None = None, after: int | None = None
) -> ActivityPage:
    """Up to `limit` records, as `Catalog.activity_page` finds them."""
    found, follows, last = await read_stored_page(catalog, wanted, limit, before=before, after=after)
    return ActivityPage([view_record(one.activity) for one in found], follows, last)


async def activity_record(catalog: Catalog, record_id: str) -> ActivityView:
    """Find one record by its id, or by the last 6 or more characters of it.

    Raises:
        UnknownRecordError: There is none.
    """
    found = await catalog.find_activity(record_id)
    if found is None:
        raise UnknownRecordError(
            f"No record of the activity log has the id {record_id[:40]!r}.",
            hint="It may be older than MCPPROXY_ACTIVITY_DAYS. A record's id, or its last 6 characters, names it.",
        )
    return view_record(found)


def moment_s(text: str, now: Callable[[], float] = time.time) -> float:
    """Parse `2h` (ago) or an ISO 8601 time into seconds since the epoch; one without a zone is local.

    Args:
        text: One of these.
        now: Seconds since the epoch; of a shared store by its clock.

    Raises:
        RequestError: It is neither.
    """
    if past := re.fullmatch(_PAST, text):
        return now() - int(past[1]) * _UNIT_S[past[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as exc:
        hint = "Use a time like 2026-11-21T08:00, or how long ago: 30m, 2h, 7d."
        raise RequestError(f"since is {text[:40]!r}.", hint=hint) from exc


def parse_filter(words: Mapping[str, str], now: Callable[[], float] = time.time) -> ActivityFilter:
    """Parse the query parameters of an activity filter; unknown ones are ignored.

    Args:
        words: kind, server, tool, outcome, principal, since and parent.
        now: As for `moment_s`.

    Raises:
        RequestError: There is no such kind, or `since` is no time.
    """
    kind = words.get("kind")
    kinds: tuple[ActivityKind, ...] = get_args(ActivityKind)
    known = next((one for one in kinds if one == kind), None)
    if kind is not None and known is None:
        raise RequestError(f"kind is {kind[:40]!r}.", hint=f"Use one of: {', '.join(kinds)}.")
    since = words.get("since")
    return ActivityFilter(
        kind=known,
        server=words.get("server"),
        tool=words.get("tool"),
        outcome=words.get("outcome"),
        principal=words.get("principal"),
        since_s=None if since is None else moment_s(since, now),
        parent=words.get("parent"),
    )


def view_record(line: Activity) -> ActivityView:
    """The record as users see it."""
    facts = msgspec.structs.asdict(line)
    at = datetime.fromtimestamp(facts.pop("at_s"), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return ActivityView(**{**facts, "at": at, "duration_ms": round(line.duration_ms, 3)})
