"""Authorisation of REST: the owner of a private socket everything, the network by token."""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from anyio import to_thread
from starlette.requests import Request
from starlette.types import Scope

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.doors import OperatorDoors
from smart_mcp_proxy.gateway.admin.roles import OWNER, Admitted, RoleOperation
from smart_mcp_proxy.models import Principal
from smart_mcp_proxy.secrets.sealing import SecretKey
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.web.auth.token_files import load_or_create_token
from smart_mcp_proxy.web.common.forwarded import find_connected
from smart_mcp_proxy.web.common.messages import UnauthorizedError, require_json
from smart_mcp_proxy.web.rest.route import Admit

TOKEN_FILE = "operator.token"
Check = Callable[[Scope], Awaitable[Principal | None]]
"""Says who sends a request, as agents are known; None for nobody."""


log = get_logger("rest")


def build_socket_admit(doors: OperatorDoors) -> Admit:
    """Build the check of a socket that only the gateway's owner can open: servers are not admitted."""

    async def admit(request: Request, operation: RoleOperation) -> Admitted | None:
        doors.check_peer(request.state.peer)
        return OWNER

    return admit


class NetworkAuthorizer:
    """REST on an address that every local program can reach, agents and browsers included.

    Args:
        operator: The operator's token.
        doors: Refuses processes of servers.
        others: The digests of those of other gateways on the store.
        check: Says whose another token is.

    Attributes:
        operator: The same.
        others: The same.
    """

    def __init__(
        self,
        operator: str,
        doors: OperatorDoors,
        others: Callable[[], Collection[bytes]] = tuple,
        check: Check | None = None,
    ) -> None:
        self.operator = operator.encode()
        self.others = others
        self._check = check
        self._doors = doors

    async def admit(self, request: Request, operation: RoleOperation) -> Admitted | None:
        """Return who has the operator's token, or one with a role, else nobody where the route allows it.

        Raises:
            ProxyError: The token is missing, wrong or sent by a server, or a body is no JSON.
        """
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        token = sent.strip().encode() if scheme.lower() == "bearer" else b""
        is_operator = hmac.compare_digest(token, self.operator)
        if not is_operator and token and (digest := hashlib.sha256(token).digest()) in self.others():
            request.state.operator = digest
            is_operator = True
        who = None if is_operator or not token or self._check is None else await self._check(request.scope)
        admitted = Admitted("web") if is_operator else None
        if who is not None and (who.role is not None or operation.is_own):
            admitted = Admitted("web", who.role, who)
        if admitted is None and not operation.is_open:
            raise UnauthorizedError(
                "The token sent is not the operator's, and has no role."
                if token
                else "This needs the operator's token.",
                hint=f"Send 'Authorization: Bearer TOKEN' with what the data directory's {TOKEN_FILE} holds.",
            )
        _require_json(request)
        if admitted is not None:
            await self._doors.check_connection(find_connected(request.scope), request.scope["server"])
        return admitted


def _require_json(request: Request) -> None:
    """Passes if the request has no body, or one that says it is JSON."""
    headers = request.headers
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if has_body or "content-type" in headers:
        require_json(request)


def operator_token(settings: Settings) -> str:
    """The operator's token: of the settings, or of the data directory, made at first use.

    Gateways with a common secret key have the same one in theirs. One that others could have read proves nothing any
    more: there is a new one.

    Source: docs/design/processes.md#the-operators-token

    Raises:
        ConfigError: The file cannot be read or made.
    """
    if settings.operator_token is not None:
        return settings.operator_token.get_secret_value()
    secret = SecretKey.of(settings)
    given = None if secret is None else secret.token("operator")
    hint = "Remove it, or check who may read it."
    return load_or_create_token(settings.data_dir / TOKEN_FILE, hint=hint, replaces_unfit=True, given=given).value


async def open_authorizer(gateway: Gateway, check: Check) -> NetworkAuthorizer:
    """Open the operator's REST by the stored token; without a data directory it stays closed."""
    try:
        token = await to_thread.run_sync(operator_token, gateway.settings)
    except ConfigError as exc:
        log.warning("servers cannot be managed over HTTP: %s", exc)
        token = secrets.token_urlsafe()
    others = partial(gateway.admin.agent_tokens.of_gateways.digests, "operator")
    return NetworkAuthorizer(token, gateway.admin.doors, others, check)
