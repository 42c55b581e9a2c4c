"""Requests and notifications to a handshake-era client, on its request's stream or outside of any.

Private name used: `ServerSession._request_outbound`.
"""

from collections.abc import Mapping
from typing import Any, Final

import mcp_types
import msgspec
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import Outbound
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import methods as wire_methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec.structs import replace
from pydantic import ValidationError

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.fastmcp_compat.handlers import ClientSession
from smart_mcp_proxy.models import ClientInput

CAPABILITY_OF: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""Capability that a client declares if it can be asked so, by method."""
_CONNECTION_PREFIX: Final = "io.modelcontextprotocol/"
_MESSAGE_CHARS: Final = 300
"""Characters that are repeated of a client's own error message."""
CHANNEL_STATE = "smart_mcp_proxy.line"
"""Key in a connection's own scratch space of the way back to its client."""


def read_input_capabilities(capabilities: object) -> dict[str, Any]:
    """The part of a client's capabilities that names what it can be asked for; empty if none.

    Args:
        capabilities: As the client wrote them, whatever that is.
    """
    declared: Mapping[str, Any] = capabilities if isinstance(capabilities, Mapping) else {}
    found = {name: declared.get(name) for name in CAPABILITY_OF.values()}
    return {name: value for name, value in found.items() if isinstance(value, Mapping)}


class Asking(msgspec.Struct, frozen=True):
    """The way to ask one client, for as long as the request that it waits for is under way.

    Attributes:
        capabilities: What it declared that it can be asked for: elicitation, sampling, roots, as it wrote them.
        protocol_version: That of its session.
        channel: Carries the question; the SDK's side of one request, or of a whole session.
    """

    capabilities: Mapping[str, Any]
    protocol_version: str
    channel: Outbound

    async def ask(self, method: str, params: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The client's result as it sent it. Cancelling the caller, and the deadline, tell the client to stop.

        Args:
            method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
            params: As a server wrote them; what its `_meta` says of its own connection is left out.
            timeout_s: How long the client may take.

        Raises:
            RequestError: It cannot be asked, did not answer in time, or answered with an error or with nonsense.
                Its own error is in `data` as `client_code` and `client_message`.
        """
        try:
            result = await self.channel.send_raw_request(method, _strip_connection_meta(params), {"timeout": timeout_s})
            wire_methods.validate_client_result(method, self.protocol_version, result)
        except NoBackChannelError as exc:
            raise RequestError(
                f"The client cannot be asked for '{method}': its request is answered without a stream.",
                hint="Let it accept text/event-stream.",
                delivery="unknown",
                code="input_unavailable",
            ) from exc
        except MCPError as exc:
            raise _client_error(method, exc, timeout_s) from exc
        except (KeyError, ValidationError) as exc:
            raise RequestError(
                f"What the client answered to '{method}' is not a result that the protocol knows.",
                hint="The client is at fault; the server did not get it.",
                delivery="unknown",
                code="input_failed",
            ) from exc
        return result


def build_client_input(ctx: ServerRequestContext[Any]) -> ClientInput | None:
    """Inputs of this request's client: how to ask it, or its answers; None if it cannot be asked."""
    if ctx.method not in (*wire_methods.INPUT_REQUIRED_METHODS, "tasks/get"):  # a task's questions are in its state
        return None
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        asking = build_request_asking(ctx.session)
        return ClientInput(asking.capabilities, ask=asking.ask) if asking is not None else None
    params = ctx.params or {}
    declared = read_input_capabilities((params.get("_meta") or {}).get(mcp_types.CLIENT_CAPABILITIES_META_KEY))
    responses, state = params.get("inputResponses"), params.get("requestState")
    if not declared and responses is None and state is None:
        return None
    return ClientInput(declared, responses=responses, state=state)


def build_request_asking(session: ServerSession) -> Asking | None:
    """The way to ask the client of this session object; None where it cannot be asked.

    The modern era has no requests to clients, and a reply that is one body has no room for a question.
    """
    if session.protocol_version in MODERN_PROTOCOL_VERSIONS or not session.can_send_request:
        return None
    inputs = _dump_input_capabilities(session.client_capabilities)
    return Asking(inputs, session.protocol_version, session._request_outbound) if inputs else None


def is_askable(connection: Connection) -> bool:
    """Whether the client at the other end declared anything that it can be asked for."""
    return bool(_dump_input_capabilities(connection.client_capabilities))


def _dump_input_capabilities(capabilities: mcp_types.ClientCapabilities | None) -> dict[str, Any]:
    if capabilities is None:
        return {}
    return read_input_capabilities(capabilities.model_dump(by_alias=True, mode="json", exclude_none=True))


def _strip_connection_meta(params: Mapping[str, Any]) -> dict[str, Any]:
    passed = {key: value for key, value in params.items() if key != "_meta"}
    if isinstance(meta := params.get("_meta"), Mapping):
        passed["_meta"] = {
            key: value
            for key, value in meta.items()
            if key != "progressToken" and not key.startswith(_CONNECTION_PREFIX)
        }
    return passed


def _client_error(method: str, exc: MCPError, timeout_s: float) -> RequestError:
    if exc.error.code == mcp_types.REQUEST_TIMEOUT:
        return RequestError(
            f"The client did not answer '{method}' within {timeout_s:.0f} s.",
            hint="Call again when somebody is there to answer.",
            delivery="unknown",
            code="input_timeout",
        )
    return RequestError(
        f"The client answered '{method}' with error {exc.error.code}: {exc.error.message[:_MESSAGE_CHARS]}",
        hint="The server needs this answer to go on; it did not get one.",
        delivery="unknown",
        code="input_failed",
        data={"client_code": exc.error.code, "client_message": exc.error.message[:_MESSAGE_CHARS]},
    )


class ClientChannel(msgspec.Struct, frozen=True):
    """Asks and tells one client.

    Attributes:
        client: What is kept for it while it is connected.
        asking: Asks it, and says what it can be asked for.
    """

    client: ClientSession
    asking: Asking

    def on(self, session: ServerSession) -> "ClientChannel":
        """The same client, on the stream of the request that this session object belongs to."""
        return replace(self, asking=replace(self.asking, channel=session._request_outbound))

    async def ask(self, method: str, params: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The client's result; see `Asking.ask`."""
        return await self.asking.ask(method, params, timeout_s)

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends it a notification; one that cannot be delivered is dropped."""
        await self.asking.channel.notify(method, dict(params))


def find_client_channel(ctx: ServerRequestContext[Any]) -> ClientChannel | None:
    """The way back to the client of this request, on the request's own stream; None in the modern era."""
    standing: ClientChannel | None = ctx.session._connection.state.get(CHANNEL_STATE)
    return standing.on(ctx.session) if standing is not None else None
