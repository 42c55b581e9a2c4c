"""REST: one-time links that let a browser in to the page."""

import msgspec
from starlette.requests import Request

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.web.rest.route import Endpoint, get_author, get_operator_digest


class LinkView(msgspec.Struct, frozen=True):
    """A link that opens the page once, and how long it is good."""

    url: str
    expires_in_s: float


async def _make(gateway: Gateway, request: Request) -> LinkView:
    link = await gateway.admin.page_sessions.make_link(get_author(request), get_operator_digest(request))
    return LinkView(link.url, link.expires_in_s)


ROUTES = (Endpoint("POST", "/page/links", _make, "Makes a link that opens the page in one browser, once.", LinkView),)
