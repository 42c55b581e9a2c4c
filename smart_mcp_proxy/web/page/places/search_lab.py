"""Search lab: the answer an agent would get, why, where it was cut, and why a tool is not in it."""

from typing import Any, Final

from starlette.responses import Response

from smart_mcp_proxy.web.page.operations import OperationError
from smart_mcp_proxy.web.page.visit import PageRoute, PageVisit


async def _show_search_lab(visit: PageVisit) -> Response:
    query, name = visit.read_parameter("q").strip(), visit.read_parameter("why_not").strip()
    asked: dict[str, Any] = {
        "q": query,
        "server": [name for name in visit.request.query_params.getlist("server") if name] or None,
        "read_only": visit.read_parameter("read_only") or None,
        "profile": visit.read_parameter("profile") or None,
        "limit": visit.read_parameter("limit") or None,
    }
    answer = standing = problem = None
    try:
        if query:
            answer = await visit.ask("GET", "search", asked | {"why": "true"})
        if query and name:
            standing = await visit.ask("GET", "search", asked | {"why_not": name})
    except OperationError as error:
        problem = error
    profiles = await visit.ask("GET", "profiles")
    return await visit.page(
        "search_lab.html",
        problem,
        asked=asked,
        name=name,
        answer=answer,
        standing=standing,
        profiles=[each["name"] for each in profiles],
    )


PLACES: Final = (PageRoute("GET", "/search", _show_search_lab),)
