"""`mcpproxy scan`: which stored tools have definitions that a person should read."""

import json as json_text
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anyio import to_thread
from cyclopts import App
from msgspec.structs import asdict

from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step
from smart_mcp_proxy.cli.support.output import plural, say, show, show_json, table
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import ProxyError, ToolNotFoundError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.policy.scanner import Finding, Peers, PeerTool, scan
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import printable

app = App(
    name="scan",
    help_epilogue="""\
Reads the stored definitions, those that wait for approval included; no server
is connected. "review" asks for your eyes before agents use the tool; "note" is
worth knowing. A tool without findings may still be hostile: what protects
agents is that definitions are approved and cannot change unseen.

Examples:
  mcpproxy scan                           everything in the catalog
  mcpproxy scan github                    one server
  mcpproxy scan github:create_issue       one tool
  mcpproxy scan --file tools.jsonl --json  a file: one definition a line
  mcpproxy scan --fail-on-review          exit status 1 if something needs review""",
)


class Scanned(NamedTuple):
    """A tool and what was found in its definition."""

    key: ToolKey
    findings: tuple[Finding, ...]

    @property
    def is_for_review(self) -> bool:
        """Whether a person should read it."""
        return any(finding.severity == "review" for finding in self.findings)


@app.default
async def scan_tools(
    name: str | None = None, /, *, file: Path | None = None, fail_on_review: bool = False, json: bool = False
) -> int:
    """Look for attacks on agents in tool definitions.

    Args:
        name: SERVER or SERVER:TOOL; everything if left out.
        file: Definitions to read instead of the catalog: JSON objects, one a line, with name, description,
            inputSchema and, if known, server.
        fail_on_review: Exit with status 1 if a tool needs review.
        json: Print a list of objects.
    """
    known = await to_thread.run_sync(_in_file, file) if file is not None else await _read_catalog(open_settings())
    chosen = [key for key in known if name in (None, key.server, str(key))]
    if name is not None and not chosen:
        raise ToolNotFoundError(f"There is no server or tool {name!r} to scan.", hint="mcpproxy tool list names them.")
    found = await to_thread.run_sync(_scan_tools, known, chosen)
    if json:
        show_json([_to_dict(each) for each in found if each.findings])
    else:
        _show_findings(found)
    return int(fail_on_review and any(each.is_for_review for each in found))


async def _read_catalog(settings: Settings) -> dict[ToolKey, dict[str, Any]]:
    """The catalog's definitions, approved or not."""
    # Here and not above: a file is scanned without a database.
    from smart_mcp_proxy.catalog import open_catalog

    async with open_catalog(settings) as catalog:
        snapshot = catalog.snapshot
        records = [*snapshot.by_id.values(), *(each.record for each in snapshot.withheld.values())]
        records = [record for record in records if ":" not in record.key.server]  # tools, no prompts or resources
        if not records:
            raise add_next_step(
                ProxyError("The catalog holds no tools yet.", hint="Connect the servers once."),
                "mcpproxy tool list --fresh",
            )
        return {record.key: json_text.loads(record.raw) for record in records}


def _in_file(path: Path) -> dict[ToolKey, dict[str, Any]]:
    """The definitions in a file of JSON lines.

    Raises:
        UsageError: It cannot be read, or a line is no definition.
    """
    found = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path} cannot be read: {exc}.") from exc
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json_text.loads(line)
            key = ToolKey(str(row.pop("server", None) or "file"), row["name"])
        except (ValueError, KeyError, AttributeError, TypeError) as exc:
            raise UsageError(f"{path}, line {number} is not a tool definition: a JSON object with a name.") from exc
        if "input_schema" in row:
            row["inputSchema"] = row.pop("input_schema")
        found[key] = row
    return found


def _scan_tools(known: dict[ToolKey, dict[str, Any]], chosen: Sequence[ToolKey]) -> list[Scanned]:
    peers = Peers(PeerTool(key.server, key.tool, str(each.get("description") or "")) for key, each in known.items())
    found = [Scanned(key, scan(key.server, known[key], peers)) for key in sorted(chosen)]
    return sorted(found, key=lambda each: not each.is_for_review)


def _show_findings(found: Sequence[Scanned]) -> None:
    rows = [
        [
            printable(str(each.key)),
            finding.severity,
            finding.check,
            f"{finding.reason} ({finding.place})",
            finding.excerpt,
        ]
        for each in found
        for finding in each.findings
    ]
    if rows:
        show(table(["tool", "severity", "check", "reason", "text"], rows))
    count = sum(each.is_for_review for each in found)
    say(
        f"{plural(len(found), 'tool')} scanned, {count} to review."
        + (" Read one: mcpproxy tool show NAME" if count else "")
    )


def _to_dict(scanned: Scanned) -> dict[str, Any]:
    findings = [asdict(each) for each in scanned.findings]
    return {"name": str(scanned.key), "is_for_review": scanned.is_for_review, "findings": findings}
