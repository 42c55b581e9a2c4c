"""Settings: the values in force, and their origin."""

from typing import Final

from starlette.responses import Response

from smart_mcp_proxy.web.page.visit import PageRoute, PageVisit


async def _show_settings(visit: PageVisit) -> Response:
    found = await visit.ask("GET", "settings")
    config = await visit.ask("GET", "config")
    given = [one for one in found if one["origin"] != "default"]
    others = [one for one in found if one["origin"] == "default"]
    return await visit.page("settings.html", given=given, others=others, config=config)


PLACES: Final = (PageRoute("GET", "/settings", _show_settings),)
