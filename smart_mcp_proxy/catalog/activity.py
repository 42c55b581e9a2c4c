"""The SQL of the activity log."""

import json
from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, select

from smart_mcp_proxy.catalog.schema import activity
from smart_mcp_proxy.telemetry import Activity

__all__ = ["append", "recent"]

_KEPT = 100_000
"""Newest lines kept: weeks of one person's agents, some 20 MB."""

_INSERT = """INSERT INTO activity (kind, principal, subject, outcome, duration_ms, at_s, detail)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
"""Written out: thousands of lines a second go through it, and a compiled statement works a while on each."""


def append(connection: Connection, batch: Sequence[Activity]) -> None:
    """Adds lines in order, and lets the oldest go beyond 100,000."""
    connection.exec_driver_sql(_INSERT, [_row(line) for line in batch])
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


def _row(line: Activity) -> tuple[object, ...]:
    return (
        line.kind,
        _text(line.principal),
        _text(line.subject),
        _text(line.outcome),
        line.duration_ms,
        line.at_s,
        json.dumps(dict(line.detail)),
    )


def _text(text: str) -> str:
    """`text` with a question mark for what UTF-8 cannot hold: callers choose queries and names freely."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
