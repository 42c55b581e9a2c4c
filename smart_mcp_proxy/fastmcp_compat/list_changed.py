"""Notifications of changed lists, resources and tasks: the one place, for both eras.

A modern client hears it on a `subscriptions/listen` stream it has opened, a client of the handshake era on its pipe,
or on the stream that it keeps open with a GET. Of tasks the SDK knows nothing.

Private name used: `ServerSession._request_outbound`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final, Literal, cast

import anyio
import mcp_types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from smart_mcp_proxy.events import Event
from smart_mcp_proxy.extensions import TASKS
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.models import Principal

ContentGroup = Literal["prompts", "resources"]
"""Lists that are announced as one besides the tools; templates belong to the resources."""
_EVENTS: Mapping[str, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}

Watching = Callable[
    [str, Principal, Sequence[str], Callable[[str], Awaitable[None]]], AbstractAsyncContextManager[Sequence[str]]
]
"""Subscribes to resources for as long as it is open: path, principal, URIs, and who is to be told of each that changes.
Gives those that will be told of."""

MAX_STREAMS = 1_024
"""At one path on behalf of one principal: the SDK's own limit."""
SEND_S = 5.0
"""A client that does not read for this long misses the announcement; it holds up nobody else."""
Following = Callable[
    [str, Principal, Sequence[str], Callable[[Mapping[str, Any]], Awaitable[None]]],
    AbstractAsyncContextManager[Sequence[str]],
]
"""Look at tasks for as long as it is open: path, principal, ids, and a receiver of each state. Gives those that the
receiver will hear of."""
IDS_KEY: Final = "taskIds"
MISSING_CAPABILITY: Final = -32021


@asynccontextmanager
async def watch_nothing(
    path: str, whose: Principal, uris: Sequence[str], tell: Callable[[str], Awaitable[None]]
) -> AsyncIterator[Sequence[str]]:
    """Watch nothing: there are no resources here."""
    yield ()


@dataclass(eq=False, repr=False)
class ListChangedHub:
    """The modern clients of one gateway that want to know when the list at their path changes.

    Attributes:
        is_announcing: Whether a list can change as things are; each client is told so when it connects.
            `subscriptions/listen` is answered either way.
        on_listen: Told of a path and a principal when the first client listens there on its behalf.
        on_leave: Told of them when the last one has left.
        watching: Subscribes to the resources that a client names.
        following: Looks at the tasks that a client names; None where there are none.
    """

    _: KW_ONLY
    is_announcing: Callable[[], bool]
    on_listen: Callable[[str, Principal], None]
    on_leave: Callable[[str, Principal], None]
    watching: Watching = watch_nothing
    following: Following | None = None

    def __post_init__(self) -> None:
        self._listeners: dict[tuple[str, Principal], _Listeners] = {}
        self.listened: Event[str, Principal] = Event()
        """Tells of a path and a principal when the first client listens there on its behalf."""
        self.listened.subscribe(self.on_listen)

    @property
    def places(self) -> tuple[tuple[str, Principal], ...]:
        """Paths with listeners, with their principals."""
        return tuple(self._listeners)

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths with listeners."""
        return tuple(dict.fromkeys(path for path, _ in self._listeners))

    async def announce(self, path: str, whose: Principal, group: Literal["tools"] | ContentGroup = "tools") -> None:
        """Tells every client that listens at `path` on behalf of `whose` once."""
        if (listeners := self._listeners.get((path, whose))) is not None:
            await listeners.bus.publish(_EVENTS[group]())

    def close(self) -> None:
        """Ends all subscriptions in good order."""
        for listeners in self._listeners.values():
            for handler in (listeners.handler, *listeners.watchers):
                handler.close()

    async def listen(
        self, ctx: ServerRequestContext[Any, Any], params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        """Answers `subscriptions/listen`."""
        task_ids = read_task_ids(ctx, params.notifications)
        place = get_request_path(), principal()
        listeners = self._listeners.get(place)
        if listeners is None:
            self.listened(*place)
            listeners = self._listeners[place] = _Listeners()
        listeners.count += 1
        try:
            if task_ids and self.following is not None:
                opened = asyncio.Event()
                async with self.following(*place, task_ids, teller(ctx, opened)) as agreed:
                    return await self._serve(listeners, place, add_task_acknowledgement(ctx, agreed, opened), params)
            return await self._serve(listeners, place, ctx, params)
        finally:
            listeners.count -= 1
            if not listeners.count:
                del self._listeners[place]
                self.on_leave(*place)

    async def _serve(
        self,
        listeners: "_Listeners",
        place: tuple[str, Principal],
        ctx: ServerRequestContext[Any, Any],
        params: mcp_types.SubscriptionsListenRequestParams,
    ) -> mcp_types.SubscriptionsListenResult:
        if not params.notifications.resource_subscriptions:
            return await listeners.handler(ctx, params)
        if len(listeners.watchers) >= MAX_STREAMS:
            raise MCPError(mcp_types.INTERNAL_ERROR, f"{MAX_STREAMS} streams are open, the most there can. End one.")
        bus, wanted = _StreamBus(listeners.bus), params.notifications
        handler = ListenHandler(bus)
        async with self.watching(*place, wanted.resource_subscriptions or (), bus.tell) as agreed:
            honored = wanted.model_copy(update={"resource_subscriptions": [*agreed]})
            listeners.watchers.add(handler)
            try:
                return await handler(ctx, params.model_copy(update={"notifications": honored}))
            finally:
                listeners.watchers.discard(handler)


class _Listeners:
    """Listeners at one path, on behalf of one principal."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.handler = ListenHandler(self.bus)
        self.watchers: set[ListenHandler] = set()
        """One for each stream that tells of single resources."""
        self.count = 0


class _StreamBus(InMemorySubscriptionBus):
    """Notifications of single resources for one stream, beside those of its path.

    Args:
        place: What all are told.
    """

    def __init__(self, place: InMemorySubscriptionBus) -> None:
        super().__init__()
        self._place = place

    async def tell(self, uri: str) -> None:
        """Send `resources/updated` to this one stream."""
        await self.publish(ResourceUpdated(uri))

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Begins to tell; what it returns ends that."""
        ends = super().subscribe(listener), self._place.subscribe(listener)

        def end() -> None:
            for each in ends:
                each()

        return end


async def tell(connection: Connection, group: Literal["tools"] | ContentGroup = "tools", uri: str = "") -> None:
    """Send `list_changed` to one handshake-era client, or `resources/updated` where there is a URI."""
    if not connection.initialized.is_set():
        return
    with anyio.move_on_after(SEND_S):
        if uri:
            await connection.send_resource_updated(uri)
        elif group == "tools":
            await connection.send_tool_list_changed()
        elif group == "prompts":
            await connection.send_prompt_list_changed()
        else:
            await connection.send_resource_list_changed()


def read_task_ids(ctx: ServerRequestContext[Any, Any], wanted: mcp_types.SubscriptionFilter) -> list[str]:
    """The tasks that a client wants to hear of; empty for none.

    Raises:
        MCPError: Its request does not declare the extension, or names no ids.
    """
    ids = (wanted.model_extra or {}).get(IDS_KEY)
    if ids is None:
        return []
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise MCPError(mcp_types.INVALID_PARAMS, f"{IDS_KEY} is no list of texts.")
    meta = (ctx.params or {}).get("_meta") or {}
    declared = (meta.get(mcp_types.CLIENT_CAPABILITIES_META_KEY) or {}).get("extensions") or {}
    if TASKS not in declared:
        required: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise MCPError(MISSING_CAPABILITY, "Missing required client capability: the extension for tasks.", required)
    return ids


class _Acknowledging:
    """A session that names tasks in its acknowledgement.

    Args:
        session: The SDK's.
        agreed: Ids of tasks.
        opened: Set once it is sent: nothing comes before it.
    """

    def __init__(self, session: ServerSession, agreed: Sequence[str], opened: asyncio.Event) -> None:
        self._session = session
        self._agreed = agreed
        self._opened = opened

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Send what the SDK sends, the acknowledgement with what it left out."""
        if isinstance(notification, mcp_types.SubscriptionsAcknowledgedNotification):
            filter_ = notification.params.notifications
            named = mcp_types.SubscriptionFilter.model_validate(
                {**filter_.model_dump(by_alias=True, exclude_none=True), IDS_KEY: list(self._agreed)}
            )
            params = notification.params.model_copy(update={"notifications": named})
            notification = notification.model_copy(update={"params": params})
        await self._session.send_notification(notification, related_request_id=related_request_id)
        self._opened.set()


def add_task_acknowledgement(
    ctx: ServerRequestContext[Any, Any], agreed: Sequence[str], opened: asyncio.Event
) -> ServerRequestContext[Any, Any]:
    """The same request, on a session that names tasks in its acknowledgement."""
    return replace(ctx, session=cast(ServerSession, _Acknowledging(ctx.session, agreed, opened)))


def teller(
    ctx: ServerRequestContext[Any, Any], opened: asyncio.Event
) -> Callable[[Mapping[str, Any]], Awaitable[None]]:
    """Sends the state of a task on the stream of a request, once the stream is acknowledged."""

    async def tell(state: Mapping[str, Any]) -> None:
        await opened.wait()
        meta = {**(state.get("_meta") or {}), SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        await ctx.session._request_outbound.notify("notifications/tasks", {**state, "_meta": meta})

    return tell
