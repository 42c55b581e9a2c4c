"""Tools: definitions, the history of their approvals, what was learned of them, and trying them."""

from typing import Any, Final

from starlette.responses import Response

from smart_mcp_proxy.errors import ProxyError, RequestError
from smart_mcp_proxy.web.page.arguments import Field, build_form_fields, parse_form_arguments
from smart_mcp_proxy.web.page.operations import OperationError, part
from smart_mcp_proxy.web.page.visit import DisplayLimits, Form, PageRoute, PageVisit

SHOWN: Final = 50
HISTORY: Final = 20
LIMITS: Final = DisplayLimits(fields=1_000, path=2_000, text=100_000)
"""Limits on a definition on its own page: far more than one that is meant to be read."""
STATES: Final = ("all", "visible", "withheld")


async def _list(visit: PageVisit) -> Response:
    start = visit.number("offset")
    wanted = visit.read_parameters(("server", "name", "state"))
    query = wanted | {"offset": start, "limit": SHOWN}
    found, problem = await visit.try_ask("listing", query, {"total": 0, "items": []})
    return await visit.page("tools.html", problem, found=found, wanted=wanted, start=start, limit=SHOWN, states=STATES)


async def _show_tool(visit: PageVisit) -> Response:
    return await _build_page(visit, visit.read_parameter("name"), Form([]))


async def _build_page(
    visit: PageVisit, name: str, form: Form, *, result: dict[str, Any] | None = None, problem: ProxyError | None = None
) -> Response:
    """A tool's page, also of one that is withheld."""
    tool: dict[str, Any] | None = None
    waiting: dict[str, Any] = {}
    try:
        tool = await visit.ask("GET", f"tools/{part(name)}")
    except OperationError as error:
        try:
            waiting = await visit.ask("GET", f"approvals/{part(name)}")
        except OperationError:
            raise error from None
    canonical = tool["name"] if tool is not None else waiting["approval"]["name"]
    history = await visit.ask("GET", "activity", {"kind": "approval", "tool": canonical, "limit": HISTORY})
    return await visit.page(
        "tool.html",
        problem,
        name=canonical,
        tool=tool,
        waiting=waiting,
        history=history["items"],
        fields=() if tool is None else build_form_fields(tool.get("input_schema")),
        form=form,
        result=result,
        limits=LIMITS,
    )


async def _call(visit: PageVisit, form: Form) -> Response:
    name = form.text("name")
    tool = await visit.ask("GET", f"tools/{part(name)}")
    fields: tuple[Field, ...] = build_form_fields(tool.get("input_schema"))
    try:
        body = {"name": name, "arguments": parse_form_arguments(form, fields)}
        result = await visit.ask("POST", "call", body=body)
    except (OperationError, RequestError) as error:
        return await _build_page(visit, name, form, problem=error)
    return await _build_page(visit, name, form, result=result)


async def _forget(visit: PageVisit, form: Form) -> Response:
    query = {"tool": form.text("name") or None, "question": form.text("question") or None}
    if query["tool"] is None:
        raise RequestError("The form names no tool.", hint="Reload the page.")
    done = await visit.ask("DELETE", "examples", query)
    return visit.go_back(form, f"Forgot {done['forgotten']} learned.", default="/ui/tools")


PLACES: Final = (
    PageRoute("GET", "/tools", _list),
    PageRoute("GET", "/tool", _show_tool),
    PageRoute("POST", "/tool/call", _call),
    PageRoute("POST", "/tool/forget", _forget),
)
