"""Subscriptions to single resources: which client hears of which, and what that takes at the servers.

However many clients want to hear of a resource, its server is asked once; when nobody wants to any more, it is told so.
Of a page or a skill's file, which is approved with its content, they hear once its new content is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from smart_mcp_proxy.errors import ProxyError, RefusedError, RequestError, UpstreamError
from smart_mcp_proxy.gateway.calls.requests import ContentRequest, ContentRequests
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.shared.changes import wait_change_settled
from smart_mcp_proxy.gateway.visibility.items import Target
from smart_mcp_proxy.gateway.visibility.skill_lookup import find_approved_digest
from smart_mcp_proxy.models import Principal, ServerState, ServerStatus
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import fields, get_logger, spawn
from smart_mcp_proxy.upstream import Fleet, Upstream

PER_CLIENT: Final = 100
"""Resources that one session or stream subscribes to: more than an editor has files open."""
PER_SERVER: Final = 1_000
"""Resources of one server that are subscribed to on behalf of all clients."""
PARTS_LIMIT: Final = 64
"""Most resources looked for that an updated URI is a part of; servers may write any."""
RENEW_PAUSE_S: Final = 1.0
LONGEST_RENEW_PAUSE_S: Final = 30.0
MERGE_S: Final = 0.05
"""Time within which updates of a resource are merged into one."""

Find = Callable[[str, Principal, str], Target]
"""Function that finds the target of a URI at a path for a principal; raises `ProxyError` as a read of it would."""

log = get_logger("subscriptions")


@dataclass(eq=False, repr=False)
class Subscriber:
    """A subscribing client: a session of the handshake era, or a stream of the modern era.

    Attributes:
        path: Where it came in.
        principal: On whose behalf.
        tell: Tells it that the resource of this URI, as it knows it, is another one.
    """

    path: str
    principal: Principal
    tell: Callable[[str], Awaitable[None]]

    def __post_init__(self) -> None:
        self.is_gone = False
        self.targets: dict[str, Target] = {}
        """What it has subscribed to, by the URI that it knows."""
        self._due: dict[str, None] = {}
        self._teller: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Subscriber to {len(self.targets)} resources>"

    def note(self, uri: str, may_hear: Callable[["Subscriber", str], Awaitable[bool]]) -> None:
        """The resource is to be told of, soon and once, if it may be heard of by then."""
        self._due[uri] = None
        if self._teller is None or self._teller.done():
            self._teller = spawn(self._tell_due(may_hear), "resource updates")

    def close(self) -> None:
        """Tells nothing more."""
        self.is_gone = True
        if self._teller is not None:
            self._teller.cancel()

    async def _tell_due(self, may_hear: Callable[["Subscriber", str], Awaitable[bool]]) -> None:
        while self._due:
            await asyncio.sleep(MERGE_S)
            due, self._due = self._due, {}
            for uri in due:
                if await may_hear(self, uri):
                    await self.tell(uri)


class _Wish(NamedTuple):
    subscriber: Subscriber
    uri: str
    """As the subscriber knows it."""


@dataclass(eq=False, repr=False)
class Subscriptions:
    """Subscribers of resources.

    Attributes:
        lists: Say whether what a server lists is what was approved.
        fleet: The servers.
        asks: The one path to a server.
        find: Resolves what clients subscribe to.
        list_again: Has a server listed again, soon.
    """

    lists: ListState
    fleet: Fleet
    asks: ContentRequests
    find: Find
    list_again: Callable[[str], None] = lambda server: None

    def __post_init__(self) -> None:
        self._compared = self.lists.catalog.snapshot
        self._wishes: dict[str, dict[str, set[_Wish]]] = {}
        """By server and by the URI that the server knows."""
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Subscriptions to {sum(map(len, self._wishes.values()))} resources>"

    async def close(self) -> None:
        """Ends what goes on in the background."""
        for task in (tasks := tuple(self._tasks)):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def connection_changed(self, status: ServerStatus) -> None:
        """Subscribe anew at a server that was connected: a new connection has no subscriptions."""
        if status.state is ServerState.READY and status.name in self._wishes:
            self._spawn(self._renew(status.name, status.restarts))

    def handle_resource_updated(self, server: str, uri: str) -> None:
        """Handle `notifications/resources/updated` of a server."""
        if (wishes := self._wishes.get(server)) is not None:
            for wish in _find_wishes(wishes, uri):
                if _digest(wish.subscriber.targets.get(wish.uri)) is None:
                    wish.subscriber.note(wish.uri, self._may_hear)
                else:
                    self.list_again(server)

    async def announce(self, changes: Callable[[], asyncio.Event]) -> None:
        """Tells subscribers of what has been approved with another content; never returns.

        Args:
            changes: An event that is set when the catalog or a server changes next.
        """
        while True:
            next_change = changes()
            if (snapshot := self.lists.catalog.snapshot) is not self._compared:
                self._compared = snapshot
                self._tell_approved()
            await wait_change_settled(next_change)

    def _tell_approved(self) -> None:
        every = [wish for wishes in self._wishes.values() for each in wishes.values() for wish in each]
        for client, uri in every:
            before = client.targets.get(uri)
            if before is None or (digest := _digest(before)) is None:
                continue
            try:
                found = self.find(client.path, client.principal, uri)
            except ProxyError:
                continue  # it waits for the user
            if _is_same(found, before) and _digest(found) not in (digest, None):
                client.targets[uri] = found
                client.note(uri, self._may_hear)

    async def subscribe(self, wish_of: Subscriber, uri: str, target: Target, caller: Caller) -> None:
        """Subscribe a client to a resource.

        Args:
            wish_of: Who wants to hear.
            uri: As the subscriber knows it.
            target: What it leads to.
            caller: Who asks.

        Raises:
            RefusedError: It has too many subscriptions, or the resource is withheld.
            RequestError: The server does not tell of single resources.
            UpstreamError: The server cannot be asked, or refuses.
        """
        wish = _Wish(wish_of, uri)
        is_new = uri not in wish_of.targets
        send = partial(self._watch, wish, target)
        try:
            await self.asks.ask(
                ContentRequest("resources/subscribe", target, {"uri": target.name}, {}, caller, send, uri)
            )
        except BaseException:
            if is_new:
                self._drop(wish)
            raise

    async def subscribe_in_time(self, wish_of: Subscriber, uri: str, target: Target, caller: Caller) -> None:
        """The same; where the server is not connected at present, from when it is."""
        try:
            await self.subscribe(wish_of, uri, target, caller)
        except UpstreamError:
            upstream = self.fleet.upstreams.get(target.server)
            if upstream is None or upstream.is_ready:
                raise
            self._enter(_Wish(wish_of, uri), target)

    def unsubscribe(self, wish_of: Subscriber, uri: str, caller: Caller) -> bool:
        """Ends one subscription; False if there is none."""
        target = wish_of.targets.get(uri)
        if target is None:
            return False
        self._drop(_Wish(wish_of, uri))
        self.asks.note(ContentRequest("resources/unsubscribe", target, {}, {}, caller), "ok")
        return True

    def leave(self, subscriber: Subscriber) -> None:
        """The client is gone, and its subscriptions with it."""
        subscriber.close()
        for uri in tuple(subscriber.targets):
            self._drop(_Wish(subscriber, uri))

    async def _watch(self, wish: _Wish, target: Target, upstream: Upstream, timeout_s: float | None) -> RawResult:
        if not upstream.watch.is_offered:
            raise RequestError(
                f"Server '{target.server}' does not tell when its resources change.",
                hint="Read it again when you need it.",
            )
        self._enter(wish, target)
        limit_s = upstream.config.limits.call_s if timeout_s is None else timeout_s
        failures = await upstream.watch.add([target.name], limit_s)
        if target.name in failures:
            raise failures[target.name]
        return RawResult(b"{}")

    def _enter(self, wish: _Wish, target: Target) -> None:
        client, wishes = wish.subscriber, self._wishes.get(target.server, {})
        if client.is_gone:
            raise RequestError("The session is over.", hint="Open another one.")
        if (known := client.targets.get(wish.uri)) is not None and not _is_same(known, target):
            self._drop(wish)
        if wish.uri not in client.targets and len(client.targets) >= PER_CLIENT:
            raise _too_many(f"This client has subscribed to {PER_CLIENT} resources, the most a client can.")
        if target.name not in wishes and len(wishes) >= PER_SERVER:
            raise _too_many(
                f"{PER_SERVER} resources of server '{target.server}' are subscribed to, the most there can."
            )
        client.targets[wish.uri] = target
        self._wishes.setdefault(target.server, {}).setdefault(target.name, set()).add(wish)

    def _drop(self, wish: _Wish) -> None:
        target = wish.subscriber.targets.pop(wish.uri, None)
        if target is None:
            return
        wishes = self._wishes[target.server]
        wishes[target.name].discard(wish)
        if not wishes[target.name]:
            del wishes[target.name]
            if not wishes:
                del self._wishes[target.server]
            self._spawn(self._end_unwanted(target.server))

    async def _may_hear(self, subscriber: Subscriber, uri: str) -> bool:
        """Whether the client could read by this URI, now, what it has subscribed to."""
        target = subscriber.targets.get(uri)
        if target is None:
            return False
        try:
            await self.lists.wait_listed(target.server)  # what is withheld is known only then
            found = self.find(subscriber.path, subscriber.principal, uri)
            if found.record is not None:
                self.lists.require_approved(found.record)
        except ProxyError as exc:
            log.debug("a subscriber does not hear that %s of '%s' was updated: %s", target.name, target.server, exc)
            return False
        if target.record is not None and found.record is None:
            return False  # no longer listed
        return _is_same(found, target) and uri in subscriber.targets

    async def _renew(self, server: str, connection: int) -> None:
        """Subscribes anew on a new connection; what was subscribed to may have changed in the gap.

        What the server does not take is tried again and again, for as long as the connection holds.
        """
        wanted, pause_s = tuple(self._wishes.get(server, ())), RENEW_PAUSE_S
        while wanted:
            upstream = self.fleet.upstreams.get(server)
            if upstream is None or upstream.status.restarts != connection or not upstream.watch.is_offered:
                return
            failures = await upstream.watch.add(wanted, upstream.config.limits.call_s)
            for uri in wanted:
                if uri not in failures:
                    self.handle_resource_updated(server, uri)
            if failures:
                why = next(iter(failures.values()))
                log.warning(
                    "%d subscriptions at '%s' could not be renewed yet: %s",
                    len(failures),
                    server,
                    why,
                    extra=fields(server=server),
                )
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_RENEW_PAUSE_S)
            wanted = tuple(uri for uri in failures if uri in self._wishes.get(server, ()))

    async def _end_unwanted(self, server: str) -> None:
        await asyncio.sleep(MERGE_S)  # of a client that leaves, all subscriptions end together
        if (upstream := self.fleet.upstreams.get(server)) is not None:
            await upstream.watch.keep(lambda: self._wishes.get(server, {}).keys(), upstream.config.limits.call_s)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = spawn(work, "subscriptions")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _digest(target: Target | None) -> str | None:
    """The digest of the content that a page or a skill's file is approved with; None for what has none."""
    return None if target is None or target.record is None else find_approved_digest(target.record, target.name)


def _is_same(one: Target, other: Target) -> bool:
    """Whether both are the same resource, if not in the same definition."""
    return (one.server, one.name) == (other.server, other.name)


def _find_wishes(wishes: Mapping[str, set[_Wish]], uri: str) -> Iterator[_Wish]:
    """Yield subscribers of an updated resource, else those of what it is a part of.

    The URI of an update may be a sub-resource of the one subscribed to.

    Source: https://modelcontextprotocol.io/specification/2025-11-25/schema
    """
    parts = uri.split("/", PARTS_LIMIT + 1)[: PARTS_LIMIT + 1]
    # The longest one first: of `a/b/c` these are itself, `a/b/`, `a/b`, `a/`, `a`.
    wholes = [uri, *(whole for count in range(len(parts) - 1, 0, -1) for whole in _as_whole(parts[:count]))]
    yield from tuple(next((wishes[whole] for whole in wholes if whole in wishes), ()))


def _as_whole(parts: Sequence[str]) -> tuple[str, str]:
    path = "/".join(parts)
    return f"{path}/", path


def _too_many(message: str) -> RefusedError:
    return RefusedError(
        message, hint="Unsubscribe from one that is no longer needed first.", code="too_many_subscriptions"
    )
