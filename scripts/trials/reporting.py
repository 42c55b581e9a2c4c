"""The report of what was tried: one row a server, and the page that shows them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import find_refusals
from smart_mcp_proxy.upstream.protocol.server_log import find_reason
from smart_mcp_proxy.upstream.stdio.remedies import find_remedy
from trials.servers import PublishedServer

LANGUAGES = {"npm": "JavaScript", "pypi": "Python"}
RUNNERS = {"npm": ("npx", "-y"), "pypi": ("uvx",)}
OUTCOMES = {
    "same": "the same alone and through the gateway",
    "allowed": "up through the gateway once its sandbox allows what the hint names",
    "different": "definitions that differ",
    "through": "up alone and not through the gateway",
    "fails": "not up either way with nothing but dummies",
    "missing": "not installed",
}
UP = {"same", "different", "allowed"}
_PLACES = re.compile(r"\S*/atlas-\w+/[^/\s]+/(?:installed/)?")
_ENVIRONMENT = re.compile(r"/tmp/[^\s'\"]+/|/root/[^\s'\"]+/")
_CAUSE_CHARS = 160
_REMEDY_CHARS = 400
_LOGS = re.compile(r"\s*(?:It is asked again every \d+ s\. )?See what it printed: mcpproxy server logs [\w.-]+")
"""In a hint that says no more."""
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
| answers otherwise | the harmless call has another result each time, so the two were not compared |
| refused in a call | the harmless call fails in its sandbox, as its result says or the hint of the gateway |
| lists otherwise | its definitions are other ones at each start: only what changed waits for approval |
| kept from | its sandbox keeps it from that: its state names the command that allows it, which was carried out |
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
        "install_s": seen.get("install_s"),
        "listed_s": alone.get("listed_s"),
        "protocol": alone.get("protocol"),
        "dialects": sorted({_name_dialect(tool) for tool in alone.get("tools", ())} - {""}),
        "differences": [_shorten(each) for each in through.get("differences", ())][:5],
        "same_result": through.get("same_result"),
        "varies": alone.get("varies", False),
        "refused": through.get("same_result") is False and _names_refusal(through.get("result", {})),
        "rank": through.get("rank"),
        "followed": _shorten(through.get("followed", ""), _REMEDY_CHARS),
        "review": len(seen.get("findings", ())),
        "other_lines": len(alone.get("other_lines", ())),
        "ending": [alone[key][part] for key in ("ending",) for part in ("by", "seconds") if alone.get(key)],
        "left": [alone.get("left", []), through.get("left", [])],
        "asked": alone.get("asked", {}),
        "cause": _shorten(_tell_cause(seen)),
        "remedy": _shorten(_tell_remedy(server, seen), _REMEDY_CHARS),
    }
    told = {key: value for key, value in row.items() if value not in (None, [], {}, "", [[], []])}
    return {key: value for key, value in told.items() if value is not False or key == "same_result"}


_IN_SANDBOX = "It runs in a sandbox"


def _names_refusal(result: Mapping[str, Any]) -> bool:
    """Whether the system refused something to a server, by the text of its result."""
    texts = [each.get("text", "") for each in result.get("content", ())]
    return any(_IN_SANDBOX in text or find_refusals(text.splitlines()) for text in texts)


def _judge(seen: Mapping[str, Any]) -> str:
    if "not_installed" in seen:
        return "missing"
    is_up = seen.get("through", {}).get("state") == "ready"
    if "failure" in seen["alone"]:
        return "fails"
    if is_up and seen["through"].get("followed"):
        return "allowed"
    return "through" if not is_up else "different" if seen["through"].get("differences") else "same"


def _tell_cause(seen: Mapping[str, Any]) -> str:
    """Why a server is not up: in the gateway's words, else in its own or its installer's."""
    alone, through = seen.get("alone", {}), seen.get("through", {})
    written = seen.get("not_installed") or alone.get("stderr", "")
    if through.get("state") == "ready" and "failure" not in alone:
        return ""
    error: str = through.get("error") or find_reason(written.splitlines()) or alone.get("failure", "")
    return error


def _tell_remedy(server: PublishedServer, seen: Mapping[str, Any]) -> str:
    """The gateway's hint for an entry that starts this server from its registry, on what it wrote here."""
    if _judge(seen) in UP:
        return ""
    lines = (seen.get("not_installed") or seen["alone"].get("stderr", "")).splitlines()
    command, *first = RUNNERS[server.ecosystem]
    args = (*first, server.package, *server.arguments)
    entry = ServerConfig(server.name, "stdio", command=command, args=args, env=dict(server.variables))
    said = _LOGS.sub("", seen.get("through", {}).get("hint", ""))
    return find_remedy(entry, find_reason(lines), lines) or said


def _name_dialect(tool: Mapping[str, Any]) -> str:
    """`draft-07` or `2020-12`, where the input schema says it."""
    dialect = str((tool.get("inputSchema") or {}).get("$schema", ""))
    found = re.search(r"draft-\d+|20\d\d-\d\d", dialect)
    return found[0] if found else ""


def _shorten(text: str, limit_chars: int = _CAUSE_CHARS) -> str:
    said = " ".join(_ENVIRONMENT.sub("", _PLACES.sub("", text)).split())
    return said if len(said) <= limit_chars else f"{said[: limit_chars - 4]} ..."


def draw_page(report: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of a report."""
    up = [row for row in report.values() if row["outcome"] in UP]
    rest = [row for row in report.values() if row["outcome"] not in UP]
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
        _sum_up(up),
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


def _sum_up(rows: Sequence[Mapping[str, Any]]) -> str:
    """Words on results, searches and disk."""
    same = [row["same_result"] for row in rows if "same_result" in row]
    ranks = [row["rank"] for row in rows if "rank" in row]
    size_gb = sum(row.get("size_mb", 0) for row in rows) / 1000
    return (
        f"{sum(same)} of {len(same)} calls gave the same result. A question in plain words found its tool first "
        f"in {ranks.count(1)} of {len(ranks)} searches among the tools of eight servers, and among the first five in "
        f"{sum(0 < rank <= 5 for rank in ranks)}. Installed, those that came up take {size_gb:.1f} GB."
    )


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
    return ["| server | why | what the gateway says helps |", "|---|---|---|"] + [
        f"| `{row['package']}` {row['version']} | {row.get('cause', 'It does not answer.').replace('|', '/')} "
        f"| {row.get('remedy', '').replace('|', '/')} |"
        for row in sorted(rows, key=lambda row: row["package"])
    ]


def _code(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


def _name_need(followed: str) -> str:
    """The end of the command that opened the sandbox."""
    return " ".join(followed.split()[3:])


def _describe(row: Mapping[str, Any]) -> str:
    """What a server does that others do not."""
    by, _ = row.get("ending", ("", 0))
    said = {
        "other lines": row.get("other_lines"),
        "outlives its input": by.startswith("SIG"),
        f"leaves processes ({', '.join(row.get('left', [[]])[0])})": row.get("left", [[]])[0],
        "answers otherwise": row.get("varies"),
        "refused in a call": row.get("refused"),
        "lists otherwise": row.get("differences"),
        f"kept from ({_name_need(row.get('followed', ''))})": row.get("followed"),
        f"asks ({', '.join(row.get('asked', ()))})": row.get("asked"),
        f"review: {row.get('review')}": row.get("review"),
    }
    return ", ".join(words for words, is_so in said.items() if is_so)


def write_report(table: Sequence[PublishedServer], results: Path, report: Path, page: Path) -> None:
    """Write the rows of all servers that were tried, and the page.

    A row that an earlier run has reported of the same version stays.
    """
    before = json.loads(report.read_text("utf-8")) if report.exists() else {}
    rows = {}
    for server in table:
        path = results / f"{server.name}.json"
        if path.exists():
            rows[server.name] = summarize(server, json.loads(path.read_text("utf-8")))
        elif before.get(server.name, {}).get("version") == server.version:
            rows[server.name] = before[server.name]
    lines = (f" {json.dumps(name)}: {json.dumps(rows[name], ensure_ascii=False)}" for name in sorted(rows))
    report.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    page.write_text(draw_page(json.loads(report.read_text("utf-8"))), "utf-8")
