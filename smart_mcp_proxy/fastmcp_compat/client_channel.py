"""Back-channel to a handshake-era client, on a request's stream or outside of any.

Private name used: `ServerSession._request_outbound`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession

from smart_mcp_proxy.fastmcp_compat.asking import Asking, read_input_capabilities
from smart_mcp_proxy.fastmcp_compat.handlers import ClientSession

_STATE = "smart_mcp_proxy.line"
"""Where a connection's own scratch space holds the way back to its client."""


@dataclass(frozen=True, slots=True)
class ClientChannel:
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


def build_connection_asking(connection: Connection, capabilities: Mapping[str, Any]) -> Asking:
    """The way to ask a client outside of its requests.

    Args:
        connection: The client's.
        capabilities: What it declared in its `initialize`, as it wrote them.
    """
    return Asking(read_input_capabilities(capabilities), connection.protocol_version, connection.outbound)


def keep_client_channel(connection: Connection, line: ClientChannel) -> None:
    """Remembers the way back to the client of a connection for as long as it lasts."""
    connection.state[_STATE] = line


def find_client_channel(ctx: ServerRequestContext[Any]) -> ClientChannel | None:
    """The way back to the client of this request, on the request's own stream; None in the modern era."""
    standing: ClientChannel | None = ctx.session._connection.state.get(_STATE)
    return standing.on(ctx.session) if standing is not None else None
