"""Sessions that belong to one client: when they open and close, and to whom their server talks."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import msgspec
import pytest
from fastmcp import Context, FastMCP
from upstream_fakes import fake_config, served

from smart_mcp_proxy.errors import RateLimitedError, RequestError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.models import ClientLine, Era
from smart_mcp_proxy.servers import Limits, ServerConfig
from smart_mcp_proxy.upstream import Dialer
from smart_mcp_proxy.upstream.codec import Envelope
from smart_mcp_proxy.upstream.conversation import Conversation
from smart_mcp_proxy.upstream.link import Link, OnEvent, Peer, ToolsChanged, lost_error
from smart_mcp_proxy.upstream.own import OwnConnection, OwnConnections

pytestmark = pytest.mark.anyio

CAPABILITIES = {"elicitation": {}, "roots": {}}


class FakeLine:
    """A request of a client's."""

    def __init__(self, client: str) -> None:
        self.client = client

    async def ask(self, method: str, params: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        return {"line": self.client}

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        raise AssertionError("the side tells")


class FakeSide:
    """A client that answers when it is let, and notes what it hears."""

    def __init__(self) -> None:
        self.capabilities: Mapping[str, Any] = CAPABILITIES
        self.may_answer = asyncio.Event()
        self.is_asked = asyncio.Event()
        self.heard: list[tuple[str, str | None]] = []
        self.error: Exception | None = None

    async def answer(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> Mapping[str, Any]:
        self.is_asked.set()
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return {"line": line.client if line is not None else None}

    async def hear(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> None:
        self.heard.append((params["data"], str(line.client) if line is not None else None))


class FakeLink:
    """A session that is asked by its test."""

    protocol_version, server_info = "2025-11-25", "fake"

    def __init__(self, era: Era = "handshake") -> None:
        self.era: Era = era
        self.capabilities: Mapping[str, Any] = {"tools": {}, "logging": {}}
        self.sent: list[str] = []
        self.reply: Callable[[str], Awaitable[bytes]] | None = None
        self.is_closed = False
        self._end = asyncio.Event()
        self.tools = [{"name": "a", "inputSchema": {"type": "object"}}]

    async def request(self, method: str, params: Mapping[str, Any], *, timeout_s: float, **_: Any) -> bytes:
        self.sent.append(method)
        if method == "tools/list":
            return json.dumps({"tools": self.tools}).encode()
        return await self.reply(method) if self.reply is not None else b"{}"

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.sent.append(method)

    async def close(self) -> None:
        self.is_closed = True
        self._end.set()

    def end(self) -> None:
        self._end.set()

    async def wait_closed(self) -> UpstreamError:
        await self._end.wait()
        return lost_error("fake", "ended", was_sent=True)


class Opener:
    """Opens fake sessions, as many as are asked for."""

    def __init__(self) -> None:
        self.links: list[FakeLink] = []
        self.events: list[OnEvent] = []
        self.peers: list[Peer] = []
        self.era: Era = "handshake"
        self.error: UpstreamError | None = None

    async def __call__(self, config: ServerConfig, era: Era | None, on_event: OnEvent, peer: Peer) -> Link:
        assert era == "handshake"
        if self.error is not None:
            raise self.error
        self.links.append(FakeLink(self.era))
        self.events.append(on_event)
        self.peers.append(peer)
        return self.links[-1]


@asynccontextmanager
async def pool(opener: Opener, **limits: Any) -> AsyncIterator[OwnConnections]:
    """The sessions with one server."""
    config = fake_config(limits=replace(Limits(), **limits))

    async def expanded() -> ServerConfig:
        return config

    own = OwnConnections(lambda: config, expanded, opener)
    try:
        yield own
    finally:
        await own.close()


async def test_a_client_has_one_session_however_many_of_its_requests_ask_for_it_at_once() -> None:
    """And another client another one."""
    opener = Opener()
    async with pool(opener) as own:

        async def use(client: str) -> OwnConnection | None:
            async with own.used_by(client, FakeSide()) as connection:
                return connection

        first, second, third = await asyncio.gather(use("a"), use("a"), use("b"))
        assert first is second is not third
        assert len(opener.links) == len(own) == 2
        assert own.find("a") is first and own.find("c") is None
    assert all(link.is_closed for link in opener.links)


async def test_a_session_that_ends_makes_room_for_the_next_one() -> None:
    """The dead one is never handed out again."""
    opener = Opener()
    async with pool(opener) as own:
        async with own.used_by("a", FakeSide()) as first:
            opener.links[0].end()
            with anyio.fail_after(5):
                while own.find("a") is not None:
                    await anyio.lowlevel.checkpoint()
        async with own.used_by("a", FakeSide()) as second:
            assert second is not first


async def test_an_opening_that_fails_says_so_to_all_that_wait_and_is_tried_again() -> None:
    """Nothing of the failure stays."""
    opener = Opener()
    opener.error = lost_error("fake", "ended with exit code 1", was_sent=False)
    async with pool(opener) as own:
        for _ in range(2):
            with pytest.raises(UpstreamError, match="exit code 1"):
                async with own.used_by("a", FakeSide()):
                    pass
        assert len(own) == 0
        opener.error = None
        async with own.used_by("a", FakeSide()) as connection:
            assert connection is not None


async def test_a_server_that_has_left_the_handshake_era_is_not_asked_for_sessions_again() -> None:
    """Its clients share the one there is."""
    opener = Opener()
    opener.era = "modern"
    async with pool(opener) as own:
        for _ in range(3):
            async with own.used_by("a", FakeSide()) as connection:
                assert connection is None
        assert len(opener.links) == 1
        with anyio.fail_after(5):
            while not opener.links[0].is_closed:
                await anyio.lowlevel.checkpoint()


async def test_one_client_too_many_is_refused_and_let_in_when_another_has_left() -> None:
    """The refusal names the limit and who can raise it."""
    async with pool(Opener(), client_connections=1) as own:
        async with own.used_by("a", FakeSide()):
            with pytest.raises(RateLimitedError, match="connections of 1 clients open, its limit") as refused:
                async with own.used_by("b", FakeSide()):
                    pass
            assert "'client_connections' under 'limits'" in refused.value.hint
            assert refused.value.delivery == "not_sent"
        await own.drop("a")
        async with own.used_by("b", FakeSide()) as connection:
            assert connection is not None


async def test_whoever_waits_for_a_session_of_a_client_that_leaves_is_told() -> None:
    """Even where its opening had not begun."""
    async with pool(Opener()) as own:

        async def use() -> None:
            async with own.used_by("a", FakeSide()):
                raise AssertionError("the client is gone")

        waiting = asyncio.create_task(use())
        while not len(own):
            await asyncio.sleep(0)
        await own.drop("a")
        with anyio.fail_after(5), pytest.raises(UpstreamError, match="was stopped"):
            await waiting


async def test_a_list_is_fetched_once_and_again_when_the_server_says_that_it_changed() -> None:
    """Also where it says so while the list is on its way."""
    opener = Opener()
    async with pool(opener) as own, own.used_by("a", FakeSide()) as connection:
        assert connection is not None
        link = opener.links[0]
        first = await connection.listing("tools")
        assert await connection.listing("tools") is first is connection.known("tools")
        opener.events[0](ToolsChanged())
        assert connection.known("tools") is None
        link.tools = []
        assert (await connection.listing("tools")).definitions == ()
        assert link.sent.count("tools/list") == 2
        assert (await connection.listing("prompts")).definitions == ()  # it declares none


def conversing(side: FakeSide) -> tuple[Conversation, Callable[..., bool], list[Any]]:
    """A conversation, a way for its server to say something, and the replies it gets."""
    conversation, replies = Conversation("fake", side), list[Any]()

    def say(method: str, id_: Any = None, **params: Any) -> bool:
        text = msgspec.json.encode(
            {"jsonrpc": "2.0", "method": method, "params": params} | ({"id": id_} if id_ else {})
        )
        return conversation.take(msgspec.json.decode(text, type=Envelope), lambda reply: replies.append(_plain(reply)))

    return conversation, say, replies


def _plain(reply: Mapping[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(reply))


async def settled(conversation: Conversation) -> None:
    """Returns when no question is open and nothing waits to be told."""
    with anyio.fail_after(5):
        while conversation._questions or conversation._waiting:
            await anyio.lowlevel.checkpoint()
    await conversation.flush()


async def test_a_question_goes_to_the_request_under_way_and_its_answer_back() -> None:
    """Outside of any request to the client at large."""
    side = FakeSide()
    side.may_answer.set()
    conversation, say, replies = conversing(side)
    assert say("roots/list", 1)
    await settled(conversation)
    async with asyncio.timeout(5) as deadline:
        with conversation.under_way(FakeLine("a"), deadline):
            assert say("elicitation/create", "x", message="?")
            assert say("notifications/message", data="log")
            await settled(conversation)
    assert [(reply["id"], reply["result"]["line"]) for reply in replies] == [(1, None), ("x", "a")]
    assert side.heard == [("log", "a")]


async def test_what_the_client_did_not_declare_and_what_is_not_for_it_is_left_to_the_session() -> None:
    """Sampling was not declared here; a changed list concerns the gateway."""
    conversation, say, replies = conversing(FakeSide())
    assert not say("sampling/createMessage", 1)
    assert not say("something/else", 2)
    assert not say("notifications/tools/list_changed")
    assert replies == []
    await conversation.close()


async def test_the_clients_own_error_reaches_the_server_with_its_code() -> None:
    """And an error of the gateway's with its words."""
    side = FakeSide()
    side.may_answer.set()
    side.error = RequestError("It said no.", data={"client_code": -1, "client_message": "User rejected"})
    conversation, say, replies = conversing(side)
    say("roots/list", 1)
    await settled(conversation)
    side.error = RequestError("The client did not answer.")
    say("roots/list", 2)
    await settled(conversation)
    assert replies[0]["error"] == {"code": -1, "message": "User rejected"}
    assert replies[1]["error"]["message"].startswith("The client did not answer.")


async def test_a_question_that_the_server_takes_back_is_not_answered() -> None:
    """However the id is spelled."""
    side = FakeSide()
    conversation, say, replies = conversing(side)
    say("roots/list", "q/1")
    await side.is_asked.wait()
    assert say("notifications/cancelled", requestId="q/1")
    await settled(conversation)
    assert replies == []


async def test_when_nobody_can_answer_any_more_open_questions_and_later_ones_are_refused() -> None:
    """So that the server goes on without."""
    conversation, say, replies = conversing(FakeSide())
    say("roots/list", 1)
    conversation.stop_asking()
    await settled(conversation)
    say("roots/list", 2)
    assert [reply["error"]["message"] for reply in replies] == ["The client cannot answer any more."] * 2


async def test_more_questions_than_anybody_answers_are_refused() -> None:
    """The ninth, and one with an id that is in use."""
    conversation, say, replies = conversing(FakeSide())
    for number in range(1, 10):
        say("roots/list", number)
    say("roots/list", 1)
    assert [reply["id"] for reply in replies] == [9, 1]
    await conversation.close()


async def test_the_deadline_of_a_request_stands_still_while_its_client_is_asked() -> None:
    """A person takes longer than a server may; when the answer is there, the clock goes on."""
    opener, side = Opener(), FakeSide()
    async with pool(opener) as own, own.used_by("a", side) as connection:
        assert connection is not None
        link, peer = opener.links[0], opener.peers[0]
        is_replied = asyncio.Event()

        async def ask_first(method: str) -> bytes:
            peer.take(Envelope(id=msgspec.Raw(b"1"), method="roots/list"), lambda reply: is_replied.set())
            await is_replied.wait()
            return b"{}"

        async def hang(method: str) -> bytes:
            await asyncio.Event().wait()
            return b""

        async def answer_late() -> None:
            await side.is_asked.wait()
            with anyio.move_on_after(0.5):  # many times the request's own time
                await asyncio.Event().wait()
            side.may_answer.set()

        link.reply = ask_first
        async with asyncio.TaskGroup() as group:
            group.create_task(answer_late())
            assert await connection.request("tools/call", {}, FakeLine("a"), timeout_s=0.1) == b"{}"
        link.reply = hang
        with pytest.raises(UpstreamTimeoutError, match=r"within 0\.1 s"):
            await connection.request("tools/call", {}, FakeLine("a"), timeout_s=0.1)


async def test_over_http_a_question_goes_to_the_very_request_that_it_came_with() -> None:
    """Two requests are under way at once; the older one asks last."""
    mcp = FastMCP("asks")
    turns = {"first": asyncio.Event(), "second": asyncio.Event()}

    @mcp.tool
    async def ask(context: Context, name: str) -> str:
        turns["second" if name == "first" else "first"].set()
        await turns[name].wait()
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.session.elicit_form("Who?", schema, related_request_id=context.request_id)
        return str((answer.content or {})["name"])

    class Side(FakeSide):
        async def answer(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> Mapping[str, Any]:
            return {"action": "accept", "content": {"name": str(line.client) if line is not None else "nobody"}}

    async with _served_http(mcp) as url, Dialer() as dialer:
        config = fake_config(transport="http", command="", url=url)

        async def expanded() -> ServerConfig:
            return config

        async def opened(config: ServerConfig, era: Era | None, on_event: OnEvent, peer: Peer) -> Link:
            return await dialer(config, environ=dict(os.environ), era=era, on_event=on_event, peer=peer)

        own = OwnConnections(lambda: config, expanded, opened)
        async with own.used_by("a", Side()) as connection:
            assert connection is not None

            async def call(name: str) -> bytes:
                params = {"name": "ask", "arguments": {"name": name}}
                return await connection.request("tools/call", params, FakeLine(name), timeout_s=20)

            first, second = await asyncio.gather(call("first"), call("second"))
        await own.close()
    assert json.loads(first)["content"][0]["text"] == "first"
    assert json.loads(second)["content"][0]["text"] == "second"


@asynccontextmanager
async def _served_http(mcp: FastMCP) -> AsyncIterator[str]:
    app = mcp.http_app(path="/mcp")
    async with app.lifespan(app), served(app) as base:
        yield f"{base}/mcp"
