"""Servers: their states, entries and logs; adding, editing, restarting and signing in."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from starlette.responses import Response

from smart_mcp_proxy.errors import ProxyError, RequestError
from smart_mcp_proxy.gateway.activity.stats import GROUPS_LIMIT
from smart_mcp_proxy.servers import explain_isolation, warnings_about
from smart_mcp_proxy.web.page.arguments import parse_typed_json
from smart_mcp_proxy.web.page.hidden import has_hidden
from smart_mcp_proxy.web.page.operations import OperationError, part
from smart_mcp_proxy.web.page.plots import SPANS, build_sparkline, collect_values, list_starts
from smart_mcp_proxy.web.page.visit import Form, PageRoute, PageVisit, is_troubled

LOG_LINES: Final = 100
NEW_ENTRY: Final = '{\n  "url": "https://example.com/mcp"\n}'
SPAN: Final = SPANS["day"]
SORTS: Final = {"name": "name", "calls": "calls", "errors": "share of errors", "p95_ms": "duration"}
NO_FIGURES: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
_ALL_LATENCY: Final = {"limit": GROUPS_LIMIT, "latency": "true"}
_LATER: Final = 5
"""Rank of servers that need nobody, behind the kinds of those that do."""
_OPERATIONS: Final = ("restart", "refresh", "enable", "disable", "approve")
_WITH_REVISION: Final = ("enable", "disable", "approve")


async def _list(visit: PageVisit) -> Response:
    wanted = visit.read_parameters(("name", "state", "sort"))
    servers = (await visit.read_status())["servers"]
    stats = await visit.ask("GET", "stats", {"by": "server", "since": SPAN.since, "bucket": SPAN.bucket} | _ALL_LATENCY)
    own, _ = await visit.try_ask("sign-ins", {}, {"sign_ins": []})
    figures = _collect_figures(stats)
    chosen = [
        each
        for each in servers
        if wanted.get("name", "").casefold() in each["name"].casefold()
        and wanted.get("state", each["state"]) == each["state"]
    ]
    return await visit.page(
        "servers.html",
        wanted=wanted,
        servers=sort_servers(chosen, figures, wanted.get("sort", "")),
        figures=figures,
        states=sorted({each["state"] for each in servers}),
        sorts=SORTS,
        time=SPAN.words,
        own=bool(own["sign_ins"]),
    )


def sort_servers(
    servers: Sequence[Mapping[str, Any]], figures: Mapping[str, Mapping[str, Any]] = NO_FIGURES, order: str = ""
) -> list[Mapping[str, Any]]:
    """Sort servers: those that need somebody first, or by one of `SORTS`, the largest figure first."""
    by_name = sorted(servers, key=lambda each: str(each["name"]))
    if order in SORTS and order != "name":
        return sorted(by_name, key=lambda each: -(figures.get(each["name"], {}).get(order) or 0))
    return by_name if order == "name" else sorted(by_name, key=_rank_trouble)


def _rank_trouble(server: Mapping[str, Any]) -> int:
    if is_troubled(server):
        return ("error", "needs_env", "needs_auth", "quarantined", server["state"]).index(server["state"])
    if server["breaker"] != "closed" or server["waiting"]:
        return _LATER
    return _LATER + {"ready": 2, "disabled": 3}.get(server["state"], 1)


def _collect_figures(stats: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Figures of each server that was called, with its small curves of calls and of durations."""
    starts = list_starts(datetime.fromisoformat(stats["until"]), SPAN)
    found: dict[str, dict[str, Any]] = {}
    for group in stats["groups"]:
        spans = [each for each in stats["buckets"] if each["name"] == group["name"]]
        calls = [each or 0 for each in collect_values(spans, "calls", starts)]
        took = collect_values(spans, "p95_ms", starts)
        found[group["name"]] = group | {
            "errors": group["failed"] / group["calls"] if group["calls"] else 0.0,
            "calls_path": build_sparkline(calls, max(calls)),
            "took_path": build_sparkline(took, max((each for each in took if each is not None), default=0)),
        }
    return found


async def _show_server(visit: PageVisit) -> Response:
    return await _show(visit, visit.read_parameter("name"))


async def _show(visit: PageVisit, name: str, *, text: str | None = None, problem: ProxyError | None = None) -> Response:
    server = await visit.ask("GET", f"servers/{part(name)}", {"review": "true"})
    # What is in the file and not in force has no logs.
    found, _ = await visit.try_ask(f"servers/{part(name)}/logs", {"lines": LOG_LINES}, {"lines": []})
    logs = found["lines"]
    tools = await visit.ask("GET", "listing", {"server": name, "limit": 1}) if logs or server["tools"] else None
    can_sign_in = server["transport"] != "stdio"
    sign_in = await visit.ask("GET", f"servers/{part(name)}/login") if can_sign_in else None
    return await visit.page(
        "server.html",
        problem,
        server=server,
        warnings=warnings_about(server["config"]),
        held=explain_isolation(server["isolation"], server["reach"], server["config"]),
        sign_in=sign_in,
        logs=logs,
        tools=tools,
        entry=_format_server_entry(server["config"]) if text is None else text,
    )


async def _operate(visit: PageVisit, form: Form) -> Response:
    name, operation = form.text("name"), form.text("operation")
    if operation not in _OPERATIONS:
        raise RequestError(f"{operation[:40]!r} is nothing that is done with a server.", hint="Reload the page.")
    revision = (form.text("revision") or None) if operation in _WITH_REVISION else None
    done = await visit.ask("POST", f"servers/{part(name)}/{operation}", {"revision": revision})
    return visit.go_back(form, _format_note(done), default=f"/ui/server?name={part(name)}")


async def _remove(visit: PageVisit, form: Form) -> Response:
    name = form.text("name")
    done = await visit.ask("DELETE", f"servers/{part(name)}", {"revision": form.text("revision") or None})
    return visit.go_to("/ui/servers", _format_note(done))


async def _edit(visit: PageVisit, form: Form) -> Response:
    name, text = form.text("name"), form.text("entry")
    try:
        body = {"config": _parse_entry(text), "revision": form.text("revision") or None}
        done = await visit.ask("PUT", f"servers/{part(name)}", body=body)
    except (OperationError, RequestError) as error:
        return await _show(visit, name, text=text, problem=error)
    return visit.go_to(f"/ui/server?name={part(name)}", _format_note(done))


async def _begin_login(visit: PageVisit, form: Form) -> Response:
    name = form.text("name")
    begun = await visit.ask("POST", f"servers/{part(name)}/login")
    note = "" if begun["state"] == "waiting" else "Signed in." if begun["state"] == "done" else begun["problem"]
    return visit.go_to(f"/ui/server?name={part(name)}#sign-in", note, is_bad=begun["state"] == "failed")


async def _finish(visit: PageVisit, form: Form) -> Response:
    name = form.text("name")
    await visit.ask("POST", f"servers/{part(name)}/login/address", body={"address": form.text("address")})
    return visit.go_to(f"/ui/server?name={part(name)}", "Taken. The gateway signs in now.")


async def _show_form(visit: PageVisit) -> Response:
    return await visit.page("new_server.html", name="", entry=NEW_ENTRY)


async def _add(visit: PageVisit, form: Form) -> Response:
    name, text = form.text("name").strip(), form.text("entry")
    try:
        done = await visit.ask("POST", "servers", body={"name": name, "config": _parse_entry(text)})
    except (OperationError, RequestError) as error:
        return await visit.page("new_server.html", error, name=name, entry=text)
    return visit.go_to(f"/ui/server?name={part(done['name'])}", _format_note(done))


def _format_server_entry(config: dict[str, Any]) -> str:
    """An entry to edit; where it hides something every character beyond ASCII is written out."""
    text = json.dumps(config, indent=2, ensure_ascii=False)
    return json.dumps(config, indent=2) if has_hidden(text) else text


def _parse_entry(text: str) -> dict[str, Any]:
    """A server's entry.

    Raises:
        RequestError: The text is no JSON object.
    """
    value = parse_typed_json("The entry", text, "Write it as a server file has it.")
    if not isinstance(value, dict):
        raise RequestError("The entry is no object.", hint='Write it as {"url": ...} or {"command": ...}.')
    return value


def _format_note(done: dict[str, Any]) -> str:
    return " ".join([done["message"], *done["warnings"]])


PLACES: Final = (
    PageRoute("GET", "/servers", _list),
    PageRoute("GET", "/server", _show_server),
    PageRoute("POST", "/server/operate", _operate),
    PageRoute("POST", "/server/remove", _remove),
    PageRoute("POST", "/server/edit", _edit),
    PageRoute("POST", "/server/login", _begin_login),
    PageRoute("POST", "/server/login/address", _finish),
    PageRoute("GET", "/servers/new", _show_form),
    PageRoute("POST", "/servers/add", _add),
)
