"""Tables of servers, tools and search answers for a terminal."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.text import Text

from smart_mcp_proxy.cli.support.output import clean, format_waiting_count, say, table, warn
from smart_mcp_proxy.cli.support.tables import Table
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import explain_isolation
from smart_mcp_proxy.telemetry import printable

_STATE_STYLES = {"ready": "green", "error": "red", "needs_env": "red", "needs_auth": "yellow", "disabled": "dim"}
_USED_BY = ("name", "uri", "uri_template")
_FIELD_NAMES = {"exact": "exact name", "clones": "same as"}


def state_text(state: str) -> Text:
    """A server's state, colored where that is possible."""
    return Text(state, style=_STATE_STYLES.get(state, "yellow"))


def servers_table(servers: Iterable[Mapping[str, Any]]) -> Table:
    """Servers with state, number of tools, and what is wrong."""
    rows = [
        [
            server["name"],
            server["transport"],
            state_text(server["state"]),
            f"{server['tools']:,}",
            server.get("isolation", ""),  # a gateway of an earlier version does not say it
            " ".join(filter(None, (server["error"], server["hint"], format_waiting_hint(server), _remark_own(server))))
            or server["server_info"],
        ]
        for server in servers
    ]
    return table(["server", "transport", "state", "tools#", "isolation", "remarks"], rows)


def _remark_own(server: Mapping[str, Any]) -> str:
    """Say why each client has its own process of a server; empty where clients share one."""
    reason = server.get("separation")  # a gateway of an earlier version does not say it
    return f"It {reason}: each client has its own process; 'connection': 'shared' has one." if reason else ""


def format_waiting_hint(server: Mapping[str, Any]) -> str:
    """Number of a server's waiting tools and the command that shows them; empty without any."""
    count = server.get("waiting", 0)  # a gateway of an earlier version does not say it
    if not count:
        return ""
    return f"{format_waiting_count(count)}: mcpproxy approve {shell_word(server['name'])} --diff"


def say_isolation(page: Mapping[str, Any]) -> None:
    """Tell people how a server is held and what it may reach; with your rights, that is a warning."""
    mode = page.get("isolation", "")  # a gateway of an earlier version does not say it
    if words := explain_isolation(mode, page.get("reach"), page.get("config")):
        told = f"{page['name']}: {words}"
        warn(told) if mode == "none" else say(told)


def tools_table(tools: Iterable[Mapping[str, Any]]) -> Table:
    """Tools with their parameters and what they do."""
    rows = [[printable(tool["name"]), printable(tool["signature"]), tool["description"]] for tool in tools]
    return table(["tool", "parameters", "description"], rows)


def hits_table(answer: Mapping[str, Any], *, is_explained: bool) -> Table:
    """Table of a search's hits, best first, with reasons or descriptions."""
    rows = [
        [
            str(place),
            printable(str(tool["name"]).removeprefix(f"{tool['server']}:")),
            tool["server"],
            f"{tool['score']:.2f}",
            _why(tool["why"]) if is_explained else tool["description"],
        ]
        for place, tool in enumerate(answer["tools"], start=1)
    ]
    return table(["##", "tool", "server", "score#", "why" if is_explained else "description"], rows)


def build_standing_rows(answer: Mapping[str, Any]) -> list[list[str]]:
    """Rows of a searched tool's numbers: rank, score against the cut, fitness against the floors."""
    top, floors = answer["top"], answer["floors"]
    if top is None:
        return []
    best = f"best is {printable(top['name'])} with {top['score']:.2f}"
    numbers = {
        "place": f"{answer['place'] or 'none'} (limit {answer['limit']})",
        "rank": str(answer["rank"] or "none"),
        "score": f"{answer['score']:.2f} (cut {answer['cut']:.2f}, {best})",
        "fitness": f"{answer['fitness']:.2f} of the best (floors {floors['lower']:g} and {floors['upper']:g})",
        "matched": _why(answer["why"]) or "nothing",
    }
    return [*map(list, numbers.items())]


def tabulate_all_hits(answer: Mapping[str, Any], *, is_explained: bool) -> Table:
    """Table of a search's hits of all types, best first, with reasons or descriptions."""
    rows = [
        [
            str(place),
            entry["kind"],
            printable(next(entry[member] for member in _USED_BY if member in entry)),
            f"{entry['score']:.2f}",
            _why(entry["why"]) if is_explained else entry["description"] or entry.get("title", ""),
        ]
        for place, entry in enumerate(answer["found"], start=1)
    ]
    return table(["##", "type", "name or URI", "score#", "why" if is_explained else "description"], rows)


def tokens_line(answer: Mapping[str, Any]) -> str:
    """Tokens that the answer saves against listing every tool."""
    catalog, sent = answer["tokens"]["catalog"], answer["tokens"]["sent"]
    saving = f"{1 - sent / catalog:.1%} less, " if catalog > sent else ""
    return (
        f"Listing every tool costs about {catalog:,} tokens; this answer about {sent:,} "
        f"({saving}estimate: UTF-8 bytes / 4)."
    )


def build_waiting_remarks(answer: Mapping[str, Any]) -> list[str]:
    """A line for each tool that fits and waits with a changed definition; it goes above the others."""
    rows = answer.get("waiting", ())  # a gateway of an earlier version names none
    return [clean(f"{row['name']} fits and has changed since you approved it: {row['approve']}") for row in rows]


def search_remarks(answer: Mapping[str, Any], *, is_stored: bool) -> list[str]:
    """Remarks on an answer: nothing found, servers left out, a worse engine than asked for."""
    remarks = []
    if answer.get("found") == []:
        remarks.append("Nothing of these types fits.")
    elif not answer["tools"] and "found" not in answer and not answer.get("waiting"):
        remarks.append(answer["hint"])
        if near := ", ".join(f"{miss['name']} ({miss['score']:.2f})" for miss in answer["near_misses"]):
            remarks.append(f"Closest: {near}")
    if answer.get("found_confidence" if "found" in answer else "confidence") == "low":
        remarks.append("It is not certain that one of these fits.")
    more = {row["name"]: row["signature"] for row in answer.get("more", ())}  # an earlier version names none
    if more and "found" not in answer:
        remarks.append("More that fit: " + ", ".join(f"{name}{signature}" for name, signature in more.items()))
    remarks += [
        f"Left out: {tool['name']} ({tool['score']:.2f}), {tool['reason']}"
        for tool in answer.get("left_out", ())
        if tool["name"] not in more
    ]
    if answer["not_covered"] and not is_stored:
        remarks.append("Not covered: " + ", ".join(map(_describe_uncovered, answer["not_covered"])))
    remarks += answer["degraded"]
    return [clean(remark) for remark in remarks]


def _describe_uncovered(row: Mapping[str, str]) -> str:
    """A server that an answer does not cover, with its state and what is known of why."""
    return f"{row['server']} ({row['state']}{': ' + row['reason'] if 'reason' in row else ''})"


def _why(why: Mapping[str, Any]) -> str:
    """`name: create, issue · description: repository`."""
    matched = why.get("matched", {})
    parts = [f"{field}: {', '.join(words)}" for field, words in matched.items()]
    for fact, name in _FIELD_NAMES.items():
        if fact in why:
            value = why[fact]
            parts.insert(0, f"{name}: {', '.join(value) if isinstance(value, list) else value}")
    return " · ".join(parts)
