"""The places of the page, a module each: what they show, and the actions of their forms."""

from smart_mcp_proxy.web.page.places import (
    activity,
    clients,
    overview,
    search_lab,
    servers,
    settings,
    sign_ins,
    tools,
    waiting,
)
from smart_mcp_proxy.web.page.visit import PageRoute

PLACES: tuple[PageRoute, ...] = (
    *overview.PLACES,
    *waiting.PLACES,
    *search_lab.PLACES,
    *servers.PLACES,
    *sign_ins.PLACES,
    *tools.PLACES,
    *activity.PLACES,
    *clients.PLACES,
    *settings.PLACES,
)
