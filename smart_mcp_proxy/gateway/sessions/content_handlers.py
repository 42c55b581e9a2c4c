"""Prompts, resources and completions as agents meet them over MCP, both eras."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from mcp.shared.exceptions import MCPError

from smart_mcp_proxy.errors import ProxyError, RequestError, UpstreamError
from smart_mcp_proxy.extensions import APPS, SKILLS
from smart_mcp_proxy.fastmcp_compat.message_guard import read_writable
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.fastmcp_compat.server import Inbound, request_error
from smart_mcp_proxy.gateway.calls.requests import ContentRequest, ContentRequests
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.results.results import fit_to_era, is_input_required, may_link, rewrite_result
from smart_mcp_proxy.gateway.sessions.content_lookup import ContentLookup, build_caller
from smart_mcp_proxy.gateway.sessions.skill_handlers import SkillHandlers
from smart_mcp_proxy.gateway.sessions.subscriptions import Subscriber, Subscriptions
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.shared.app_pages import is_page
from smart_mcp_proxy.gateway.shared.sessions import Session
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.items import Target
from smart_mcp_proxy.gateway.visibility.links import Links, relink_prompt
from smart_mcp_proxy.models import ContentKind, Era, Principal
from smart_mcp_proxy.names import shelf
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream import Fleet, is_listed

METHOD_NOT_FOUND = -32601
RESOURCE_NOT_FOUND = -32002
"""Up to 2025-11-25; from 2026-07-28 on a URI that leads nowhere is a parameter that is not valid."""
NO_COMPLETIONS: Mapping[str, Any] = {"completion": {"values": [], "total": 0, "hasMore": False}}
_LISTS: Mapping[str, tuple[ContentKind, str]] = {
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("templates", "resourceTemplates"),
    "skills/list": ("skills", "skills"),
}
PROMPTS: tuple[ContentKind, ...] = ("prompts",)
RESOURCES: tuple[ContentKind, ...] = ("resources", "templates")
_KINDS: Mapping[str, tuple[ContentKind, ...]] = {"prompts": PROMPTS, "resources": RESOURCES, "skills": ("skills",)}
"""The kinds of item that one part of a server's capabilities stands for."""
_MEMBERS_OF: Mapping[str, tuple[str, ...]] = {
    "completion/complete": ("prompts", "resources"),
    "resources/directory/read": ("skills",),
}
"""Capabilities of which a method needs one, where its name does not say so."""
_SUBSCRIBING = frozenset({"resources/subscribe", "resources/unsubscribe"})
_DONE = RawResult(b"{}")
_READ_CACHE = {"ttlMs": 0, "cacheScope": "private"}

log = get_logger("contents")


class ContentHandlers:
    """Answers what agents ask of prompts and resources.

    Args:
        lookup: What may be seen at a path on behalf of a principal.
        lists: What servers have listed.
        fleet: The servers.
        asks: The one path to a server.
        subscriptions: Who hears of which resource.
        links: Told of interfaces' pages that are opened; None where nobody asks for them.
    """

    def __init__(
        self,
        lookup: ContentLookup,
        lists: ListState,
        fleet: Fleet,
        asks: ContentRequests,
        subscriptions: Subscriptions,
        links: Links | None = None,
    ) -> None:
        self._links = links
        self._lookup = lookup
        self._lists = lists
        self._fleet = fleet
        self._asks = asks
        self._passed = lookup.passed
        self._subscriptions = subscriptions
        self._subscribers: WeakKeyDictionary[Session, Subscriber] = WeakKeyDictionary()
        skills = SkillHandlers(fleet, asks, build_caller)
        self._answers: Mapping[str, Callable[[Contents, Inbound], Awaitable[RawResult]]] = {
            **dict.fromkeys(_LISTS, self._list),
            "prompts/get": self._get,
            "resources/read": self._read,
            "completion/complete": self._complete,
            "skills/get": skills.get,
            "resources/directory/read": skills.read_directory,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    @property
    def methods(self) -> frozenset[str]:
        """Methods handled here."""
        return frozenset(self._answers)

    def capabilities(self, era: Era) -> dict[str, Any]:
        """Capabilities of a server besides tools, at the path of the present request."""
        contents = self._lookup.at(get_request_path(), principal())
        if contents is None:
            return {}
        found: dict[str, Any] = {}
        if self._has(contents, "prompts"):
            found["prompts"] = {"listChanged": True}
        if self._has(contents, "resources"):
            found["resources"] = {"subscribe": self._may_subscribe(contents), "listChanged": True}
        if found and any(map(self._may_complete, contents.servers)):
            found["completions"] = {}
        extensions: dict[str, Any] = {}
        if any(is_page(item.name) for item in contents.of("resources").values()):
            extensions[APPS] = {}
        if self._has_skills(contents):
            extensions[SKILLS] = {"directoryRead": True}
        return found | ({"extensions": extensions} if extensions else {})

    async def answer(self, method: str, inbound: Inbound) -> dict[str, Any]:
        """The result of one request.

        Raises:
            MCPError: There is none: as the server said it, or as the gateway says it.
        """
        contents = self._lookup.at(inbound.path, inbound.principal)
        kinds = _MEMBERS_OF.get(method) or (method.partition("/")[0],)
        if contents is None or not any(self._has(contents, each) for each in kinds):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        if method in _SUBSCRIBING and not self._may_subscribe(contents):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        try:
            if self._passed is not None:
                await self._lists.wait_listed(self._passed)
            raw = await self._answer_with_retry(contents, inbound)
        except ProxyError as error:
            raise _rpc_error(method, error, inbound.era) from error
        return _decode_answer(method, fit_to_era(raw, inbound.era).text)

    async def _answer_with_retry(self, contents: Contents, inbound: Inbound) -> RawResult:
        """Answer a request; one for what is not there waits until its servers have listed, and tries again."""
        before = self._lists.catalog.snapshot
        try:
            return await self._answers[inbound.method](contents, inbound)
        except RequestError as error:
            if error.error_code != "not_found":
                raise
            wanted, kinds = _parse_reference(inbound.params)
            owners = contents.possible_owners(wanted, is_prompt=kinds is PROMPTS)
            has_waited = await self._lists.wait_known(owners, *kinds)
            # A list is stored in another thread: it may have come between the look and the question whether one will.
            if not has_waited and self._lists.catalog.snapshot is before:
                raise
        return await self._answers[inbound.method](contents, inbound)

    def _has(self, contents: Contents, member: str) -> bool:
        """Whether a server has prompts, or resources; or may have, for nobody has listened to it yet."""
        kinds = _KINDS[member]
        if any(contents.of(kind) for kind in kinds):
            return True
        upstreams = [upstream for name in contents.servers if (upstream := self._fleet.upstreams.get(name)) is not None]
        return any(
            is_listed(kinds[0], upstream.capabilities)
            or (not upstream.is_ready and self._lists.is_expected(upstream.name, kinds[0]))
            for upstream in upstreams
        )

    def _has_skills(self, contents: Contents) -> bool:
        """Whether a server has skills, or says that it has; few do, so none is promised before it says so."""
        upstreams = (self._fleet.upstreams.get(name) for name in contents.servers)
        said = any(each is not None and is_listed("skills", each.capabilities) for each in upstreams)
        return said or bool(contents.of("skills"))

    def _may_subscribe(self, contents: Contents) -> bool:
        """Whether a server tells of single resources; or may, for it is not connected."""
        upstreams = [upstream for name in contents.servers if (upstream := self._fleet.upstreams.get(name)) is not None]
        stored = self._lists.catalog.snapshot.by_server
        return any(
            upstream.watch.is_offered
            if upstream.is_ready
            else any(
                stored.get(shelf(upstream.name, kind)) or self._lists.is_expected(upstream.name, kind)
                for kind in RESOURCES
            )
            for upstream in upstreams
        )

    def _may_complete(self, server: str) -> bool:
        upstream = self._fleet.upstreams.get(server)
        if upstream is None:
            return False
        return not upstream.is_ready or upstream.capabilities.get("completions") is not None

    async def _list(self, contents: Contents, inbound: Inbound) -> RawResult:
        kind, member = _LISTS[inbound.method]
        if not contents.of(kind):  # some clients ask once, right after their greeting, and heed no change
            await self._lists.wait_known(contents.servers, kind)
        page, cursor = contents.page(kind, inbound.params.get("cursor"))
        listing: dict[str, Any] = {member: page}
        if cursor is not None:
            listing["nextCursor"] = cursor
        return RawResult(msgspec.json.encode(listing | (_READ_CACHE if inbound.era == "modern" else {})))

    async def _get(self, contents: Contents, inbound: Inbound) -> RawResult:
        target = contents.prompt(inbound.params["name"])
        arguments = inbound.params.get("arguments") or {}
        params = {"name": target.name} | ({"arguments": arguments} if arguments else {})
        raw = await self._asks.ask(ContentRequest(inbound.method, target, params, arguments, build_caller(inbound)))
        if self._passed is not None or not may_link(raw):
            return raw
        return await rewrite_result(
            raw, partial(relink_prompt, uri_of=partial(contents.build_resource_uri, target.server))
        )

    async def _read(self, contents: Contents, inbound: Inbound) -> RawResult:
        uri = inbound.params["uri"]
        target = await self._asks.find(contents, uri, inbound.principal.id)
        raw = await self._asks.ask(
            ContentRequest(inbound.method, target, {"uri": target.name}, {}, build_caller(inbound), uri=uri)
        )
        if is_input_required(raw):
            return raw
        if is_page(target.name) and self._links is not None:
            await self._links.note_opened(target.server, inbound.principal.id, inbound.session_id)
        uri_of = None if self._passed is not None else contents.select_uri_builder(target)
        return await rewrite_result(raw, partial(_readable, target=target, uri_of=uri_of, era=inbound.era))

    async def _subscribe(self, contents: Contents, inbound: Inbound) -> RawResult:
        uri = inbound.params["uri"]
        target = contents.resource(uri)
        await self._subscriptions.subscribe(self._subscriber(inbound), uri, target, build_caller(inbound))
        return _DONE

    async def _unsubscribe(self, contents: Contents, inbound: Inbound) -> RawResult:
        uri = inbound.params["uri"]
        if not self._subscriptions.unsubscribe(self._subscriber(inbound), uri, build_caller(inbound)):
            contents.resource(uri)  # or says why there is none
        return _DONE

    def _subscriber(self, inbound: Inbound) -> Subscriber:
        session = inbound.session
        assert isinstance(session, Session)  # the handshake era, which alone has these methods, has one
        if (known := self._subscribers.get(session)) is None:
            known = Subscriber(session.client.path, session.client.principal, session.client.tell_resource_updated)
            self._subscribers[session] = known
            session.on_close.append(lambda _: self._subscriptions.leave(known))
        return known

    @asynccontextmanager
    async def watch_resources(
        self, path: str, who: Principal, uris: Sequence[str], tell: Callable[[str], Awaitable[None]]
    ) -> AsyncIterator[Sequence[str]]:
        """Subscribes a stream of the modern era to resources while open; gives those that it will be told of.

        Raises:
            MCPError: One of them cannot be subscribed to: as the server said it, or as the gateway says it.
        """
        contents = self._lookup.at(path, who)
        if contents is None or not self._may_subscribe(contents):
            yield ()
            return
        subscriber, caller = Subscriber(path, who, tell), Caller(who.id, {}, None, is_root=True)
        try:
            try:
                if self._passed is not None:
                    await self._lists.wait_listed(self._passed)
                for uri in dict.fromkeys(uris):
                    await self._subscriptions.subscribe_in_time(subscriber, uri, contents.resource(uri), caller)
            except ProxyError as error:
                raise _rpc_error("subscriptions/listen", error, "modern") from error
            yield tuple(subscriber.targets)
        finally:
            self._subscriptions.leave(subscriber)

    async def _complete(self, contents: Contents, inbound: Inbound) -> RawResult:
        ref = inbound.params["ref"]
        is_prompt = ref["type"] == "ref/prompt"
        target = contents.prompt(ref["name"]) if is_prompt else contents.template(ref["uri"])
        if not self._may_complete(target.server):
            return RawResult(msgspec.json.encode(NO_COMPLETIONS))
        theirs = {**ref, "name" if is_prompt else "uri": target.name}
        params = {key: value for key, value in inbound.params.items() if key != "_meta"} | {"ref": theirs}
        argument = inbound.params["argument"]
        arguments = {argument["name"]: argument["value"]}
        return await self._asks.ask(ContentRequest(inbound.method, target, params, arguments, build_caller(inbound)))


def _parse_reference(params: Mapping[str, Any]) -> tuple[str, tuple[ContentKind, ...]]:
    """The name or URI that a request asks for, and the kinds of item that it may be."""
    named = params.get("ref", params)
    return (named["uri"], RESOURCES) if "uri" in named else (named["name"], PROMPTS)


def _readable(raw: bytes, target: Target, uri_of: Callable[[str, str], str] | None, era: Era) -> bytes:
    """Rewrite a read result's URIs to ours; in the modern era add how long it may be kept.

    Raises:
        RequestError: It cannot be read.
    """
    try:
        members = _members.decode(raw)
        if uri_of is not None:
            parts = _parts.decode(members.get("contents", b"[]"))
            for part in parts:
                if isinstance(uri := msgspec.json.decode(part.get("uri", b"null")), str):
                    part["uri"] = msgspec.Raw(msgspec.json.encode(uri_of(target.server, uri)))
            members["contents"] = msgspec.Raw(msgspec.json.encode(parts))
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise _unreadable(target.server, exc) from exc
    ttl = members.pop("ttlMs", b"0")
    members.pop("cacheScope", None)
    if era == "modern":  # the result is theirs who asked, whatever the server thinks of it
        members |= {"ttlMs": msgspec.Raw(ttl), "cacheScope": msgspec.Raw(b'"private"')}
    return msgspec.json.encode(members)


def _unreadable(server: str, exc: Exception) -> ProxyError:
    return RequestError(f"What server '{server}' answered cannot be passed on: {exc}.", hint="The server is at fault.")


def _decode_answer(method: str, raw: bytes) -> dict[str, Any]:
    try:
        result: dict[str, Any] = read_writable(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise request_error(-32603, f"The answer to {method} cannot be passed on: {exc}.") from exc
    return result


def _rpc_error(method: str, error: ProxyError, era: Era) -> MCPError:
    """Build the agent's JSON-RPC error: the server's own, or the gateway's with details in `data`."""
    if isinstance(error, UpstreamError) and (answer := error.answer) is not None:
        return request_error(answer.code, answer.message, answer.data)
    log.debug("%s failed: %s", method, error)
    is_missing = error.error_code == "not_found" and method.startswith("resources/") and era == "handshake"
    code = RESOURCE_NOT_FOUND if is_missing else error.jsonrpc_code
    return request_error(code, str(error), error.to_dict())


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_parts = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
