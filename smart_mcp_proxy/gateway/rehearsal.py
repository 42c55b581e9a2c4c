"""The SDK's answers to a connecting client, obtained without one, for the next start."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION
from msgspec import structs

from smart_mcp_proxy import __version__
from smart_mcp_proxy.fastmcp_compat.eras import serve_streams
from smart_mcp_proxy.fastmcp_compat.handlers import ClientSession, Inbound
from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient
from smart_mcp_proxy.fastmcp_compat.server import AgentServer, dump_message, message_streams, parse_message
from smart_mcp_proxy.gateway.gateway import Gateway
from smart_mcp_proxy.gateway.results.results import SERVER_NAME
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.gateway.sessions.content_handlers import ContentHandlers
from smart_mcp_proxy.models import ContentKind
from smart_mcp_proxy.names import shelf
from smart_mcp_proxy.telemetry import spawn

_CLIENT = {"name": "rehearsal", "version": __version__}
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": LATEST_MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": _CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_HEAD = b'{"jsonrpc":"2.0","id":0,"result":'


class Rehearsal:
    """Asks a local server for the answers that a client of each version gets at the next start.

    Args:
        gateway: Open. No session is opened on it, and it does not hear of these requests.
        is_whole: Whether a client meets all servers under the gateway's own tools.
    """

    def __init__(self, gateway: Gateway, *, is_whole: bool = True) -> None:
        self.name = SERVER_NAME
        self._gateway = gateway
        self._is_whole = is_whole
        at_start = cast(Any, _AtStart(gateway))
        requests = gateway.requests
        contents = ContentHandlers(requests.content_lookup, at_start, at_start, requests.asks, requests.subscriptions)
        heard, gateways = _Unheard(gateway.agent), gateway.upstreams.fleet.gateways
        self._server = AgentServer(
            SERVER_NAME, __version__, heard, contents=contents, clients=requests.clients, gateways=gateways
        )

    async def answers(self) -> dict[str, dict[str, str]]:
        """The results as JSON, by method, and in each by version of the protocol.

        The list of tools only where it needs nothing but the settings.
        """
        settings, views = self._gateway.settings, self._gateway.lists.views
        has_list = self._is_whole and settings.list_all_below_tokens == 0 and not views.is_pinning
        modern = {"_meta": _ENVELOPE}
        greetings, listed = {}, {}
        async with _open_rehearsal_client(self._server) as asked:
            discovered = {LATEST_MODERN_VERSION: await asked("server/discover", modern)}
            if has_list:
                listed[LATEST_MODERN_VERSION] = await asked("tools/list", modern)
        for version in HANDSHAKE_PROTOCOL_VERSIONS:
            async with _open_rehearsal_client(self._server) as asked:
                hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": _CLIENT}
                greetings[version] = await asked("initialize", hello)
                if has_list:
                    listed[version] = await asked("tools/list", {})
        known = {"initialize": greetings, "server/discover": discovered, "tools/list": listed}
        answered = {method: {key: text for key, text in each.items() if text} for method, each in known.items()}
        return {method: each for method, each in answered.items() if each}


class _AtStart:
    """Servers, prompts and resources as at a start: stored, and nobody connected.

    Args:
        gateway: Its fleet and catalog are read.
    """

    def __init__(self, gateway: Gateway) -> None:
        self.upstreams = {
            each.name: SimpleNamespace(name=each.name, capabilities={}, is_ready=False)
            for each in gateway.upstreams.fleet
        }
        self.catalog = gateway.catalog

    def is_expected(self, server: str, kind: ContentKind) -> bool:
        """Whether nobody knows yet if the server has any."""
        return self.catalog.last_sync_s(shelf(server, kind)) is None


class _NoSession:
    """Kept for nobody."""

    def listens(self) -> None:
        """Send no notifications."""

    def close(self) -> None:
        """Nothing was opened."""


class _Unheard:
    """Answers like the agent, which does not notice.

    Args:
        agent: Answers, and is told of no session.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.list_changes = agent.list_changes

    def instructions(self) -> str:
        """As the agent."""
        return self._agent.instructions()

    def open_session(self, client: HandshakeClient) -> ClientSession:
        """Nothing is kept."""
        return _NoSession()

    async def list_tools(self, inbound: Inbound) -> dict[str, Any]:
        """As the agent, to a client that has just connected."""
        return await self._agent.list_tools(structs.replace(inbound, session=None))

    async def call_tool(self, inbound: Inbound) -> dict[str, Any]:
        """Reject: a rehearsal calls no tools."""
        raise NotImplementedError

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return None: a rehearsal calls no tools, so no schema is needed."""
        return None

    def first_answered(self) -> None:
        """Ignore it: a rehearsal answers no client."""


@asynccontextmanager
async def _open_rehearsal_client(server: AgentServer) -> AsyncIterator[Callable[..., Any]]:
    """Asks a connection of its own, and gives the result's JSON."""
    send, server_reads = message_streams()
    server_writes, receive = message_streams()
    serving = spawn(serve_streams(server, server_reads, server_writes), "rehearsal")

    async def ask(method: str, params: Mapping[str, Any]) -> str:
        request = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        await send.send(parse_message(msgspec.json.encode(request)))
        line = dump_message(await receive.receive())
        return line.removeprefix(_HEAD)[:-1].decode() if line.startswith(_HEAD) else ""  # an error is none to keep

    try:
        yield ask
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        for stream in (send, receive, server_reads, server_writes):
            stream.close()
