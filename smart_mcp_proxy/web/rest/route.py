"""A route of the REST interface, and what its handlers share."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smart_mcp_proxy.errors import ProxyError, RequestError
from smart_mcp_proxy.gateway import Gateway

__all__ = ["COMMAND_LINE", "PREFIX", "Endpoint", "integer"]

PREFIX = "/api/v1"
COMMAND_LINE = "command line"
"""Session of a person's own searches and calls: theirs teach, but not together with an agent's."""


class Endpoint(NamedTuple):
    """One row of the table.

    Attributes:
        method: HTTP method.
        path: Below the prefix, with Starlette's parameters.
        handler: Its answer is JSON text, or what is encoded as JSON; a `ProxyError` becomes an error answer.
        summary: What it does, in a line.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Callable[[Gateway, Request], Awaitable[Any]]
    summary: str

    def bound_to(self, gateway: Gateway) -> Route:
        """The route that answers for this gateway."""

        async def answer(request: Request) -> Response:
            try:
                value, status = await self.handler(gateway, request), 200
            except ProxyError as error:
                value, status = {"error": error.to_dict()}, error.http_status
            body = value if isinstance(value, bytes) else msgspec.json.encode(value)
            return Response(body, status_code=status, media_type="application/json")

        return Route(PREFIX + self.path, answer, methods=[self.method])


def integer(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A query parameter between `least` and `most`.

    Raises:
        RequestError: It is something else.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise RequestError(f"{name} is {text[:40]!r}.", hint=f"Use an integer from {least} to {most}.")
    return int(text)
