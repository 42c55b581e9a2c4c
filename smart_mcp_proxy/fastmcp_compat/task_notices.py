"""Notifications of tasks on a `subscriptions/listen` stream, which the SDK knows nothing of.

Private name used: `ServerSession._request_outbound`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final, cast

import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.exceptions import MCPError

from smart_mcp_proxy.extensions import TASKS
from smart_mcp_proxy.models import Principal

Following = Callable[
    [str, Principal, Sequence[str], Callable[[Mapping[str, Any]], Awaitable[None]]],
    AbstractAsyncContextManager[Sequence[str]],
]
"""Looks at tasks for as long as it is open: path, principal, ids, and who is told of each state. Gives those that will
be told of."""
IDS_KEY: Final = "taskIds"
MISSING_CAPABILITY: Final = -32021


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
