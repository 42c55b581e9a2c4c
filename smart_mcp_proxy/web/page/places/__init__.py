"""The places of the page, a module each: what they show, and the actions of their forms."""

from smart_mcp_proxy.web.page.places import activity, clients, needs_you, saved, search_lab, servers, settings, tools
from smart_mcp_proxy.web.page.visit import PageRoute

PLACES: tuple[PageRoute, ...] = (
    *needs_you.PLACES,
    *search_lab.PLACES,
    *servers.PLACES,
    *tools.PLACES,
    *activity.PLACES,
    *clients.PLACES,
    *saved.PLACES,
    *settings.PLACES,
)
