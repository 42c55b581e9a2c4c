"""A row of the page's table of routes."""

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from starlette.responses import Response
from starlette.types import ASGIApp

from smart_mcp_proxy.web.page.visit import PageVisit


class DisplayLimits(NamedTuple):
    """Limits of what a place shows of a definition; the rest is counted.

    Attributes:
        fields: Of its fields.
        path: Characters of a field's path.
        text: Characters of a run of words.
    """

    fields: int
    path: int
    text: int


class PageRoute(NamedTuple):
    """A place that is shown, or an action that a form asks for.

    Attributes:
        method: GET for places, POST for actions.
        path: Below `/ui`.
        handler: Answers; a `ProxyError` becomes a page that says it.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[PageVisit], Awaitable[Response | ASGIApp]]
