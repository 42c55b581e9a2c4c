"""Saved: the tokens that agents were spared, over time."""

from typing import Final

from starlette.responses import Response

from smart_mcp_proxy.web.page.place import Place
from smart_mcp_proxy.web.page.visit import Visit

__all__ = ["PLACES"]


async def _show(visit: Visit) -> Response:
    return await visit.page("saved.html")


PLACES: Final = (Place("GET", "/saved", _show),)
