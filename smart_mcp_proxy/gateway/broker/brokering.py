"""The HTTP broker: any method of the protocol, for one server, within the caller's reach."""

import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import mcp_types
import msgspec
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS

from smart_mcp_proxy.errors import QuarantinedError, RequestError, UpstreamError
from smart_mcp_proxy.gateway.broker.broker_contents import BrokerContents
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.results.cleaning import clean_message_async, fence_notification
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.shared.refusals import server_off
from smart_mcp_proxy.gateway.visibility.items import unknown_cursor
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest, OnMessage, Principal, ProgressReport, ServerState
from smart_mcp_proxy.servers import ServerConfig, mask_entry
from smart_mcp_proxy.upstream import Fleet

_OF_THE_SESSION: Final = frozenset(
    {
        *("initialize", "server/discover", "logging/setLevel", "subscriptions/listen"),
        *("resources/subscribe", "resources/unsubscribe"),
    }
)
"""They set up or change a session. It is the gateway's own and shared by all callers, so none of them may."""
METHODS: Final = SPEC_CLIENT_METHODS - _OF_THE_SESSION
_SHOWN_CHARS: Final = 100
_CONNECTION_KEYS: Final = frozenset(
    {
        "progressToken",
        mcp_types.PROTOCOL_VERSION_META_KEY,
        mcp_types.CLIENT_INFO_META_KEY,
        mcp_types.CLIENT_CAPABILITIES_META_KEY,
    }
)
"""Keys of `_meta` in which one side speaks of its own connection."""


# Source: docs/design/broker.md#status
class BrokerStatus(msgspec.Struct, rename="camel"):
    """A server as the broker sees it.

    Attributes:
        name: Configured name.
        is_proxy: Whether the broker passes requests to it.
        target_url: Its address with secrets hidden; None where it is a program.
        is_authorized: Whether it has not asked for a sign-in.
        has_token: Whether a credential is sent to it.
        last_proxy_request: When the broker last passed a request to it, RFC 3339; None if it has not.
        proxy_request_count: How many requests it has passed on since the gateway started.
    """

    name: str
    is_proxy: bool
    target_url: str | None
    is_authorized: bool
    has_token: bool
    last_proxy_request: str | None
    proxy_request_count: int


class ConnectionDetails(msgspec.Struct, rename="camel"):
    """A server's address, and when it last answered a request of the broker."""

    target_url: str | None
    last_authorized: str | None


# Source: docs/design/broker.md#connections
class BrokeredConnection(msgspec.Struct, rename="camel"):
    """A row of the list of connections."""

    name: str
    type: str
    is_available: bool
    is_proxy: bool
    proxy_endpoints: list[str]
    details: ConnectionDetails


class Connections(msgspec.Struct):
    """The servers within the caller's reach."""

    connections: list[BrokeredConnection]


class Count(msgspec.Struct):
    """Counts of the broker's requests to one server; times in seconds since the epoch."""

    requests: int = 0
    last_s: float | None = None
    answered_s: float | None = None


class ProxyDisabledError(RequestError):
    """The server is configured, and not for the broker."""

    code = "proxy_disabled"


class BrokerRequest(msgspec.Struct, frozen=True):
    """A request as the broker received it.

    Attributes:
        method: A method of the protocol.
        params: Its parameters.
        on_message: Takes the notifications that come before the answer.
    """

    method: str
    params: Mapping[str, Any]
    on_message: OnMessage


@dataclass(eq=False, repr=False)
class Brokering:
    """Passes requests to servers that are configured with `"proxy": true`.

    Attributes:
        views: What callers may see.
        calls: The one call path.
        fleet: The servers' sessions.
        contents: The servers' prompts and resources.
        lists: Say whether a server's tools are listed.
        is_cleaned: Whether what steers a terminal or hides from the eye is taken out of what servers say meanwhile.
        is_fenced: Whether the text of it is marked as theirs.
        wall: Seconds since the epoch, for what is shown.
    """

    views: Views
    calls: Calls
    fleet: Fleet
    contents: BrokerContents
    lists: ListState
    wall: Callable[[], float] = time.time
    _: KW_ONLY
    is_cleaned: bool = False
    is_fenced: bool = False

    def __post_init__(self) -> None:
        self._counts: dict[str, Count] = {}

    # --- what is shown

    def has_proxy(self, server: str, who: Principal) -> bool:
        """Whether this caller may reach a server of that name through the broker."""
        config = self._visible(who).servers.get(server)
        return config is not None and config.proxy

    def status(self, server: str, who: Principal) -> BrokerStatus:
        """A server at a glance.

        Raises:
            ServerNotFoundError: None of that name is within the caller's reach.
        """
        visible = self._visible(who)
        visible.require_servers([server])
        return _build_broker_status(visible.servers[server], self._state(server), self._count(server))

    def connections(self, who: Principal) -> Connections:
        """The servers within the caller's reach."""
        servers = self._visible(who).servers
        return Connections(
            [_build_broker_connection(config, self._state(name), self._count(name)) for name, config in servers.items()]
        )

    # --- what is passed on

    def accept(self, server: str, method: str, who: Principal) -> None:
        """Passes if a notification of this kind may be sent to the server.

        None is passed on: those of the protocol are about a session, which is the gateway's own.

        Raises:
            RequestError: There is no such server or notification, or the server is not for the broker.
        """
        self._require(server, who)
        if method not in SPEC_CLIENT_NOTIFICATION_METHODS:
            raise _unknown_method(method, SPEC_CLIENT_NOTIFICATION_METHODS)

    async def request(self, server: str, asked: BrokerRequest, who: Principal) -> bytes:
        """The result of a request as JSON text.

        Raises:
            RequestError: There is no such server, tool or method, or the server is not for the broker.
            RefusedError: Policy does not allow it.
            UpstreamError: The server failed, or answered with a JSON-RPC error, which is in `data` then.
        """
        try:
            visible = self._require(server, who)
        except QuarantinedError as refusal:
            raise await self._visible(who).add_analysis(refusal) from None
        if asked.method not in METHODS:
            raise _unknown_method(asked.method, METHODS)
        meta = _meta(asked.params)
        token = meta.get("progressToken")
        heard = _Heard(asked.on_message, token, is_cleaned=self.is_cleaned, is_fenced=self.is_fenced)
        passed_on = {key: value for key, value in meta.items() if key not in _CONNECTION_KEYS}
        caller = Caller(who.id, passed_on, heard.on_progress, on_message=heard.message, is_root=True)
        call = _call(server, asked.params, caller) if asked.method == "tools/call" else None
        count = self._counts[server] = self._count(server)
        count.requests += 1
        count.last_s = self.wall()
        await self._ready(server)
        if call is not None:
            if visible.find(call.name) is None:  # it may be one that is just being listed for the first time
                await self._wait_tools_listed(server)
            result = (await self.calls.call(call, within=visible)).text
        elif asked.method == "tools/list":
            result = await self._tools(server, asked, visible)
        else:
            method = "server/discover" if asked.method == "ping" and self._is_modern(server) else asked.method
            params = {key: value for key, value in asked.params.items() if key != "_meta"}
            result = await self.contents.answer(server, method, params, caller, visible, self.views.reach(who))
        count.answered_s = self.wall()
        return result

    def _require(self, server: str, who: Principal) -> CatalogView:
        visible = self._visible(who)
        visible.require_servers([server])
        config = visible.servers[server]
        if (off := server_off(config)) is not None:
            raise off
        if not config.proxy:
            raise ProxyDisabledError(
                f"MCP server '{server}' is not configured for proxying.",
                hint='Its user can add "proxy": true to its entry.',
            )
        return visible

    def _visible(self, who: Principal) -> CatalogView:
        view = self.views.of("", self.views.reach(who))
        assert view is not None  # the whole catalog has one, whatever the reach
        return view

    async def _tools(self, server: str, asked: BrokerRequest, visible: CatalogView) -> bytes:
        """The server's tools as far as they are approved and visible, in one page."""
        if asked.params.get("cursor"):
            raise unknown_cursor()
        await self._wait_tools_listed(server)
        return msgspec.json.encode({"tools": [msgspec.Raw(record.raw) for record in visible.of_server(server)]})

    async def _wait_tools_listed(self, server: str) -> None:
        """Passes when the server's tools are listed, or their listing has failed.

        Raises:
            UpstreamError: The server is no longer connected.
        """
        while not self.lists.is_done(server):
            await self._ready(server)
            await self.lists.wait_changed()

    async def _ready(self, server: str) -> None:
        """Passes when the server is connected.

        Raises:
            UpstreamError: It is not, and will not be soon.
        """
        upstream = self.fleet.upstreams.get(server)
        if upstream is None:  # removed from the configuration a moment ago
            raise UpstreamError(
                f"Server '{server}' is no longer configured.", hint="Its user can add it again; use another one."
            )
        if not await upstream.ready(upstream.config.limits.patience_s):
            raise await self.calls.clean_for_caller(upstream.not_ready())

    def _is_modern(self, server: str) -> bool:
        upstream = self.fleet.upstreams.get(server)
        return upstream is not None and upstream.status.era == "modern"

    def _count(self, server: str) -> Count:
        return self._counts.get(server) or Count()

    def _state(self, server: str) -> ServerState:
        upstream = self.fleet.upstreams.get(server)
        return upstream.status.state if upstream is not None else ServerState.DISCONNECTED


class _Notification(msgspec.Struct):
    method: str
    params: dict[str, Any] = msgspec.field(default_factory=dict)


_notification = msgspec.json.Decoder(_Notification)


class _Heard:
    """Relays messages that a server sends during a request to its caller.

    Args:
        say: Tells the caller.
        token: The caller's name for the request's progress; None where it wants none.
        is_cleaned: Whether it is cleaned like a result.
        is_fenced: Whether it is fenced like one.
    """

    def __init__(self, say: OnMessage, token: Any, *, is_cleaned: bool, is_fenced: bool) -> None:
        self._say = say
        self._token = token
        self._is_cleaned = is_cleaned
        self._is_fenced = is_fenced
        self.on_progress = self._progress if token is not None else None

    async def message(self, text: bytes) -> None:
        """Passes a notification on; progress under the caller's token."""
        try:
            told = _notification.decode(text)
            params = await clean_message_async(told.params, len(text), is_cleaned=self._is_cleaned)
            params = fence_notification(params) if self._is_fenced else params
        except (msgspec.DecodeError, RecursionError):  # its parameters are none: not worth a failed request
            return
        if told.method == "notifications/progress":
            if self._token is None:
                return
            params["progressToken"] = self._token
        await self._say(msgspec.json.encode({"jsonrpc": "2.0", "method": told.method, "params": params}))

    async def _progress(self, report: ProgressReport) -> None:
        params = report.build_params(self._token)  # cleaned on its way here, as for every caller
        message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        await self._say(msgspec.json.encode(message))


def _call(server: str, params: Mapping[str, Any], caller: Caller) -> CallRequest:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or not name:
        raise RequestError("tools/call names no tool.", hint='Send params: {"name": "...", "arguments": {}}.')
    if arguments is not None and not isinstance(arguments, dict):
        raise RequestError("The arguments are no object.", hint='Send params: {"name": "...", "arguments": {}}.')
    return CallRequest(
        name=f"{server}:{name}",
        arguments=arguments or {},
        variant=None,
        is_checked=False,
        keeps_uris=True,
        principal=caller.principal,
        meta=caller.meta,
        on_progress=caller.on_progress,
        on_message=caller.on_message,
        is_root=True,
    )


def _meta(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    if meta is None:
        return {}
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not (token is None or type(token) in (int, str)):
        raise RequestError("The '_meta' of params is not what the protocol has.", hint="Leave it out.")
    return meta


def _unknown_method(method: str, known: frozenset[str]) -> RequestError:
    reason = "sets up a session, which is the gateway's own" if method in _OF_THE_SESSION else "is not known"
    return RequestError(
        f"The method {method[:_SHOWN_CHARS]!r} {reason}.",
        hint=f"Known here: {', '.join(sorted(known))}.",
        code="method_not_allowed",
    )


def _build_broker_status(config: ServerConfig, state: ServerState, count: Count) -> BrokerStatus:
    """A server at a glance."""
    is_authorized = state is not ServerState.NEEDS_AUTH
    sends_header = any(name.lower() == "authorization" for name in config.headers)
    return BrokerStatus(
        name=config.name,
        is_proxy=config.proxy,
        target_url=_address(config),
        is_authorized=is_authorized,
        has_token=sends_header or (config.oauth is not None and is_authorized),
        last_proxy_request=_moment(count.last_s),
        proxy_request_count=count.requests,
    )


def _build_broker_connection(config: ServerConfig, state: ServerState, count: Count) -> BrokeredConnection:
    """A server's row in the list of connections."""
    return BrokeredConnection(
        name=config.name,
        type="mcp-server",
        is_available=state is ServerState.READY,
        is_proxy=config.proxy,
        proxy_endpoints=[f"/api/mcp/{quote(config.name)}/proxy"] if config.proxy else [],
        details=ConnectionDetails(_address(config), _moment(count.answered_s)),
    )


def _address(config: ServerConfig) -> str | None:
    return str(mask_entry({"url": config.url})["url"]) if config.url else None


def _moment(at_s: float | None) -> str | None:
    if at_s is None:
        return None
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
