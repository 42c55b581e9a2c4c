"""Prompts, resources, skills and completions as agents meet them over MCP, both eras."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from mcp.shared.exceptions import MCPError

from smart_mcp_proxy.errors import ProxyError, RequestError, UpstreamError
from smart_mcp_proxy.extensions import APPS, EXTENSIONS, SKILLS, read_extension_settings
from smart_mcp_proxy.fastmcp_compat.handlers import Inbound
from smart_mcp_proxy.fastmcp_compat.message_guard import read_writable
from smart_mcp_proxy.fastmcp_compat.methods import request_error
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.gateway.calls.requests import ContentRequest, ContentRequests
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.results.results import fit_to_era, is_input_required, may_link, rewrite_result
from smart_mcp_proxy.gateway.sessions.content_lookup import ContentLookup, build_caller
from smart_mcp_proxy.gateway.sessions.subscriptions import Subscriber, Subscriptions
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.shared.app_pages import is_page
from smart_mcp_proxy.gateway.shared.sessions import Session
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.items import Target
from smart_mcp_proxy.gateway.visibility.links import Links, relink_prompt
from smart_mcp_proxy.gateway.visibility.skill_lookup import list_skill_children, read_skill_manifest
from smart_mcp_proxy.models import ContentKind, Era, Principal, ToolRecord
from smart_mcp_proxy.names import shelf
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.skills import find_skill_root, is_inside
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.upstream import Fleet, Upstream, is_listed

METHOD_NOT_FOUND = -32601
NAME_CHARS = 200
RESOURCE_NOT_FOUND = -32002
"""Up to 2025-11-25; from 2026-07-28 on a URI that leads nowhere is a parameter that is not valid."""
NO_COMPLETIONS: Mapping[str, Any] = {"completion": {"values": [], "total": 0, "hasMore": False}}
LISTS: Mapping[str, tuple[ContentKind, str]] = {
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


@dataclass(eq=False, repr=False)
class ContentHandlers:
    """Answers what agents ask of prompts and resources.

    Attributes:
        lookup: What may be seen at a path on behalf of a principal.
        lists: What servers have listed.
        fleet: The servers.
        asks: The one path to a server.
        subscriptions: Who hears of which resource.
        links: Told of interfaces' pages that are opened; None where nobody asks for them.
    """

    lookup: ContentLookup
    lists: ListState
    fleet: Fleet
    asks: ContentRequests
    subscriptions: Subscriptions
    links: Links | None = None

    def __post_init__(self) -> None:
        self._passed = self.lookup.passed
        self._subscribers: WeakKeyDictionary[Session, Subscriber] = WeakKeyDictionary()
        skills = SkillHandlers(self.fleet, self.asks)
        self._answers: Mapping[str, Callable[[Contents, Inbound], Awaitable[RawResult]]] = {
            **dict.fromkeys(LISTS, self._list),
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
        contents = self.lookup.at(get_request_path(), principal())
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
            extensions[APPS] = EXTENSIONS[APPS].settings
        if self._has_skills(contents):
            extensions[SKILLS] = EXTENSIONS[SKILLS].settings
        return found | ({"extensions": extensions} if extensions else {})

    async def answer(self, method: str, inbound: Inbound) -> dict[str, Any]:
        """The result of one request.

        Raises:
            MCPError: There is none: as the server said it, or as the gateway says it.
        """
        contents = self.lookup.at(inbound.path, inbound.principal)
        kinds = _MEMBERS_OF.get(method) or (method.partition("/")[0],)
        if contents is None or not any(self._has(contents, each) for each in kinds):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        if method in _SUBSCRIBING and not self._may_subscribe(contents):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
        try:
            if self._passed is not None:
                await self.lists.wait_listed(self._passed)
            raw = await self._answer_with_retry(contents, inbound)
        except ProxyError as error:
            raise build_rpc_error(method, error, inbound.era) from error
        return decode_answer(method, fit_to_era(raw, inbound.era).text)

    async def _answer_with_retry(self, contents: Contents, inbound: Inbound) -> RawResult:
        """Answer a request; one for what is not there waits until its servers have listed, and tries again."""
        before = self.lists.catalog.snapshot
        try:
            return await self._answers[inbound.method](contents, inbound)
        except RequestError as error:
            if error.error_code != "not_found":
                raise
            wanted, kinds = _parse_reference(inbound.params)
            owners = contents.possible_owners(wanted, is_prompt=kinds is PROMPTS)
            has_waited = await self.lists.wait_known(owners, *kinds)
            # A list is stored in another thread: it may have come between the look and the question whether one will.
            if not has_waited and self.lists.catalog.snapshot is before:
                raise
        return await self._answers[inbound.method](contents, inbound)

    def _has(self, contents: Contents, member: str) -> bool:
        """Whether a server has prompts, or resources; or may have, for nobody has listened to it yet."""
        kinds = _KINDS[member]
        if any(contents.of(kind) for kind in kinds):
            return True
        return any(
            is_listed(kinds[0], upstream.capabilities)
            or (not upstream.is_ready and self.lists.is_expected(upstream.name, kinds[0]))
            for upstream in self._list_upstreams(contents)
        )

    def _has_skills(self, contents: Contents) -> bool:
        """Whether a server has skills, or says that it has; few do, so none is promised before it says so."""
        said = any(is_listed("skills", each.capabilities) for each in self._list_upstreams(contents))
        return said or bool(contents.of("skills"))

    def _may_subscribe(self, contents: Contents) -> bool:
        """Whether a server tells of single resources; or may, for it is not connected."""
        stored = self.lists.catalog.snapshot.by_server
        return any(
            upstream.watch.is_offered
            if upstream.is_ready
            else any(
                stored.get(shelf(upstream.name, kind)) or self.lists.is_expected(upstream.name, kind)
                for kind in RESOURCES
            )
            for upstream in self._list_upstreams(contents)
        )

    def _list_upstreams(self, contents: Contents) -> list[Upstream]:
        return [found for name in contents.servers if (found := self.fleet.upstreams.get(name)) is not None]

    def _may_complete(self, server: str) -> bool:
        upstream = self.fleet.upstreams.get(server)
        if upstream is None:
            return False
        return not upstream.is_ready or upstream.capabilities.get("completions") is not None

    async def _list(self, contents: Contents, inbound: Inbound) -> RawResult:
        kind, member = LISTS[inbound.method]
        if not contents.of(kind):  # some clients ask once, right after their greeting, and heed no change
            await self.lists.wait_known(contents.servers, kind)
        page, cursor = contents.page(kind, inbound.params.get("cursor"))
        listing: dict[str, Any] = {member: page}
        if cursor is not None:
            listing["nextCursor"] = cursor
        return _encode_answer(listing, inbound)

    async def _get(self, contents: Contents, inbound: Inbound) -> RawResult:
        target = contents.prompt(inbound.params["name"])
        arguments = inbound.params.get("arguments") or {}
        params = {"name": target.name} | ({"arguments": arguments} if arguments else {})
        raw = await self.asks.ask(ContentRequest(inbound.method, target, params, arguments, build_caller(inbound)))
        if self._passed is not None or not may_link(raw):
            return raw
        return await rewrite_result(
            raw, partial(relink_prompt, uri_of=partial(contents.build_resource_uri, target.server))
        )

    async def _read(self, contents: Contents, inbound: Inbound) -> RawResult:
        uri = inbound.params["uri"]
        target = await self.asks.find(contents, uri, inbound.principal.id)
        raw = await self.asks.ask(
            ContentRequest(inbound.method, target, {"uri": target.name}, {}, build_caller(inbound), uri=uri)
        )
        if is_input_required(raw):
            return raw
        if is_page(target.name) and self.links is not None:
            await self.links.note_opened(target.server, inbound.principal.id, inbound.session_id)
        uri_of = None if self._passed is not None else contents.select_uri_builder(target)
        return await rewrite_result(raw, partial(_readable, target=target, uri_of=uri_of, era=inbound.era))

    async def _subscribe(self, contents: Contents, inbound: Inbound) -> RawResult:
        uri = inbound.params["uri"]
        target = contents.resource(uri)
        await self.subscriptions.subscribe(self._subscriber(inbound), uri, target, build_caller(inbound))
        return _DONE

    async def _unsubscribe(self, contents: Contents, inbound: Inbound) -> RawResult:
        uri = inbound.params["uri"]
        if not self.subscriptions.unsubscribe(self._subscriber(inbound), uri, build_caller(inbound)):
            contents.resource(uri)  # or says why there is none
        return _DONE

    def _subscriber(self, inbound: Inbound) -> Subscriber:
        session = inbound.session
        assert isinstance(session, Session)  # the handshake era, which alone has these methods, has one
        if (known := self._subscribers.get(session)) is None:
            known = Subscriber(session.client.path, session.client.principal, session.client.tell_resource_updated)
            self._subscribers[session] = known
            session.on_close.append(lambda _: self.subscriptions.leave(known))
        return known

    @asynccontextmanager
    async def watch_resources(
        self, path: str, who: Principal, uris: Sequence[str], tell: Callable[[str], Awaitable[None]]
    ) -> AsyncIterator[Sequence[str]]:
        """Subscribes a stream of the modern era to resources while open; gives those that it will be told of.

        Raises:
            MCPError: One of them cannot be subscribed to: as the server said it, or as the gateway says it.
        """
        contents = self.lookup.at(path, who)
        if contents is None or not self._may_subscribe(contents):
            yield ()
            return
        subscriber, caller = Subscriber(path, who, tell), Caller(who.id, {}, None, is_root=True)
        try:
            try:
                if self._passed is not None:
                    await self.lists.wait_listed(self._passed)
                for uri in dict.fromkeys(uris):
                    await self.subscriptions.subscribe_in_time(subscriber, uri, contents.resource(uri), caller)
            except ProxyError as error:
                raise build_rpc_error("subscriptions/listen", error, "modern") from error
            yield tuple(subscriber.targets)
        finally:
            self.subscriptions.leave(subscriber)

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
        return await self.asks.ask(ContentRequest(inbound.method, target, params, arguments, build_caller(inbound)))


@dataclass(eq=False, repr=False)
class SkillHandlers:
    """Answers `skills/get` and `resources/directory/read`.

    Attributes:
        fleet: The servers.
        asks: The one path to a server.
    """

    fleet: Fleet
    asks: ContentRequests

    async def get(self, contents: Contents, inbound: Inbound) -> RawResult:
        """The entry of one skill, which its server still gives as it was approved."""
        uri = inbound.params["uri"]
        target = contents.skill(uri)
        shown = contents.of("skills")[contents.skill_uri(target.server, target.name)].definition
        ask = ContentRequest("skills/get", target, {"uri": target.name}, {}, build_caller(inbound), uri=uri)
        await self.asks.ask(ask)
        return _encode_answer({"skill": shown}, inbound)

    async def read_directory(self, contents: Contents, inbound: Inbound) -> RawResult:
        """Children of a directory: of what was approved, or as the server says where a skill is generated.

        Raises:
            RequestError: It is no directory of a skill.
        """
        uri = inbound.params["uri"]
        server, own = contents.own_uri(uri)
        records = contents.list_server_skills(server) if server is not None else []
        if server is not None and (children := list_skill_children(own, records)) is not None:
            shown = [{**child, "uri": contents.skill_uri(server, child["uri"])} for child in children]
            return _encode_answer({"resources": shown}, inbound)
        generated = next((each for each in records if _may_hold(each, own)), None)
        if server is None or generated is None or not self._reads_directories(server):
            raise RequestError(
                f"{uri[:NAME_CHARS]!r} is not a directory of a skill.",
                hint="A skill's directory is its uri without /SKILL.md; files are read with resources/read.",
                code="not_found",
            )
        return await self._read_generated_directory(contents, inbound, Target(server, own, generated))

    async def _read_generated_directory(self, contents: Contents, inbound: Inbound, target: Target) -> RawResult:
        params = {key: value for key, value in inbound.params.items() if key != "_meta"} | {"uri": target.name}
        caller = build_caller(inbound)
        ask = ContentRequest(inbound.method, target, params, {}, caller, uri=inbound.params["uri"])
        raw = await self.asks.ask(ask)
        try:
            result: dict[str, Any] = msgspec.json.decode(raw.text)
            listed = [each for each in result["resources"] if _is_child(target.name, each["uri"])]
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, RecursionError) as exc:
            raise RequestError(
                f"What server '{target.server}' answered cannot be passed on.", hint="The server is at fault."
            ) from exc
        shown = [{**each, "uri": contents.skill_uri(target.server, each["uri"])} for each in listed]
        return _encode_answer({**result, "resources": shown}, inbound)

    def _reads_directories(self, server: str) -> bool:
        upstream = self.fleet.upstreams.get(server)
        settings = read_extension_settings(upstream.capabilities, SKILLS) if upstream is not None else None
        return settings is not None and settings.get("directoryRead") is True


def _may_hold(record: ToolRecord, uri: str) -> bool:
    """Whether a generated skill may have a directory of this URI."""
    root = find_skill_root(record.key.tool)
    return read_skill_manifest(record.raw) is None and (uri == root or is_inside(root, uri))


def _is_child(uri: str, child: str) -> bool:
    """Whether a URI lies directly in a directory; a server that names others would lead in circles."""
    return (
        is_inside(uri, child)
        and "/" not in child.removeprefix(f"{uri}/")
        and child.rpartition("/")[2] not in (".", "..")
    )


def _encode_answer(members: Mapping[str, Any], inbound: Inbound) -> RawResult:
    is_kept = inbound.era == "modern" and inbound.method != "resources/directory/read"
    return RawResult(msgspec.json.encode({**members, **(_READ_CACHE if is_kept else {})}))


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


def decode_answer(method: str, raw: bytes) -> dict[str, Any]:
    """Decode a result for the SDK, which writes it anew.

    Raises:
        MCPError: It cannot be written.
    """
    try:
        result: dict[str, Any] = read_writable(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise request_error(-32603, f"The answer to {method} cannot be passed on: {exc}.") from exc
    return result


def build_rpc_error(method: str, error: ProxyError, era: Era) -> MCPError:
    """Build the agent's JSON-RPC error: the server's own, or the gateway's with details in `data`."""
    if isinstance(error, UpstreamError) and (answer := error.answer) is not None:
        return request_error(answer.code, answer.message, answer.data)
    log.debug("%s failed: %s", method, error)
    is_missing = error.error_code == "not_found" and method.startswith("resources/") and era == "handshake"
    code = RESOURCE_NOT_FOUND if is_missing else error.jsonrpc_code
    return request_error(code, str(error), error.to_dict())


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_parts = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
