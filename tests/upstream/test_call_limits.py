"""Calls that take long: the limit counts anew from each report of progress, up to a longest one."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from http_fakes import RawAnswer, RawRequest, RawServer, raw_served
from turned_clock import TurnedClock
from upstream_fakes import fake_config

from smart_mcp_proxy.errors import UpstreamTimeoutError
from smart_mcp_proxy.models import Era, ProgressReport
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.upstream import Connector
from smart_mcp_proxy.upstream.per_client import OwnConnection
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession
from smart_mcp_proxy.upstream.protocol.server_requests import Conversation
from smart_mcp_proxy.upstream.protocol.session import ends_at_s, late_error

pytestmark = pytest.mark.anyio

SLOW_SERVER = Path(__file__).with_name("slow_server.py")
ERAS = pytest.mark.parametrize("era", ["handshake", "modern"])
WAYS = pytest.mark.parametrize("way", ["stdio", "http"])


class Call:
    """One call under way: its server does what the test says, when it says it.

    Args:
        session: With the server.
        answered: What the call comes to.
        do: Has the server report progress (`step`) or answer (`finish`).
        reports: That reached the caller.
    """

    def __init__(
        self,
        session: UpstreamSession,
        answered: asyncio.Future[Any],
        do: Callable[[str], Any],
        reports: list[ProgressReport],
    ) -> None:
        self.session = session
        self.answered = answered
        self.do = do
        self.reports = reports


class HttpWork:
    """A tool over HTTP whose answer is a stream of events."""

    def __init__(self) -> None:
        self.asked: asyncio.Future[tuple[RawRequest, RawAnswer]] = asyncio.get_running_loop().create_future()
        self._is_over = asyncio.Event()

    async def __call__(self, request: RawRequest, answer: RawAnswer) -> None:
        answer.open_stream()
        self.asked.set_result((request, answer))
        await self._is_over.wait()

    async def do(self, what: str) -> None:
        request, answer = await self.asked
        token = request.message["params"].get("_meta", {}).get("progressToken")
        if what == "step":
            answer.event(method="notifications/progress", params={"progressToken": token, "progress": 1})
        else:
            words = "asked" if token is not None else "not asked"
            answer.event(id=request.id, result={"content": [{"type": "text", "text": words}], "resultType": "complete"})
            answer.end_stream()
            self._is_over.set()


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    """Of the event loop."""
    return TurnedClock(monkeypatch)


@pytest.fixture
async def begin(tmp_path: Path, dialer: Connector, clock: TurnedClock) -> AsyncIterator[Any]:
    """Begins calls; servers and sessions end with the test."""
    async with AsyncExitStack() as stack:

        async def opened(config: ServerConfig, era: Era) -> UpstreamSession:
            session = await dialer(config, environ=dict(os.environ), era=era, on_event=lambda event: None)
            stack.push_async_callback(session.close)
            return session

        async def start(way: str, era: Era, limits: ServerLimits, *, is_asked: bool = True, **heard: Any) -> Call:
            reports: list[ProgressReport] = []

            async def note(report: ProgressReport) -> None:
                reports.append(report)

            if way == "http":
                work = HttpWork()
                server = await stack.enter_async_context(raw_served(RawServer(era, work)))
                session = await opened(ServerConfig(name="s", transport="http", url=server.url, limits=limits), era)
            else:
                args = ("-S", "-E", str(SLOW_SERVER), str(tmp_path), era)
                session = await opened(fake_config(name="s", args=args, limits=limits), era)
            request = {"name": "work", "arguments": {}}
            on_progress = note if is_asked else None
            asked = session.request("tools/call", request, timeout_s=limits.call_s, on_progress=on_progress, **heard)
            answered = asyncio.ensure_future(asked)
            await asyncio.sleep(0)  # sent before what is asked next
            if way == "http":
                await work.asked
                return Call(session, answered, work.do, reports)

            async def do(tool: str) -> None:
                await session.request("tools/call", {"name": tool, "arguments": {}}, timeout_s=1e6)

            return Call(session, answered, do, reports)

        yield start


async def heard(call: Call) -> None:
    """One more report of progress, arrived."""
    session: Any = call.session
    pending = session._pending if hasattr(session, "_pending") else session._inbox.pending
    (waiting,) = [each for each in pending._calls.values() if each.method == "tools/call"]
    before = waiting.reports.heard_s
    await call.do("step")
    with anyio.fail_after(20):
        while waiting.reports.heard_s == before:
            await anyio.lowlevel.checkpoint()


def text_of(result: Any) -> str:
    return str(json.loads(result.text)["content"][0]["text"])


@WAYS
@ERAS
async def test_a_call_is_waited_for_as_long_as_it_reports_progress(begin, clock, way, era):
    """Even where the value does not grow."""
    call = await begin(way, era, ServerLimits(init_s=30, call_s=60))
    for _ in range(4):
        await clock.turn(50)
        await heard(call)
    await call.do("finish")
    assert text_of(await call.answered) == "asked"
    assert call.reports


@WAYS
@ERAS
async def test_without_progress_the_first_limit_holds(begin, clock, way, era):
    """The hint names the settings that help."""
    call = await begin(way, era, ServerLimits(init_s=30, call_s=60))
    await clock.turn(59)
    assert not call.answered.done()
    await clock.turn(2)
    with pytest.raises(UpstreamTimeoutError) as caught:
        await call.answered
    assert caught.value.message == "Server 's' did not answer 'tools/call' within 60 s."
    assert caught.value.delivery == "unknown"
    for word in ("'timeout' (milliseconds)", "'limits.call_s' (seconds)", "'limits.call_max_s'"):
        assert word in caught.value.hint


@WAYS
@ERAS
async def test_progress_that_comes_too_late_helps_no_more(begin, clock, way, era):
    """The limit counts from the last report, and the error says so."""
    call = await begin(way, era, ServerLimits(init_s=30, call_s=60))
    await clock.turn(50)
    await heard(call)
    await clock.turn(61)
    with pytest.raises(UpstreamTimeoutError, match="within 60 s of its last progress report"):
        await call.answered


@WAYS
@ERAS
async def test_the_longest_limit_ends_a_call_that_reports_for_ever(begin, clock, way, era):
    """And names itself."""
    call = await begin(way, era, ServerLimits(init_s=30, call_s=60, call_max_s=100))
    for pause_s in (50, 40):
        await clock.turn(pause_s)
        await heard(call)
    assert not call.answered.done()
    await clock.turn(11)
    with pytest.raises(UpstreamTimeoutError, match=r"within 100 s, although it reported progress\.") as caught:
        await call.answered
    assert "'limits.call_max_s' (seconds) in its entry" in caught.value.hint


@WAYS
@ERAS
async def test_progress_is_asked_for_where_nobody_did_and_the_entry_sets_the_longest_limit(begin, clock, way, era):
    call = await begin(way, era, ServerLimits(init_s=30, call_s=60, call_max_s=600), is_asked=False)
    for _ in range(3):
        await clock.turn(50)
        await heard(call)
    await call.do("finish")
    assert text_of(await call.answered) == "asked"
    assert call.reports == []


@WAYS
async def test_else_a_call_that_nobody_wants_progress_of_is_sent_as_it_came(begin, way):
    """A token would be more work for every call, and words that the caller did not say."""
    call = await begin(way, "handshake", ServerLimits(init_s=30, call_s=60), is_asked=False)
    await call.do("finish")
    assert text_of(await call.answered) == "not asked"


async def test_progress_that_is_passed_on_as_it_came_renews_the_limit_too(begin, clock):
    """As the HTTP broker does with what comes on the exchange of a request."""
    passed_on: list[bytes] = []

    async def take(notification: bytes) -> None:
        passed_on.append(notification)

    call = await begin("http", "handshake", ServerLimits(init_s=30, call_s=60), on_message=take)
    for _ in range(3):
        await clock.turn(50)
        await heard(call)
    await call.do("finish")
    assert text_of(await call.answered) == "asked"
    assert len(passed_on) == 3


async def test_other_limits_hold_for_a_call_under_way(begin, clock):
    """A user who sees that a call takes long need not lose it."""
    call = await begin("stdio", "handshake", ServerLimits(init_s=30, call_s=60, call_max_s=100))
    await clock.turn(50)
    await heard(call)
    call.session.limits = ServerLimits(init_s=30, call_s=60, call_max_s=1_000)
    for _ in range(3):
        await clock.turn(50)
        await heard(call)
    await call.do("finish")
    assert text_of(await call.answered) == "asked"


@pytest.mark.parametrize(("heard_s", "end_s"), [(0.0, 60.0), (1.0, 61.0), (59.0, 119.0), (3_550.0, 3_600.0)])
def test_a_request_ends_its_limit_after_its_last_report(heard_s, end_s):
    assert ends_at_s(ServerLimits(call_s=60), 0.0, 60.0, heard_s) == end_s


def test_progress_never_brings_the_end_forward():
    """A request with a longer limit of its own keeps it."""
    assert ends_at_s(ServerLimits(call_s=60, call_max_s=100), 0.0, 500.0, 10.0) == 500
    error = late_error("s", "tools/call", ServerLimits(call_s=60, call_max_s=100), 0, 500, 10)
    assert error.message == "Server 's' did not answer 'tools/call' within 500 s."


def test_a_list_that_takes_long_names_the_limit_of_lists():
    error = late_error("s", "resources/templates/list", ServerLimits(), 0, 30)
    assert "'limits.list_s' (seconds)" in error.hint


class AskedSession:
    """A session whose one request its test answers."""

    def __init__(self) -> None:
        self.on_progress: Any = None
        self.answer: asyncio.Future[RawResult] = asyncio.get_running_loop().create_future()

    async def request(self, method: str, params: Any, *, on_progress: Any, **_: Any) -> RawResult:
        if method == "ping":
            return RawResult(b"{}")
        self.on_progress = on_progress
        return await self.answer


class Client:
    """A client that is never asked."""

    client = "a"
    capabilities: Mapping[str, Any] = {}


@pytest.mark.parametrize("is_asked", [True, False])
async def test_progress_renews_the_limit_on_a_connection_of_one_client(clock, is_asked):
    """There the limit is another timer, which stands still while the client is asked."""
    session: Any = AskedSession()
    client: Any = Client()
    limits = ServerLimits(call_s=60, call_max_s=None if is_asked else 150)
    config = fake_config(name="s", limits=limits)
    connection = OwnConnection(config, session, Conversation("s", client), time.monotonic)
    reports: list[ProgressReport] = []

    async def note(report: ProgressReport) -> None:
        reports.append(report)

    asked = connection.request("tools/call", {}, client, timeout_s=60, on_progress=note if is_asked else None)
    call = asyncio.ensure_future(asked)
    for _ in range(2):
        await clock.turn(50)
        await session.on_progress(ProgressReport(1))
    assert not call.done()
    assert len(reports) == (2 if is_asked else 0)
    await clock.turn(61)
    words = "60 s of its last progress report" if is_asked else "150 s, although it reported progress"
    with pytest.raises(UpstreamTimeoutError, match=words):
        await call
