"""Sessions that belong to one client: when they open and close, and to whom their server talks."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from fastmcp import Context, FastMCP
from upstream_fakes import fake_config, served

from smart_mcp_proxy.errors import (
    RateLimitedError,
    RequestError,
    UpstreamAuthError,
    UpstreamError,
    UpstreamTimeoutError,
)
from smart_mcp_proxy.models import ClientLine, Era
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.telemetry import secrets_hidden
from smart_mcp_proxy.upstream import Connector, Upstream
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.per_client import LISTINGS, OwnConnection, OwnConnections
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession
from smart_mcp_proxy.upstream.protocol.codec import Envelope
from smart_mcp_proxy.upstream.protocol.server_requests import _GONE, Conversation
from smart_mcp_proxy.upstream.protocol.session import OnEvent, ToolsChanged, build_lost_error, rpc_error, timeout_error
from smart_mcp_proxy.upstream.stdio.stdio import open_stdio

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


class FakeSession:
    """A session that is asked by its test."""

    protocol_version, server_info, run = "2025-11-25", "fake", ""

    def __init__(self, era: Era = "handshake") -> None:
        self.era: Era = era
        self.capabilities: Mapping[str, Any] = {"tools": {}, "logging": {}}
        self.sent: list[str] = []
        self.reply: Callable[[str], Awaitable[bytes]] | None = None
        self.is_closed = False
        self.may_close = asyncio.Event()
        self.may_close.set()
        self.may_notify = asyncio.Event()
        self.may_notify.set()
        self.on_listed: Callable[[], None] = lambda: None
        self._end = asyncio.Event()
        self.tools = [{"name": "a", "inputSchema": {"type": "object"}}]

    async def request(self, method: str, params: Mapping[str, Any], *, timeout_s: float, **_: Any) -> RawResult:
        self.sent.append(method)
        if method == "tools/list":
            self.on_listed()
            return RawResult(json.dumps({"tools": self.tools}).encode())
        return RawResult(await self.reply(method) if self.reply is not None else b"{}")

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.sent.append(method)
        await self.may_notify.wait()

    async def close(self) -> None:
        await self.may_close.wait()
        self.is_closed = True
        self._end.set()

    def end(self) -> None:
        self._end.set()

    async def wait_closed(self) -> UpstreamError:
        await self._end.wait()
        return build_lost_error("fake", "ended", was_sent=True)


class Opener:
    """Opens fake sessions, as many as are asked for."""

    def __init__(self) -> None:
        self.links: list[FakeSession] = []
        self.events: list[OnEvent] = []
        self.peers: list[Conversation] = []
        self.era: Era = "handshake"
        self.error: UpstreamError | None = None

    async def __call__(
        self, config: ServerConfig, era: Era | None, on_event: OnEvent, peer: Conversation
    ) -> UpstreamSession:
        assert era == "handshake"
        if self.error is not None:
            raise self.error
        self.links.append(FakeSession(self.era))
        self.events.append(on_event)
        self.peers.append(peer)
        return self.links[-1]


@asynccontextmanager
async def pool(opener: Opener, **limits: Any) -> AsyncIterator[OwnConnections]:
    """The sessions with one server."""
    config = fake_config(limits=msgspec.structs.replace(ServerLimits(), **limits))

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
            async with own.use_connection(client, FakeSide()) as connection:
                return connection

        first, second, third = await asyncio.gather(use("a"), use("a"), use("b"))
        assert first is second is not third
        assert len(opener.links) == len(own) == 2
        assert own.find("a") is first and own.find("c") is None
    assert all(session.is_closed for session in opener.links)


async def test_a_session_that_ends_makes_room_for_the_next_one() -> None:
    """The dead one is never handed out again."""
    opener = Opener()
    async with pool(opener) as own:
        async with own.use_connection("a", FakeSide()) as first:
            opener.links[0].end()
            with anyio.fail_after(20):
                while own.find("a") is not None:
                    await anyio.lowlevel.checkpoint()
        async with own.use_connection("a", FakeSide()) as second:
            assert second is not first


async def test_an_opening_that_fails_says_so_to_all_that_wait_and_is_tried_again() -> None:
    """Nothing of the failure stays."""
    opener = Opener()
    opener.error = build_lost_error("fake", "ended with exit code 1", was_sent=False)
    async with pool(opener) as own:
        for _ in range(2):
            with pytest.raises(UpstreamError, match="exit code 1"):
                async with own.use_connection("a", FakeSide()):
                    pass
        assert len(own) == 0
        opener.error = None
        async with own.use_connection("a", FakeSide()) as connection:
            assert connection is not None


async def test_a_server_that_has_left_the_handshake_era_is_not_asked_for_sessions_again() -> None:
    """Its clients share the one there is."""
    opener = Opener()
    opener.era = "modern"
    async with pool(opener) as own:
        for _ in range(3):
            async with own.use_connection("a", FakeSide()) as connection:
                assert connection is None
        assert len(opener.links) == 1
        with anyio.fail_after(20):
            while not opener.links[0].is_closed:
                await anyio.lowlevel.checkpoint()


async def test_one_client_too_many_is_refused_while_the_others_are_busy_and_let_in_when_one_is_done() -> None:
    """The refusal names the limit and who can raise it."""
    async with pool(Opener(), client_connections=1) as own:
        async with own.use_connection("a", FakeSide()):
            with pytest.raises(RateLimitedError, match="connections of 1 clients in use, its limit") as refused:
                async with own.use_connection("b", FakeSide()):
                    pass
            assert "'client_connections' under 'limits'" in refused.value.hint
            assert refused.value.delivery == "not_sent"
        async with own.use_connection("b", FakeSide()) as connection:
            assert connection is not None


async def test_where_all_places_are_taken_the_session_that_was_idle_longest_makes_room() -> None:
    """Not one in use, however old; and nobody waits for the end of the one that goes."""
    opener = Opener()
    with anyio.fail_after(10):
        async with pool(opener, client_connections=3) as own, own.use_connection("busy", FakeSide()):
            for client in ("b", "c", "b"):
                async with own.use_connection(client, FakeSide()):
                    pass
            _, kept, ending = opener.links
            ending.may_close.clear()
            async with own.use_connection("d", FakeSide()) as connection:
                assert connection is not None
            assert own.find("busy") is not None and own.find("b") is not None and own.find("c") is None
            assert not ending.is_closed and not kept.is_closed
            ending.may_close.set()
            while not ending.is_closed:
                await anyio.lowlevel.checkpoint()


async def test_after_a_stop_no_session_is_opened_until_the_server_starts_again() -> None:
    """A call that comes in the middle of it is told, and was not sent."""
    opener = Opener()
    links: list[FakeSession] = []

    async def open_session(
        config: ServerConfig, *, peer: Conversation | None = None, on_event: OnEvent, **_: Any
    ) -> UpstreamSession:
        if peer is not None:
            return await opener(config, "handshake", on_event, peer)
        links.append(FakeSession())
        return links[-1]

    upstream = Upstream(
        fake_config(connection="per_client"),
        environ={},
        on_change=lambda status: None,
        on_tools_changed=lambda name: None,
        open_session=open_session,
        start_gate=asyncio.Semaphore(1),
    )
    own = upstream.own
    assert own is not None
    with anyio.fail_after(10):
        await upstream.start()
        assert await upstream.ready(5)
        async with own.use_connection("a", FakeSide()):
            pass
        links[0].may_close.clear()
        stopping = asyncio.create_task(upstream.stop())
        while not opener.links[0].is_closed:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(UpstreamError, match="was stopped") as refused:
            async with own.use_connection("a", FakeSide()):
                pass
        assert refused.value.delivery == "not_sent" and len(opener.links) == 1
        links[0].may_close.set()
        await stopping
        await upstream.start()
        async with own.use_connection("a", FakeSide()) as connection:
            assert connection is not None
        await upstream.stop()


@pytest.mark.parametrize(
    "error",
    [
        rpc_error("fake", "initialize", -32603, "not today", {"why": "closed"}),
        timeout_error("fake", "initialize", 4, was_sent=True),
        UpstreamAuthError("Sign in.", hint="At the desk.", delivery="unknown", data={"http_status": 401}),
    ],
    ids=["refused", "late", "sign-in"],
)
async def test_a_failure_before_the_request_is_no_answer_to_the_request(error: UpstreamError) -> None:
    """Whether the session cannot be opened or the list cannot be had: nothing was sent."""
    opener = Opener()
    async with pool(opener) as own:
        opener.error = error
        with pytest.raises(type(error)) as opening:
            async with own.use_connection("a", FakeSide()):
                pass
        opener.error = None
        async with own.use_connection("a", FakeSide()) as connection:
            assert connection is not None
            opener.links[0].on_listed = raising(error)
            with pytest.raises(type(error)) as listing:
                await connection.fetch_listing("tools")
    for raised in (opening.value, listing.value):
        assert (raised.message, raised.hint, raised.delivery) == (error.message, error.hint, "not_sent")
        assert raised.data == ({"http_status": 401} if isinstance(error, UpstreamAuthError) else None)


def raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


async def test_a_list_that_changes_whenever_it_is_read_is_given_up() -> None:
    """After a few looks; when it holds still again it is read as ever."""
    opener = Opener()
    async with pool(opener) as own, own.use_connection("a", FakeSide()) as connection:
        assert connection is not None
        session = opener.links[0]
        session.on_listed = lambda: opener.events[0](ToolsChanged())
        with anyio.fail_after(20), pytest.raises(UpstreamError, match="does not hold still") as given_up:
            await connection.fetch_listing("tools")
        assert given_up.value.delivery == "not_sent" and session.sent.count("tools/list") == LISTINGS
        session.on_listed = lambda: None
        assert await connection.fetch_listing("tools") is connection.get_fresh_listing("tools")


async def test_of_many_changes_of_its_roots_a_server_that_does_not_read_is_told_once() -> None:
    """And again of the next one after it has read that."""
    opener = Opener()
    async with pool(opener) as own, own.use_connection("a", FakeSide()) as connection:
        assert connection is not None
        session = opener.links[0]
        session.may_notify.clear()
        for _ in range(100):
            connection.roots_changed()
            await anyio.lowlevel.checkpoint()
        assert session.sent == ["notifications/roots/list_changed"]
        session.may_notify.set()
        with anyio.fail_after(20):
            while len(session.sent) < 2:
                connection.roots_changed()
                await anyio.lowlevel.checkpoint()


async def test_whoever_waits_for_a_session_of_a_client_that_leaves_is_told() -> None:
    """Even where its opening had not begun."""
    async with pool(Opener()) as own:

        async def use() -> None:
            async with own.use_connection("a", FakeSide()):
                raise AssertionError("the client is gone")

        waiting = asyncio.create_task(use())
        while not len(own):
            await asyncio.sleep(0)
        await own.drop("a")
        with anyio.fail_after(20), pytest.raises(UpstreamError, match="was stopped"):
            await waiting


async def test_a_list_is_fetched_once_and_again_when_the_server_says_that_it_changed() -> None:
    """Also where it says so while the list is on its way."""
    opener = Opener()
    async with pool(opener) as own, own.use_connection("a", FakeSide()) as connection:
        assert connection is not None
        session = opener.links[0]
        first = await connection.fetch_listing("tools")
        assert await connection.fetch_listing("tools") is first is connection.get_fresh_listing("tools")
        opener.events[0](ToolsChanged())
        assert connection.get_fresh_listing("tools") is None
        session.tools = []
        assert (await connection.fetch_listing("tools")).definitions == ()
        assert session.sent.count("tools/list") == 2
        assert (await connection.fetch_listing("prompts")).definitions == ()  # it declares none


def conversing(
    side: FakeSide, may_reply: asyncio.Event | None = None
) -> tuple[Conversation, Callable[..., bool], list[Any]]:
    """A conversation, a way for its server to say something, and the replies it gets.

    Args:
        side: The client.
        may_reply: Set when the server reads answers; None if it always does.
    """
    conversation, replies = Conversation("fake", side), list[Any]()
    if may_reply is None:
        may_reply = asyncio.Event()
        may_reply.set()

    def say(method: str, id_: Any = None, **params: Any) -> bool:
        text = msgspec.json.encode(
            {"jsonrpc": "2.0", "method": method, "params": params} | ({"id": id_} if id_ else {})
        )
        message = msgspec.json.decode(text, type=Envelope)

        async def reply(reply: Mapping[str, Any]) -> None:
            await may_reply.wait()
            replies.append(_plain(reply))

        return conversation.take(message, lambda reply: replies.append(_plain(reply)), reply)

    return conversation, say, replies


def _plain(reply: Mapping[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(reply))


async def settled(conversation: Conversation) -> None:
    """Returns when no question is open and nothing waits to be told."""
    with anyio.fail_after(20):
        while conversation._questions or conversation._waiting or conversation._replies:
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
    """Sampling was not declared here; a changed list concerns the gateway, and so does a ping."""
    conversation, say, replies = conversing(FakeSide())
    assert not say("ping", 3)
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


async def test_a_question_whose_request_is_over_is_refused_and_not_left_open() -> None:
    """The server would wait for ever; only one that it took back itself, or whose session is over, has no reply."""
    side = FakeSide()
    conversation, say, replies = conversing(side)
    async with asyncio.timeout(5) as deadline:
        with conversation.under_way(FakeLine("a"), deadline):
            say("roots/list", 1)
            await side.is_asked.wait()
    await settled(conversation)
    assert [(reply["id"], reply["error"]["message"]) for reply in replies] == [(1, _GONE)]
    say("roots/list", 2)
    await conversation.close()
    assert len(replies) == 1


async def test_a_question_whose_guessed_request_ends_before_it_is_asked_goes_to_another_one() -> None:
    """Over pipes nobody can tell to which of two requests it belongs; the stream of the one is closed by then."""

    class Side(FakeSide):
        async def answer(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> Mapping[str, Any]:
            self.is_asked.set()
            await self.may_answer.wait()
            if line is not None and line.client == "over":
                raise RequestError("It has no stream.", code="input_unavailable")
            return await super().answer(method, params, line)

    side = Side()
    conversation, say, replies = conversing(side)
    reader = copy_context()  # of neither request
    async with asyncio.timeout(5) as deadline:
        with conversation.under_way(FakeLine("open"), deadline):
            with conversation.under_way(FakeLine("over"), deadline):
                reader.run(say, "roots/list", 1)
                await side.is_asked.wait()
            side.may_answer.set()
            await settled(conversation)
    assert [reply["result"] for reply in replies] == [{"line": "open"}]


async def test_an_answer_waits_for_a_server_that_is_slow_to_read_and_counts_as_a_question_until_then() -> None:
    """Also where the result of its request has overtaken it; a server that never reads gets no ninth answer."""
    side, may_reply = FakeSide(), asyncio.Event()
    side.may_answer.set()
    conversation, say, replies = conversing(side, may_reply)
    async with asyncio.timeout(5) as deadline:
        with conversation.under_way(FakeLine("a"), deadline):
            for number in range(1, 9):
                say("roots/list", number)
            while conversation._questions:
                await anyio.lowlevel.checkpoint()
    say("roots/list", 9)
    assert [reply["id"] for reply in replies] == [9] and "error" in replies[0]
    may_reply.set()
    await settled(conversation)
    assert [(reply["id"], reply["result"]) for reply in replies[1:]] == [(n, {"line": "a"}) for n in range(1, 9)]


async def test_an_answer_reaches_a_process_whose_input_was_full_when_the_user_gave_it(tmp_path: Path) -> None:
    """It is written when there is room again."""
    side, gate = FakeSide(), tmp_path / "gate"
    os.mkfifo(gate)
    conversation = Conversation("fake", side)
    session = await open_stdio(
        SessionOptions(
            fake_config(args=("-S", "-E", "-c", SLOW_READER, str(gate))),
            lambda event: None,
            "handshake",
            conversation,
            dict(os.environ),
        )
    )
    try:
        with anyio.fail_after(20):
            call = asyncio.create_task(session.request("tools/call", {}, timeout_s=20))
            await side.is_asked.wait()
            await session.notify("notifications/big", {"text": "x" * (1 << 20)})
            side.may_answer.set()
            while conversation._questions:
                await anyio.lowlevel.checkpoint()
            assert conversation._replies
            await asyncio.to_thread(gate.write_text, "go")
            assert json.loads((await call).text) == {"answer": {"line": None}}
    finally:
        await session.close()
        await conversation.close()


SLOW_READER = """
import json, sys
def send(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def read(): return json.loads(sys.stdin.readline())
hello = read()
greeting = {"protocolVersion": hello["params"]["protocolVersion"], "serverInfo": {"name": "slow", "version": "1"}}
send({"id": hello["id"], "result": {**greeting, "capabilities": {"tools": {}}}})
read()
call = read()
send({"id": "q", "method": "roots/list"})
open(sys.argv[1]).read()
while (message := read()).get("id") != "q":
    pass
send({"id": call["id"], "result": {"answer": message["result"]}})
sys.stdin.read()
"""


async def test_a_question_that_is_too_long_is_refused_unread_and_a_notification_dropped() -> None:
    """A line of a log has no 64 KiB, a picture for a model has room in 1 MiB."""
    side = FakeSide()
    conversation, say, replies = conversing(side)
    assert say("roots/list", 1, text="x" * (1 << 20))
    assert "of which 1,048,576 are passed on" in replies[0]["error"]["message"]
    assert say("notifications/message", data="x" * (1 << 16))
    assert say("notifications/message", data="short")
    await settled(conversation)
    assert side.heard == [("short", None)] and not side.is_asked.is_set()


async def test_of_more_than_a_client_reads_the_oldest_is_dropped() -> None:
    """More than 1 MiB of it, or more than 256 notifications."""
    side = FakeSide()
    conversation, say, _ = conversing(side)
    for number in range(40):
        say("notifications/message", data=f"{number} " + "x" * 60_000)
    await settled(conversation)
    assert [int(words.split()[0]) for words, _ in side.heard] == list(range(23, 40))
    side.heard.clear()
    for number in range(300):
        say("notifications/message", data=str(number))
    await settled(conversation)
    assert [int(words) for words, _ in side.heard] == list(range(44, 300))


async def test_no_log_message_brings_a_client_what_its_server_was_trusted_with() -> None:
    """However the server spells it; a message that cannot be read without it is dropped."""
    side = FakeSide()
    conversation, _, _ = conversing(side)

    def tell(data: bytes) -> None:
        text = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":' + data + b"}}"
        conversation.take(msgspec.json.decode(text, type=Envelope), raising_reply, raising_reply)

    with secrets_hidden(["geheim/1234", "99887766"]):
        tell(rb'"key geheim/1234"')
        tell(rb'"key \u0067eheim\/1234"')
        tell(b"99887766")
        tell(b'"after"')
        await settled(conversation)
    assert [words for words, _ in side.heard] == ["key [hidden]", "key [hidden]", "after"]


def raising_reply(reply: Mapping[str, Any]) -> Any:
    raise AssertionError("nobody asked")


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
    async with pool(opener) as own, own.use_connection("a", side) as connection:
        assert connection is not None
        session, peer = opener.links[0], opener.peers[0]
        is_replied = asyncio.Event()

        async def replied(reply: Mapping[str, Any]) -> None:
            is_replied.set()

        async def ask_first(method: str) -> bytes:
            peer.take(Envelope(id=msgspec.Raw(b"1"), method="roots/list"), raising_reply, replied)
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

        session.reply = ask_first
        async with asyncio.TaskGroup() as group:
            group.create_task(answer_late())
            assert (await connection.request("tools/call", {}, FakeLine("a"), timeout_s=0.1)).text == b"{}"
        session.reply = hang
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

    async with _served_http(mcp) as url, Connector() as dialer:
        config = fake_config(transport="http", command="", url=url)

        async def expanded() -> ServerConfig:
            return config

        async def opened(
            config: ServerConfig, era: Era | None, on_event: OnEvent, peer: Conversation
        ) -> UpstreamSession:
            return await dialer(config, environ=dict(os.environ), era=era, on_event=on_event, peer=peer)

        own = OwnConnections(lambda: config, expanded, opened)
        async with own.use_connection("a", Side()) as connection:
            assert connection is not None

            async def call(name: str) -> bytes:
                params = {"name": "ask", "arguments": {"name": name}}
                return (await connection.request("tools/call", params, FakeLine(name), timeout_s=20)).text

            first, second = await asyncio.gather(call("first"), call("second"))
        await own.close()
    assert json.loads(first)["content"][0]["text"] == "first"
    assert json.loads(second)["content"][0]["text"] == "second"


@asynccontextmanager
async def _served_http(mcp: FastMCP) -> AsyncIterator[str]:
    app = mcp.http_app(path="/mcp")
    async with app.lifespan(app), served(app) as base:
        yield f"{base}/mcp"
