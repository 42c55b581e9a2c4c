"""The SQL of the activity log."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from smart_mcp_proxy.catalog.schema import activity
from smart_mcp_proxy.telemetry import Activity

__all__ = ["append", "recent"]

_KEPT = 100_000
"""Newest lines kept: weeks of one person's agents, some 20 MB."""


def append(connection: Connection, batch: Sequence[Activity]) -> None:
    """Adds lines in order, and lets the oldest go beyond 100,000."""
    connection.execute(insert(activity), [_row(line) for line in batch])
    newest = select(func.max(activity.c.id)).scalar_subquery()
    connection.execute(delete(activity).where(activity.c.id <= newest - _KEPT))


def recent(connection: Connection, limit: int) -> tuple[Activity, ...]:
    """The last `limit` lines, newest first."""
    rows = connection.execute(select(activity).order_by(activity.c.id.desc()).limit(limit))
    return tuple(
        Activity(
            kind=row.kind,
            principal=row.principal,
            subject=row.subject,
            outcome=row.outcome,
            duration_ms=row.duration_ms,
            at_s=row.at_s,
            detail=json.loads(row.detail),
        )
        for row in rows
    )


def _row(line: Activity) -> dict[str, Any]:
    return {
        "kind": line.kind,
        "principal": _text(line.principal),
        "subject": _text(line.subject),
        "outcome": _text(line.outcome),
        "duration_ms": line.duration_ms,
        "at_s": line.at_s,
        "detail": json.dumps(dict(line.detail)),
    }


def _text(text: str) -> str:
    """`text` with a question mark for what UTF-8 cannot hold: callers choose queries and names freely."""
    return text.encode("utf-8", "replace").decode()
