"""`mcpproxy activity`: what agents searched and called, what was refused, approved and changed."""

import csv
import json as json_text
import os
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import anyio
from cyclopts import App, Parameter
from cyclopts.validators import Number

from smart_mcp_proxy.cli.support.api import Api, open_running, tell_other_gateway
from smart_mcp_proxy.cli.support.failure import UsageError, next_step
from smart_mcp_proxy.cli.support.output import (
    indent_lines,
    json_line,
    plural,
    say,
    show,
    show_json,
    table,
    translate_write_errors,
)
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.telemetry import ActivityKind, printable

if TYPE_CHECKING:
    from smart_mcp_proxy.catalog import Catalog
    from smart_mcp_proxy.settings import Settings

app = App(
    name="activity",
    help_epilogue="""\
Examples:
  mcpproxy activity list --outcome failed --since 2h
  mcpproxy activity watch --server github
  mcpproxy activity export calls.csv --kind call""",
)

POLL_S = 0.5
"""Between two looks at the log: a record is stored a quarter of a second after the call, and shows within one."""
CHUNK = 500
ID_END_CHARS = 8
"""Shown of an id in a table; `show` takes it."""
SAMPLE_CHARS = 80
PROBLEMS_SHOWN = 20

Limit = Annotated[int, Parameter(name=["--limit", "-n"], validator=Number(gte=1, lte=1000))]
_COLUMNS = (
    *("at", "kind", "principal", "session", "server", "tool", "subject", "outcome", "delivery", "duration_ms"),
    *("digest", "id", "parent", "arguments", "detail"),
)


def _filter(**words: str | None) -> dict[str, str]:
    return {name: word for name, word in words.items() if word is not None}


@app.command(
    name="list",
    help_epilogue="""\
Examples:
  mcpproxy activity list
  mcpproxy activity list --tool github:create_issue --outcome failed
  mcpproxy activity list --kind search --since 2026-11-21T08:00 --json""",
)
async def list_activity(
    *,
    kind: ActivityKind | None = None,
    server: str | None = None,
    tool: str | None = None,
    outcome: str | None = None,
    since: str | None = None,
    limit: Limit = 50,
    json: bool = False,
) -> None:
    """List the last records, newest first.

    Args:
        kind: Only searches, calls, approvals, changes of the configuration, sessions, questions to people, or access:
            tokens and sign-ins.
        server: Only about this server.
        tool: Only calls of this tool, by its own name or SERVER:TOOL.
        outcome: Only with this outcome, such as ok, tool_error, rate_limited; `failed` for all that went wrong.
        since: Only from then on: a time such as 2026-11-21T08:00, or how long ago: 30m, 2h, 7d.
        limit: Number of records, 1 to 1000 (50).
        json: Print a list of objects.
    """
    words = _filter(kind=kind, server=server, tool=tool, outcome=outcome, since=since)
    async with _open_log(open_settings()) as log:
        with next_step("mcpproxy activity list --help"):
            records = (await log.activity(words | {"limit": str(limit)}))["items"]
    if json:
        show_json(records)
        return
    if records:
        columns = ["time", "kind", "outcome", "ms#", "what", "who", "id"]
        show(table(columns, [_cells(record) for record in records]))
    say(f"{plural(len(records), 'record')}. One of them in full: mcpproxy activity show ID", style="dim")


@app.command(name="show", help_epilogue="Examples:\n  mcpproxy activity show 3f9a01c2")
async def show_activity(record_id: str, /, *, json: bool = False) -> None:
    """Show one record in full, and the calls that were parts of it.

    Args:
        record_id: Its id, or the end of it that the list shows.
        json: Print it as one object.
    """
    async with _open_log(open_settings()) as log:
        with next_step("mcpproxy activity list"):
            record = await log.activity_record(record_id)
        parts = (await log.activity({"parent": record["id"], "limit": "1000"}))["items"][::-1]
    if json:
        show_json(record | {"parts": parts})
        return
    width = max(map(len, _COLUMNS))
    for name in _COLUMNS:
        if (value := record[name]) not in ("", None, {}):
            shown = _local(value) if name == "at" else _plain(value)
            show(indent_lines(f"{name:{width}}  {shown}"))
    if parts:
        show(f"{'parts':{width}}  {len(parts)}")
        show(table(["time", "kind", "outcome", "ms#", "what", "who", "id"], [_cells(part) for part in parts]))


@app.command(
    name="watch",
    help_epilogue="""\
Ends with Ctrl-C, or after --limit records.

Examples:
  mcpproxy activity watch
  mcpproxy activity watch --outcome failed --json""",
)
async def watch_activity(
    *,
    kind: ActivityKind | None = None,
    server: str | None = None,
    tool: str | None = None,
    outcome: str | None = None,
    limit: Annotated[int | None, Parameter(name=["--limit", "-n"], validator=Number(gte=1))] = None,
    json: bool = False,
) -> None:
    """Follow what happens from now on, in all gateways on the data directory.

    Args:
        kind: Only searches, calls, approvals, changes of the configuration, sessions, questions to people, or access:
            tokens and sign-ins.
        server: Only about this server.
        tool: Only calls of this tool, by its own name or SERVER:TOOL.
        outcome: Only with this outcome; `failed` for all that went wrong.
        limit: End after so many records.
        json: Print one object a line.
    """
    words = _filter(kind=kind, server=server, tool=tool, outcome=outcome)
    left = limit
    async with open_stored_log(open_settings()) as log:
        place = (await log.activity({"limit": "1"}))["last"]
        say("Waiting for records. Ctrl-C ends it.", style="dim")
        while left is None or left > 0:
            page = await log.activity(words | {"after": str(place), "limit": str(CHUNK)})
            for record in page["items"][:left]:
                show(json_line(record) if json else _line(record))
            sys.stdout.flush()
            left = None if left is None else left - len(page["items"])
            place = page["last"] if page["next"] is None else page["next"]
            if page["next"] is None and left != 0:
                await anyio.sleep(POLL_S)


@app.command(
    name="export",
    help_epilogue="""\
Examples:
  mcpproxy activity export log.jsonl
  mcpproxy activity export calls.csv --kind call --since 7d
  mcpproxy activity export --outcome failed | head""",
)
async def export_activity(
    file: Path | None = None,
    /,
    *,
    form: Annotated[Literal["jsonl", "csv"] | None, Parameter(name="--format")] = None,
    kind: ActivityKind | None = None,
    server: str | None = None,
    tool: str | None = None,
    outcome: str | None = None,
    since: str | None = None,
    json: bool = False,
) -> None:
    """Write records to a file or to stdout, oldest first.

    Args:
        file: Where to; only you can read it. Without it: stdout.
        form: jsonl (one object a line) or csv; else as the file's name ends.
        kind: Only searches, calls, approvals, changes of the configuration, sessions, questions to people, or access:
            tokens and sign-ins.
        server: Only about this server.
        tool: Only calls of this tool, by its own name or SERVER:TOOL.
        outcome: Only with this outcome; `failed` for all that went wrong.
        since: Only from then on: a time such as 2026-11-21T08:00, or how long ago: 30m, 2h, 7d.
        json: Print how many were written as an object, where they go to a file.
    """
    words = _filter(kind=kind, server=server, tool=tool, outcome=outcome, since=since)
    is_csv = form == "csv" or (form is None and file is not None and file.suffix == ".csv")
    count = 0
    async with _open_log(open_settings()) as log:
        # Asked for before the file is opened: words that nothing can be found by must not cost what it held.
        page = await log.activity(words | {"after": "0", "limit": str(CHUNK)})
        with (
            translate_write_errors("stdout" if file is None else str(file)),
            nullcontext(sys.stdout) if file is None else _private(file) as stream,
        ):
            if is_csv:
                csv.writer(stream).writerow(_COLUMNS)
            while True:
                _write_records(stream, page["items"], is_csv=is_csv)
                count += len(page["items"])
                if page["next"] is None:
                    break
                page = await log.activity(words | {"after": str(page["next"]), "limit": str(CHUNK)})
    if file is not None and json:
        show_json({"written": count, "file": str(file)})
    elif file is not None:
        say(f"Wrote {plural(count, 'record')} to {file}.")


@app.command(
    name="verify",
    help_epilogue="""\
Exit status: 0 nothing was changed, 1 something was.

Examples:
  mcpproxy activity verify
  mcpproxy activity verify --json""",
)
async def verify_activity(*, json: bool = False) -> int:
    """Check that no record was changed, added or removed beside the gateway.

    Each record is sealed together with the one before it, under a key that confined servers cannot read. What
    MCPPROXY_ACTIVITY_DAYS and MCPPROXY_ACTIVITY_ROWS have removed left a sealed mark.

    Args:
        json: Print what was found as an object.
    """
    import msgspec

    async with open_stored_catalog(open_settings()) as catalog:
        proof = await catalog.check_activity()
    if json:
        show_json(msgspec.to_builtins(proof))
    else:
        for problem in proof.problems[:PROBLEMS_SHOWN]:
            show(f"- {problem}")
        if (more := len(proof.problems) - PROBLEMS_SHOWN) > 0:
            show(f"- {more:,} more (--json has them all)")
        say(
            f"{plural(proof.records, 'record')} in {plural(proof.chains, 'chain')} are as they were made; "
            f"{proof.removed:,} were removed for their age or number; {proof.unsealed:,} carry no seal "
            "(of earlier versions, copied from another store, or added by somebody else)."
        )
    if not proof.problems:
        return 0
    what = plural(len(proof.problems), "problem")
    say(f"The activity log was changed beside the gateway: {what}. Compare it with an export or a backup.", style="red")
    return 1


def _write_records(stream: TextIO, records: list[dict[str, Any]], *, is_csv: bool) -> None:
    """Writes some more records, as JSON lines or as CSV."""
    if is_csv:
        csv.writer(stream).writerows([_cell(record[name]) for name in _COLUMNS] for record in records)
    else:
        stream.writelines(json_line(record) + "\n" for record in records)
    stream.flush()


class StoredLog:
    """The log in the database, with the methods of the gateway's.

    Args:
        catalog: Holds it.
    """

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog

    async def activity(self, words: Mapping[str, str]) -> dict[str, Any]:
        """A page of records; see `Api.activity`."""
        import msgspec

        from smart_mcp_proxy.gateway.activity.records import activity_page, parse_filter

        places = {name: int(words[name]) for name in ("before", "after") if name in words}
        wanted = parse_filter(words, self._catalog.now_s)
        page = await activity_page(self._catalog, wanted, int(words["limit"]), **places)
        made: dict[str, Any] = msgspec.to_builtins(page)
        return made

    async def activity_record(self, record_id: str) -> dict[str, Any]:
        """Return one record; see `Api.activity_record`."""
        import msgspec

        from smart_mcp_proxy.gateway.activity.records import activity_record

        made: dict[str, Any] = msgspec.to_builtins(await activity_record(self._catalog, record_id))
        return made


@asynccontextmanager
async def _open_log(settings: "Settings") -> AsyncIterator[Api | StoredLog]:
    """The log of the running gateway; without one the database, no server needs to be configured for it."""
    async with open_running(settings) as running:
        if running is not None:
            yield running
            return
    tell_other_gateway(settings)
    async with open_stored_log(settings) as log:
        yield log


@asynccontextmanager
async def open_stored_catalog(settings: "Settings") -> "AsyncIterator[Catalog]":
    """The catalog, with the records that killed processes left behind."""
    # Here and not above: a running gateway is asked without importing one.
    from smart_mcp_proxy.catalog import open_catalog
    from smart_mcp_proxy.gateway.activity.activity_log import recover

    async with open_catalog(settings) as catalog:
        await recover(catalog, settings.data_dir)
        yield catalog


@asynccontextmanager
async def open_stored_log(settings: "Settings") -> AsyncIterator[StoredLog]:
    """The log in the database: gateways may come and go while it is open."""
    async with open_stored_catalog(settings) as catalog:
        yield StoredLog(catalog)


def _private(file: Path) -> TextIO:
    """The file, emptied, for its owner's eyes only: it may hold what agents sent.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        if stat.S_ISREG(os.fstat(number).st_mode):
            os.fchmod(number, 0o600)  # one that was there already may have been open to others
    except OSError as exc:
        raise UsageError(f"{file} cannot be written: {exc.strerror or exc}.", hint="Name a file in a folder.") from exc
    return os.fdopen(number, "w", encoding="utf-8", newline="")


def _cells(record: Mapping[str, Any]) -> list[str]:
    done = record["detail"].get("decision") or record["detail"].get("change")
    what = f"{done}: {record['subject']}" if done else record["subject"]
    who = ", ".join(filter(None, (record["principal"], str(record["detail"].get("client", "")))))
    what = what if len(what) <= SAMPLE_CHARS else f"{what[:SAMPLE_CHARS]}..."
    return [
        _local(record["at"]),
        record["kind"],
        record["outcome"],
        f"{record['duration_ms']:,.1f}",
        printable(what),
        printable(who),
        record["id"][-ID_END_CHARS:],
    ]


def _line(record: Mapping[str, Any]) -> str:
    at, kind, outcome, ms, what, who, end = _cells(record)
    return f"{at}  {kind:8}  {outcome:16}  {ms:>9} ms  {what}  ({who}, {end})"


def _local(at: str) -> str:
    """`2026-11-21 14:03:22`, in the reader's own time."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json_text.dumps(value, ensure_ascii=False)


def _cell(value: Any) -> str:
    """A value in one line of a table; what a spreadsheet would take for a formula is marked as text."""
    text = "" if value is None else printable(_plain(value))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
