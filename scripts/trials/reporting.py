"""The report of what was tried: one row a server, and the page that shows them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trials.servers import PublishedServer

LANGUAGES = {"npm": "JavaScript", "pypi": "Python"}
OUTCOMES = {
    "same": "the same alone and through the gateway",
    "different": "definitions that differ",
    "through": "up alone and not through the gateway",
    "fails": "not up either way with nothing but dummies",
    "missing": "not installed",
}
_PLACES = re.compile(r"\S*/atlas-\w+/[^/\s]+/(?:installed/)?")
_ENVIRONMENT = re.compile(r"/tmp/[^\s'\"]+/|/root/[^\s'\"]+/")
_CAUSE_CHARS = 160
_INTRODUCTION = """\
# Servers that were tried

Published servers, in the versions below, each with an empty home and dummy credentials, without a network, started
alone and through one gateway. Definitions were compared field by field, the result of one harmless call byte for byte.
`make atlas` runs it anew and writes this page.

What a server does that others do not stands beside it, in these words:

| words | what the gateway does |
|---|---|
| other lines | it writes lines on its output that are no messages: they are left out, and stand in its log |
| outlives its input | it does not end with its input: it gets SIGTERM, then SIGKILL |
| leaves processes | what it started goes on after it: the gateway ends the whole group |
| lists otherwise | its definitions are other ones at each start: only what changed waits for approval |
| asks | it asks its client for something (roots, for example): the gateway answers for clients that cannot |
| review | that many of its definitions would be shown to a person first (`mcpproxy scan`) |
"""


def summarize(server: PublishedServer, seen: Mapping[str, Any]) -> dict[str, Any]:
    """One server's row: what holds of it, without the folders that it was tried in."""
    alone, through = seen.get("alone", {}), seen.get("through", {})
    row = {
        "package": server.package,
        "version": server.version,
        "language": server.language.capitalize() or LANGUAGES[server.ecosystem],
        "outcome": _judge(seen),
        "tools": len(alone.get("tools", ())),
        "needs": sorted(server.variables) if alone.get("bare") else [],
        "size_mb": seen.get("size_mb"),
        "listed_s": alone.get("listed_s"),
        "protocol": alone.get("protocol"),
        "dialects": sorted({_name_dialect(tool) for tool in alone.get("tools", ())} - {""}),
        "differences": [_shorten(each) for each in through.get("differences", ())][:5],
        "same_result": through.get("same_result"),
        "rank": through.get("rank"),
        "review": len(seen.get("findings", ())),
        "other_lines": len(alone.get("other_lines", ())),
        "ending": [alone[key][part] for key in ("ending",) for part in ("by", "seconds") if alone.get(key)],
        "left": [alone.get("left", []), through.get("left", [])],
        "asked": alone.get("asked", {}),
        "cause": _shorten(through.get("error") or seen.get("not_installed") or alone.get("failure") or ""),
    }
    return {key: value for key, value in row.items() if value not in (None, [], {}, "", [[], []])}


def _judge(seen: Mapping[str, Any]) -> str:
    if "not_installed" in seen:
        return "missing"
    is_up = seen.get("through", {}).get("state") == "ready"
    if "failure" in seen["alone"]:
        return "fails"
    return "through" if not is_up else "different" if seen["through"].get("differences") else "same"


def _name_dialect(tool: Mapping[str, Any]) -> str:
    """`draft-07` or `2020-12`, where the input schema says it."""
    dialect = str((tool.get("inputSchema") or {}).get("$schema", ""))
    found = re.search(r"draft-\d+|20\d\d-\d\d", dialect)
    return found[0] if found else ""


def _shorten(text: str) -> str:
    said = " ".join(_ENVIRONMENT.sub("", _PLACES.sub("", text)).split())
    return said if len(said) <= _CAUSE_CHARS else f"{said[: _CAUSE_CHARS - 4]} ..."


def draw_page(report: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of a report."""
    up = [row for row in report.values() if row["outcome"] in {"same", "different"}]
    rest = [row for row in report.values() if row["outcome"] not in {"same", "different"}]
    counts = "; ".join(
        f"{count} {words}"
        for outcome, words in OUTCOMES.items()
        if (count := sum(row["outcome"] == outcome for row in report.values()))
    )
    languages = sorted({row["language"] for row in report.values()})
    spoken = ", ".join(f"{sum(row['language'] == each for row in report.values())} {each}" for each in languages)
    tools = sum(row.get("tools", 0) for row in up)
    total = f"{len(report)} servers were tried ({spoken}): {counts}. Those that came up list {tools:,} tools."
    parts = [
        _INTRODUCTION,
        total,
        "",
        "## Up",
        "",
        *_draw_up(up),
        "",
        "## Not up with dummies alone",
        "",
        *_draw_rest(rest),
    ]
    return "\n".join(parts) + "\n"


def _draw_up(rows: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    head = [
        "| server | tools | needs | first list | installed | protocol | schemas | remarks |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return head + [
        f"| `{row['package']}` {row['version']} | {row.get('tools', 0)} | {_code(row.get('needs', ()))} "
        f"| {row.get('listed_s', 0)} s | {row.get('size_mb', 0):.0f} MB | {row['protocol']} "
        f"| {', '.join(row.get('dialects', ()))} "
        f"| {_describe(row)} |"
        for row in sorted(rows, key=lambda row: row["package"])
    ]


def _draw_rest(rows: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    return ["| server | what the gateway says of it |", "|---|---|"] + [
        f"| `{row['package']}` {row['version']} | {row.get('cause', 'It does not answer.').replace('|', '/')} |"
        for row in sorted(rows, key=lambda row: row["package"])
    ]


def _code(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


def _describe(row: Mapping[str, Any]) -> str:
    """What a server does that others do not."""
    by, _ = row.get("ending", ("", 0))
    said = {
        "other lines": row.get("other_lines"),
        "outlives its input": by.startswith("SIG"),
        f"leaves processes ({', '.join(row.get('left', [[]])[0])})": row.get("left", [[]])[0],
        "lists otherwise": row.get("differences"),
        f"asks ({', '.join(row.get('asked', ()))})": row.get("asked"),
        f"review: {row.get('review')}": row.get("review"),
    }
    return ", ".join(words for words, is_so in said.items() if is_so)


def write_report(table: Sequence[PublishedServer], results: Path, report: Path, page: Path) -> None:
    """Write the rows of all servers that were tried, and the page."""
    rows = {}
    for server in table:
        path = results / f"{server.name}.json"
        if path.exists():
            rows[server.name] = summarize(server, json.loads(path.read_text("utf-8")))
    lines = (f" {json.dumps(name)}: {json.dumps(rows[name], ensure_ascii=False)}" for name in sorted(rows))
    report.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    page.write_text(draw_page(json.loads(report.read_text("utf-8"))), "utf-8")
