"""The broker's methods besides tools: approved prompts and resources, and ping."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.calls.requests import ContentRequest, ContentRequests
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.sessions.content_handlers import LISTS
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.items import Target
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ContentKind, Reach

_COMPLETING: Final = '{"ref": {"type": "ref/prompt", "name": "..."}, "argument": {"name": "...", "value": ""}}.'
_PINGS: Final = frozenset({"ping", "server/discover"})
"""Requests that ask a server whether it is there, in the words of either era; the answer is that of a ping."""
_NOTHING: Final[Mapping[str, Any]] = {}
_KEPT: Final = 256
"""Servers whose definitions are kept ready, for each reach; reading them anew takes its time."""


class BrokerContents:
    """The prompts and resources of one server at a time, under its own names.

    Args:
        views: Narrow what may be seen.
        asks: The one path to a server for what is no tool call.
        lists: What servers have listed.
        name_limit: Longest name of a prompt, in characters.
    """

    def __init__(self, views: Views, asks: ContentRequests, lists: ListState, name_limit: int) -> None:
        self._views = views
        self._asks = asks
        self._lists = lists
        self._name_limit = name_limit
        self._seen: dict[tuple[str, Reach], Contents] = {}

    async def answer(
        self, server: str, method: str, params: Mapping[str, Any], caller: Caller, visible: CatalogView, reach: Reach
    ) -> bytes:
        """The result of one request as JSON text.

        Args:
            server: Is asked.
            method: Neither of tools nor of the session; `server/discover` for a ping in the modern era.
            params: Its parameters, without `_meta`.
            caller: Asks.
            visible: What it may see.
            reach: How far it reaches.

        Raises:
            RequestError: Nothing approved has that name, or the parameters are not those of the method.
            QuarantinedError: It waits for the user.
            UpstreamError: The server failed, or answered with an error.
        """
        if method in _PINGS:
            await self._asks.ask(ContentRequest(method, Target(server, "", None), {}, {}, caller))
            return b"{}"
        await self._lists.wait_listed(server)
        contents = self._contents(server, visible, reach)
        if method in LISTS:
            return _page(contents, *LISTS[method], params.get("cursor"))
        if method == "resources/read":
            target, arguments = await self._asks.find(contents, _text(params, "uri"), caller.principal), _NOTHING
        else:
            target, arguments = _resolve_target(method, params, contents)
        return (await self._asks.ask(ContentRequest(method, target, params, arguments, caller))).text

    def _contents(self, server: str, visible: CatalogView, reach: Reach) -> Contents:
        contents = self._seen.get((server, reach))
        if contents is None:
            if len(self._seen) >= _KEPT:
                del self._seen[next(iter(self._seen))]
            alone = self._views.narrow_view(visible, Reach(frozenset({server})))
            contents = self._seen[server, reach] = Contents(self._lists.catalog, alone, self._name_limit, server)
        return contents


def _page(contents: Contents, kind: ContentKind, member: str, cursor: Any) -> bytes:
    if not isinstance(cursor, str | None):
        raise RequestError("The cursor is no text.", hint="Send the one that the page before has.")
    page, further = contents.page(kind, cursor)
    return msgspec.json.encode({member: page} | ({"nextCursor": further} if further is not None else {}))


def _resolve_target(method: str, params: Mapping[str, Any], contents: Contents) -> tuple[Target, Mapping[str, Any]]:
    """Resolve the target of a request, and the arguments that the activity log may keep."""
    if method == "prompts/get":
        return contents.prompt(_text(params, "name")), _object(params, "arguments")
    ref = _object(params, "ref")
    if ref.get("type") == "ref/prompt":
        target = contents.prompt(_text(ref, "name", of="ref"))
    elif ref.get("type") == "ref/resource":
        target = contents.template(_text(ref, "uri", of="ref"))
    else:
        raise RequestError("The params have no 'ref' that says what is to be completed.", hint=f"Send {_COMPLETING}")
    argument = _object(params, "argument")
    return target, {_text(argument, "name", of="argument"): argument.get("value")}


def _text(holder: Mapping[str, Any], member: str, *, of: str = "params") -> str:
    value = holder.get(member)
    if not isinstance(value, str) or not value:
        raise RequestError(f"'{of}' has no '{member}', or it is no text.", hint=f'Send {{"{member}": "..."}} in it.')
    return value


def _object(holder: Mapping[str, Any], member: str) -> Mapping[str, Any]:
    value = holder.get(member, {})
    if not isinstance(value, dict):
        raise RequestError(f"{member!r} in the params is no object.", hint="See the method's definition.")
    return value
