"""A route of the REST interface, and what its handlers share."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from smart_mcp_proxy.errors import CatalogError, ProxyError, RefusedError, RequestError, UnverifiedError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin import roles
from smart_mcp_proxy.servers import Author
from smart_mcp_proxy.web.common import messages

PREFIX = "/api/v1"
COMMAND_LINE = "command line"
"""Session of a person's own searches and calls: theirs teach, but not together with an agent's."""

Answer = Callable[[Request], Awaitable[Response]]
Admit = Callable[[Request, roles.RoleOperation], Awaitable[roles.Admitted | None]]
"""Returns who sends a request, None for an unknown one where no role is needed; raises for one not let in."""
BodyT = TypeVar("BodyT")
SWITCH = ("false", "true")
"""Words of a parameter that turns something on, the one without it first."""
PLACES_MOST = 10_000_000
"""Most places of a list: more than any catalog holds."""
_DIGITS = 20
"""Most digits of a number in a query; the largest that any route takes has 19."""


class Parameter(NamedTuple):
    """A parameter of the query: what it means, the JSON schema of its value, and whether it must be there."""

    meaning: str
    schema: Mapping[str, Any]
    is_required: bool = False


def build_choice_parameter(meaning: str, known: Sequence[str]) -> Parameter:
    """A parameter whose value is one of these words."""
    return Parameter(meaning, {"enum": list(known)})


def whole_number(meaning: str, least: int, most: int) -> Parameter:
    """A parameter whose value is an integer in this range."""
    return Parameter(meaning, {"type": "integer", "minimum": least, "maximum": most})


_ON_ANY_REQUEST: tuple[type[ProxyError], ...] = (
    RefusedError,
    RequestError,
    messages.UnsupportedTypeError,
    CatalogError,
    UnverifiedError,
)
"""Any request may be refused for its Origin, a parameter that the route has not, or the type of its body, and meet a
gateway that cannot read its store."""


class Endpoint(NamedTuple):
    """Row of the table of REST endpoints.

    Attributes:
        method: HTTP method.
        path: Below the prefix, with Starlette's parameters.
        handler: Its answer is JSON text, or what is encoded as JSON; a `ProxyError` becomes an error answer.
        summary: What it does, in a line.
        answer: Type of the answer, for the description that programs read.
        body: Type of the request's body; None where it has none.
        query: Parameters of the query by name; of one that is any text, what it means is enough.
        failures: What the handler itself may answer with, besides what its body, its query and the authorizer refuse.
        media_type: Of the answer; of one that is not JSON the handler's is a whole response.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Callable[[Gateway, Request], Awaitable[Any]]
    summary: str
    answer: Any = dict[str, Any]
    body: Any = None
    query: Mapping[str, str | Parameter] = {}
    failures: tuple[type[ProxyError], ...] = ()
    media_type: str = messages.JSON_TYPE

    @property
    def operation(self) -> roles.RoleOperation:
        """The row that says who may use it; on the private socket the owner may do everything.

        Raises:
            KeyError: The table has none.
        """
        return roles.REST[f"{self.method} {self.path}"]

    @property
    def failure_statuses(self) -> Sequence[int]:
        """The HTTP statuses of everything that may go wrong, in order."""
        kinds = {*self.failures, *_ON_ANY_REQUEST}
        if not self.operation.is_open:
            kinds.add(messages.UnauthorizedError)
        if self.body is not None:
            kinds.add(messages.TooLargeError)
        return sorted({HTTPStatus.MISDIRECTED_REQUEST, *(kind.http_status for kind in kinds)})

    def bind_handler(self, gateway: Gateway, admit: Admit) -> Answer:
        """Bind a route's handler to this gateway."""

        operation = self.operation

        async def answer(request: Request) -> Response:
            try:
                request.state.admitted = admitted = await admit(request, operation)
                roles.require_role(None if admitted is None else admitted.role, operation)
                self._require_known(request)
                request.state.body_limit_bytes = gateway.settings.max_message_bytes
                value = await self.handler(gateway, request)
            except ProxyError as error:
                return messages.json_response({"error": error.to_dict()}, error)
            except ClientDisconnect:  # before its request was whole: nobody hears this
                return Response(status_code=400)
            return value if isinstance(value, Response) else messages.json_response(value)

        return answer

    def _require_known(self, request: Request) -> None:
        """Require that the route knows every parameter of the query.

        An ignored one may be a misspelt guard of the request.

        Raises:
            RequestError: It has not.
        """
        for name in request.query_params:
            if name not in self.query:
                known = ", ".join(self.query) or "none"
                raise RequestError(f"{name[:40]!r} is not a parameter of this route.", hint=f"It takes: {known}.")


def get_author(request: Request) -> Author:
    """Return the author of an admitted request; an unknown one has the rights of an agent."""
    admitted: roles.Admitted | None = request.state.admitted
    return "agent" if admitted is None else admitted.author


def get_admitted(request: Request) -> roles.Admitted:
    """Return who sends an admitted request, where a role is needed."""
    admitted: roles.Admitted = request.state.admitted
    return admitted


def get_principal(request: Request) -> str:
    """Return the id of a signed-in sender for records; empty for the gateway's user and their token."""
    who = get_admitted(request).principal
    return "" if who is None else who.id


def get_operator_digest(request: Request) -> bytes | None:
    """The digest of another gateway's operator token, if an admitted request came with that."""
    digest: bytes | None = getattr(request.state, "operator", None)
    return digest


async def decode_body(request: Request, kind: type[BodyT]) -> BodyT:
    """The request's JSON body.

    Raises:
        RequestError: It is of another form, or longer than a message may be.
    """
    text = await messages.read_body(request, request.state.body_limit_bytes, "Raise MCPPROXY_MAX_MESSAGE_BYTES.")
    if not text:
        raise RequestError("The body is empty.", hint=_fields_hint(kind))
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise RequestError(f"The body is not what this route takes: {exc}.", hint=_fields_hint(kind)) from exc


def _fields_hint(kind: type[Any]) -> str:
    words = (f"{field.name} (required)" if field.required else field.name for field in msgspec.structs.fields(kind))
    return f"Send a JSON object with: {', '.join(words)}. /openapi.json describes them."


def integer(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A query parameter between `least` and `most`.

    Raises:
        RequestError: It is something else.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    is_short = len(text) <= _DIGITS  # more of them are not even read
    if not (is_short and text.isascii() and text.isdigit()) or not least <= int(text) <= most:
        raise RequestError(f"{name} is {text[:40]!r}.", hint=f"Use an integer from {least} to {most}.")
    return int(text)


def choice(request: Request, name: str, known: Sequence[str]) -> str:
    """A query parameter that is one of these words; the first where it is not given.

    Raises:
        RequestError: It is something else.
    """
    text = request.query_params.get(name, known[0])
    if text not in known:
        raise RequestError(f"{name} is {text[:40]!r}.", hint=f"Use one of: {', '.join(known)}.")
    return text
