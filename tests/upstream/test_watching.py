"""Watching single resources of a server: what it is asked, over every transport, and how streams follow each other."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types
import pytest
from http_fakes import Target
from mcp.server.subscriptions import ResourceUpdated as ResourceUpdatedEvent
from upstream_fakes import served

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.upstream import Connector, Fleet, Upstream, watching
from smart_mcp_proxy.upstream.protocol.session import (
    Acknowledged,
    ResourceUpdated,
    TaskTold,
    UpdatesMissed,
    build_lost_error,
    parse_change_event,
)
from smart_mcp_proxy.upstream.watching import ResourceWatch

pytestmark = pytest.mark.anyio

ONE, TWO, THREE = "memo://1", "memo://2", "memo://3"
LIMIT_S = 20.0


class WatchedTarget(Target):
    """A server of both eras that tells of single resources."""

    def __init__(self) -> None:
        super().__init__()
        self.subscribed: dict[str, Any] = {}
        low = self.mcp._mcp_server
        low.add_request_handler("resources/subscribe", mcp_types.SubscribeRequestParams, self._subscribe)
        low.add_request_handler("resources/unsubscribe", mcp_types.UnsubscribeRequestParams, self._unsubscribe)
        self.mcp.resource(ONE)(lambda: "text")

    async def _subscribe(self, ctx: Any, params: Any) -> mcp_types.EmptyResult:
        self.subscribed[str(params.uri)] = ctx.session._connection
        return mcp_types.EmptyResult()

    async def _unsubscribe(self, ctx: Any, params: Any) -> mcp_types.EmptyResult:
        del self.subscribed[str(params.uri)]
        return mcp_types.EmptyResult()

    async def touch(self, uri: str) -> None:
        """A resource has changed."""
        await self.bus.publish(ResourceUpdatedEvent(uri))
        if (connection := self.subscribed.get(uri)) is not None:
            await connection.send_resource_updated(uri)


@asynccontextmanager
async def connected(url: str, transport: str, heard: "asyncio.Queue[tuple[str, str]]") -> AsyncIterator[Upstream]:
    """The server at this address, ready."""
    config = ServerConfig(name="web", transport=transport, url=url, limits=ServerLimits(init_s=10))  # type: ignore[arg-type]
    async with Connector() as dialer:
        fleet = Fleet(
            environ=dict(os.environ),
            on_change=lambda status: None,
            on_tools_changed=lambda name: None,
            on_resource_updated=lambda server, uri: heard.put_nowait((server, uri)),
            open_session=dialer,
        )
        await fleet.apply({"web": config})
        await fleet.start()
        upstream = fleet.upstreams.get("web")
        assert upstream is not None
        assert await upstream.ready(LIMIT_S)
        yield upstream
        await fleet.close()


# The server is cut off in the middle of its streams, and leaves its own memory streams open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("transport", "era"), [("http", "modern"), ("http", "handshake"), ("sse", "handshake")])
async def test_updates_come_over_every_transport(transport: str, era: str) -> None:
    """Of what is watched, for as long as it is."""
    target, heard = WatchedTarget(), asyncio.Queue[tuple[str, str]]()
    if era == "handshake":
        del target.mcp._mcp_server._request_handlers["subscriptions/listen"]
    inner = target.mcp.http_app(transport="sse" if transport == "sse" else "http")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if era == "handshake" and (b"mcp-protocol-version", b"2026-07-28") in scope.get("headers", []):
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await inner(scope, receive, send)

    inner_lifespan = inner.router.lifespan_context
    async with served(_with_lifespan(app, inner)) as address:
        assert inner_lifespan is not None
        async with connected(f"{address}/{'sse' if transport == 'sse' else 'mcp'}", transport, heard) as upstream:
            assert upstream.status.era == era
            assert upstream.watch.is_offered
            assert await upstream.watch.add([ONE, TWO], LIMIT_S) == {}
            with anyio.fail_after(LIMIT_S):
                while heard.empty():  # the stream of a session may open a moment later
                    await target.touch(TWO)
                    await anyio.lowlevel.checkpoint()
                await upstream.watch.keep(lambda: [ONE], LIMIT_S)
                assert upstream.watch.uris == {ONE}
                await target.touch(ONE)
                while await heard.get() != ("web", ONE):
                    pass
            await upstream.watch.keep(lambda: [], LIMIT_S)
            assert not target.subscribed


def _with_lifespan(app: Any, inner: Any) -> Any:
    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        await (inner if scope["type"] == "lifespan" else app)(scope, receive, send)

    return wrapped


class FakeSession:
    """A connection whose requests stay open until the test ends them."""

    def __init__(self, era: str = "modern") -> None:
        self.era = era
        self.capabilities = {"resources": {"subscribe": True}}
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()

    async def ask(self, method: str, params: Mapping[str, Any], *, timeout_s: float) -> bytes:
        asked = Asked(method, params)
        self.asked.put_nowait(asked)
        try:
            return await asked.reply
        except asyncio.CancelledError:
            asked.is_given_up.set()
            raise


class Asked:
    """One request."""

    def __init__(self, method: str, params: Mapping[str, Any]) -> None:
        self.method = method
        self.uris = params.get("notifications", {}).get("resourceSubscriptions", params.get("uri"))
        self.tasks = params.get("notifications", {}).get("taskIds")
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.is_given_up = asyncio.Event()


class Watched:
    """A watch on a fake connection, and what it heard."""

    def __init__(self, era: str = "modern") -> None:
        self.heard: list[str] = []
        self.session = FakeSession(era)
        self.watch = ResourceWatch("fx", lambda server, uri: self.heard.append(uri))
        self.watch.attach(self.session, self.session.ask)  # type: ignore[arg-type]

    async def add(self, *uris: str, agreed: set[str] | None = None) -> Asked:
        """Watches these by a stream that the server confirms."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch.add(uris, LIMIT_S))
            asked = await self.session.asked.get()
            self.watch.hear(Acknowledged(frozenset(asked.uris if agreed is None else agreed)))
        return asked


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are opened again at once."""
    monkeypatch.setattr(watching, "_PAUSE_S", (0.0, 0.0))


@pytest.fixture(autouse=True)
async def limit() -> AsyncIterator[None]:
    """Nothing here waits for anything but itself."""
    with anyio.fail_after(LIMIT_S):
        yield


async def test_one_stream_follows_another_without_a_gap() -> None:
    """The old one is given up when the new one is confirmed, and not before."""
    watched = Watched()
    first = await watched.add(ONE)
    adding = asyncio.ensure_future(watched.watch.add([TWO], LIMIT_S))
    second = await watched.session.asked.get()
    assert second.uris == [ONE, TWO]
    assert not first.is_given_up.is_set()
    watched.watch.hear(Acknowledged(frozenset({ONE, TWO})))
    assert await adding == {}
    await first.is_given_up.wait()
    assert (watched.watch.uris, watched.heard) == ({ONE, TWO}, [])
    watched.watch.detach()
    await second.is_given_up.wait()


async def test_a_stream_that_is_refused_leaves_the_one_before() -> None:
    """Why is for whoever asked."""
    watched = Watched()
    first = await watched.add(ONE)
    adding = asyncio.ensure_future(watched.watch.add([TWO], LIMIT_S))
    error = UpstreamError("no", delivery="executed")
    (await watched.session.asked.get()).reply.set_exception(error)
    assert await adding == {TWO: error}
    assert watched.watch.uris == {ONE}
    assert not first.is_given_up.is_set()
    watched.watch.detach()


async def test_a_stream_that_nobody_confirms_is_given_up() -> None:
    """In the time there is; the one before goes on."""
    watched = Watched()
    first = await watched.add(ONE)
    failures = await watched.watch.add([TWO], 0.05)
    assert "did not answer" in failures[TWO].message
    await (await watched.session.asked.get()).is_given_up.wait()
    assert watched.watch.uris == {ONE}
    assert not first.is_given_up.is_set()
    watched.watch.detach()


async def test_what_a_server_does_not_agree_to_is_not_watched() -> None:
    """Of the rest it tells."""
    watched = Watched()
    adding = asyncio.ensure_future(watched.watch.add([ONE, TWO], LIMIT_S))
    await watched.session.asked.get()
    watched.watch.hear(Acknowledged(frozenset({ONE})))
    failures = await adding
    assert (set(failures), watched.watch.uris) == ({TWO}, {ONE})
    assert "'memo://2'" in failures[TWO].message
    watched.watch.detach()


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_stream_that_ends_is_opened_again(is_lost: bool) -> None:
    """What it told of may have changed meanwhile."""
    watched = Watched()
    first = await watched.add(ONE, TWO)
    if is_lost:
        first.reply.set_exception(build_lost_error("fx", "was cut", was_sent=True))
    else:
        first.reply.set_result(b"{}")
    again = await watched.session.asked.get()
    assert again.uris == [ONE, TWO]
    assert watched.heard == []
    watched.watch.hear(Acknowledged(frozenset({ONE, TWO})))
    await anyio.wait_all_tasks_blocked()
    assert sorted(watched.heard) == [ONE, TWO]
    watched.watch.detach()
    await again.is_given_up.wait()


@pytest.mark.usefixtures("no_pause")
async def test_a_stream_that_ends_while_its_successor_is_refused_is_opened_again() -> None:
    """Nobody else would."""
    watched = Watched()
    first = await watched.add(ONE)
    adding = asyncio.ensure_future(watched.watch.add([TWO], LIMIT_S))
    second = await watched.session.asked.get()
    first.reply.set_result(b"{}")
    await anyio.wait_all_tasks_blocked()
    second.reply.set_exception(UpstreamError("no"))
    assert set(await adding) == {TWO}
    again = await watched.session.asked.get()
    assert again.uris == [ONE]
    watched.watch.hear(Acknowledged(frozenset({ONE})))
    await anyio.wait_all_tasks_blocked()
    assert watched.heard == [ONE]
    watched.watch.detach()


async def test_the_end_of_a_connection_ends_what_was_under_way() -> None:
    """A stream that is confirmed too late is not opened again and again on a dead connection."""
    watched = Watched()
    adding = asyncio.ensure_future(watched.watch.add([ONE], LIMIT_S))
    asked = await watched.session.asked.get()
    watched.watch.detach()
    asked.reply.set_exception(build_lost_error("fx", "ended", was_sent=True))
    assert set(await adding) == {ONE}
    assert watched.watch.uris == frozenset()
    assert watched.session.asked.empty()
    assert (await watched.watch.add([ONE], LIMIT_S))[ONE].delivery == "not_sent"


async def test_what_is_wanted_again_in_time_stays() -> None:
    """Who is wanted is asked when it is the change's turn."""
    watched, wanted = Watched("handshake"), {ONE}
    adding = asyncio.ensure_future(watched.watch.add([ONE, TWO], LIMIT_S))
    asked = [await watched.session.asked.get() for _ in range(2)]
    ending = asyncio.ensure_future(watched.watch.keep(lambda: wanted, LIMIT_S))
    await anyio.wait_all_tasks_blocked()
    wanted.add(TWO)
    for each in asked:
        each.reply.set_result(b"{}")
    assert await adding == {}
    await ending
    assert watched.watch.uris == {ONE, TWO}
    assert watched.session.asked.empty()


async def test_after_a_gap_in_its_stream_all_of_a_session_may_have_changed() -> None:
    """In the handshake era nobody else says so."""
    watched = Watched("handshake")
    adding = asyncio.ensure_future(watched.watch.add([ONE], LIMIT_S))
    (await watched.session.asked.get()).reply.set_result(b"{}")
    assert await adding == {}
    watched.watch.hear(UpdatesMissed())
    watched.watch.hear(ResourceUpdated(THREE))
    assert watched.heard == [ONE, THREE]


@pytest.mark.parametrize(
    ("method", "params", "event"),
    [
        ("resources/updated", b'{"uri":"a://b","title":1}', ResourceUpdated("a://b")),
        ("resources/updated", b'{"uri":7}', None),
        ("resources/updated", b"", None),
        ("subscriptions/acknowledged", b'{"notifications":{"toolsListChanged":true}}', None),
        ("subscriptions/acknowledged", b'{"notifications":{}}', Acknowledged(frozenset())),
        (
            "subscriptions/acknowledged",
            b'{"notifications":{"resourceSubscriptions":["a"]}}',
            Acknowledged(frozenset("a")),
        ),
        (
            "subscriptions/acknowledged",
            b'{"notifications":{"taskIds":["t"]}}',
            Acknowledged(frozenset(), frozenset("t")),
        ),
        ("tasks", b'{"taskId":"t","status":"working"}', TaskTold("t", b'{"taskId":"t","status":"working"}')),
        ("tasks", b'{"taskId":7}', None),
        ("tasks", b"[]", None),
        ("tasks/status", b'{"taskId":"t","status":"working"}', None),
        ("somethingElse", b"{}", None),
    ],
)
async def test_a_notification_is_read_or_skipped(method: str, params: bytes, event: Any) -> None:
    """Whatever a server makes of it."""
    assert parse_change_event(f"notifications/{method}", params) == event


async def test_tasks_are_told_of_on_a_stream_of_their_own_to_those_who_follow_them() -> None:
    """It names what is followed now, is told from that of resources, and ends with the last follower."""
    watched = Watched()
    watch, asked = watched.watch, watched.session.asked
    resources = await watched.add(ONE)
    with watch.tasks.watch_task("a") as first:
        stream = await asked.get()
        assert (stream.tasks, stream.uris) == (["a"], None)
        watch.hear(Acknowledged(frozenset(), frozenset("a")))
        with watch.tasks.watch_task("a") as second, watch.tasks.watch_task("b") as other:
            both = await asked.get()
            assert both.tasks == ["a", "b"] and not stream.is_given_up.is_set()
            watch.hear(Acknowledged(frozenset(), frozenset("ab")))
            await stream.is_given_up.wait()
            for number in range(20):
                watch.hear(TaskTold("a", b"%d" % number))
            watch.hear(TaskTold("nobodys", b"x"))
            states = [first.get_nowait() for _ in range(first.qsize())]
            assert states == [second.get_nowait() for _ in states] == [b"%d" % number for number in range(4, 20)]
            assert other.empty()
        alone = await asked.get()
        assert alone.tasks == ["a"]
        watch.hear(Acknowledged(frozenset(), frozenset("a")))
        await both.is_given_up.wait()
    await alone.is_given_up.wait()
    assert watch.tasks.active_tasks == frozenset() and not resources.is_given_up.is_set()
    watch.detach()


async def test_a_new_connection_is_asked_for_the_tasks_that_are_followed() -> None:
    """And one that tells of no tasks, or of none of these, is not asked again."""
    watched = Watched()
    with watched.watch.tasks.watch_task("a"):
        refused = await watched.session.asked.get()
        refused.reply.set_exception(UpstreamError("Method not found", delivery="executed"))
        with watched.watch.tasks.watch_task("b"):
            silent = await watched.session.asked.get()
            assert silent.tasks == ["b"]
            watched.watch.hear(Acknowledged(frozenset()))
            await silent.is_given_up.wait()
        watched.watch.detach()
        watched.watch.attach(watched.session, watched.session.ask)  # type: ignore[arg-type]
        assert (await watched.session.asked.get()).tasks == ["a"]
        watched.watch.hear(Acknowledged(frozenset(), frozenset("a")))
        await anyio.wait_all_tasks_blocked()
        assert watched.watch.tasks.active_tasks == {"a"}
    watched.watch.detach()
