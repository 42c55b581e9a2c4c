"""The one path of an upstream call: its gates in order, what is sent, what comes back, what is written down."""

import asyncio
import json
import re
from collections.abc import Callable
from itertools import product
from threading import get_ident
from typing import Any, get_args

import anyio
import pytest
from gateway_fakes import FakeFleet, FakeUpstream, Parts, config, definition
from msgspec.structs import replace

from smart_mcp_proxy.errors import ProxyError, QuarantinedError, RefusedError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.gateway.calls.admission import AdmissionControl
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.calls.gates import CallLimits
from smart_mcp_proxy.gateway.calls.inputs import Round
from smart_mcp_proxy.gateway.calls.request_path import RequestPath
from smart_mcp_proxy.gateway.results.cleaning import CLEANED_META_KEY
from smart_mcp_proxy.gateway.results.outputs import META_KEY, Outputs
from smart_mcp_proxy.gateway.shared.refusals import differs_here
from smart_mcp_proxy.models import (
    CallRequest,
    CallVariant,
    ClientInput,
    Intent,
    ProgressReport,
    ServerState,
    ToolKey,
    ToolRecord,
)
from smart_mcp_proxy.policy import call_with
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerLimits
from smart_mcp_proxy.telemetry import secrets_hidden

pytestmark = pytest.mark.anyio

NEEDS_N = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
READ = {"readOnlyHint": True}
DESTRUCTIVE = {"destructiveHint": True}


class CallSetup:
    """A call path over the fake server alpha."""

    def __init__(self, parts: Parts, **limits: Any) -> None:
        self.alpha = FakeUpstream("alpha")
        self.fleet = FakeFleet(self.alpha)
        fleet: Any = self.fleet
        notebook: Any = parts.notebook
        self.parts = parts
        path = RequestPath(fleet, notebook, CallLimits(**limits), parts.clock)
        self.calls = Calls(path, parts.visible, parts.outputs)

    async def call(self, name: str, variant: CallVariant | None = "write", **fields: Any) -> dict[str, Any]:
        arguments = fields.pop("arguments", {})
        raw = await self.calls.call(CallRequest(name, arguments, variant, **fields))
        result: dict[str, Any] = json.loads(raw.text)
        return result

    async def refused(self, name: str, variant: CallVariant | None = "write", **fields: Any) -> ProxyError:
        """The error of a call that must not be sent."""
        with pytest.raises(ProxyError) as caught:
            await self.call(name, variant, **fields)
        assert self.alpha.sent == []
        assert caught.value.delivery == "not_sent"
        return caught.value


@pytest.fixture
async def setup(parts: Parts) -> CallSetup:
    """Tools with every hint: look reads, save says nothing, drop destroys, count needs an integer n."""
    await parts.sync(
        "alpha",
        [
            definition("look", hints=READ),
            definition("save"),
            definition("drop", hints=DESTRUCTIVE),
            definition("count", hints=READ, inputSchema=NEEDS_N),
        ],
    )
    return CallSetup(parts)


async def test_a_call_reaches_its_server_as_it_was_meant(setup: CallSetup) -> None:
    """The upstream's own name, the arguments and the metadata; listed and canonical names do the same."""
    setup.alpha.answer = b'{"content":[{"type":"text","text":"done"}]}'
    for name in ("alpha:count", "alpha__count"):
        result = await setup.call(name, "read", arguments={"n": 10**30}, meta={"example.org/a": 1})
        assert result == {"content": [{"type": "text", "text": "done"}]}
    sent = {"name": "count", "arguments": {"n": 10**30}, "_meta": {"example.org/a": 1}}
    assert setup.alpha.sent == [("tools/call", sent)] * 2


async def test_without_metadata_none_is_sent(setup: CallSetup) -> None:
    """An empty `_meta` says nothing."""
    await setup.call("alpha:save")
    assert setup.alpha.sent == [("tools/call", {"name": "save", "arguments": {}})]


async def test_the_gates_stand_in_order(setup: CallSetup, parts: Parts) -> None:
    """Name, definition seen, intent, arguments, server: each is reached when those before it are open."""
    wrong: dict[str, Any] = {"arguments": {"n": "many"}, "digest": "sha256:0000000000000000"}
    steps: list[tuple[str, dict[str, Any]]] = []
    for code, repair in (
        ("tool_not_found", {"name": "alpha:count"}),
        ("definition_changed", {"digest": None}),
        ("intent_mismatch", {"intent": Intent()}),
        ("invalid_arguments", {"arguments": {"n": 1}}),
    ):
        request: dict[str, Any] = {"name": "alpha:cuont", "intent": Intent(operation_type="delete")} | wrong
        for _, earlier in steps:
            request |= earlier
        error = await setup.refused(request.pop("name"), "read", **request)
        assert error.error_code == code
        steps.append((code, repair))
    del setup.fleet.upstreams["alpha"]
    error = await setup.refused("alpha:count", "read", arguments={"n": 1})
    assert error.error_code == "upstream_failed"
    assert [line.outcome for line in parts.notebook.lines] == [*(code for code, _ in steps), "upstream_failed"]


@pytest.mark.parametrize("variant", [*get_args(CallVariant), None])
@pytest.mark.parametrize("intent", [Intent(data_sensitivity="secret"), Intent(reason="r" * 1001)], ids=["kind", "long"])
async def test_an_intent_that_cannot_be_written_down_is_a_bad_request(
    setup: CallSetup, variant: CallVariant | None, intent: Intent
) -> None:
    """Whoever calls; another call tool would not help, so none is named."""
    error = await setup.refused("alpha:save", variant, intent=intent)
    assert (error.error_code, error.http_status, error.data) == ("invalid_request", 400, None)


async def test_a_digest_that_is_not_the_present_one_is_refused_with_the_present_one(
    setup: CallSetup, parts: Parts
) -> None:
    """Nothing is sent by a definition that the caller has not seen."""
    record = parts.visible.find("alpha:save")
    assert record is not None
    await setup.call("alpha:save", digest=record.digest)
    setup.alpha.sent.clear()
    await parts.sync("alpha", [definition("save", "Does something else now.")])
    error = await setup.refused("alpha:save", digest=record.digest)
    changed = parts.visible.find("alpha:save")
    assert changed is not None
    assert isinstance(error, RefusedError)
    assert (error.error_code, error.data) == ("definition_changed", {"digest": changed.digest})
    assert changed.digest != record.digest
    await setup.call("alpha:save", digest=changed.digest)


@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "lenient"])
@pytest.mark.parametrize("variant", [*get_args(CallVariant), None])
async def test_the_whole_table_of_intents(parts: Parts, variant: CallVariant | None, is_strict: bool) -> None:
    """Read needs `readOnlyHint: true` unless lenient, read and write stop at destructive, a user passes."""
    setup = CallSetup(parts, is_strict=is_strict)
    hints = {
        f"t{number}": {name: value for name, value in pair.items() if value is not None}
        for number, pair in enumerate(
            {"readOnlyHint": read, "destructiveHint": destructive}
            for read, destructive in product((True, False, None), repeat=2)
        )
    }
    await parts.sync("alpha", [definition(name, hints=given) for name, given in hints.items()])
    for name, given in hints.items():
        is_destructive, is_read = given.get("destructiveHint") is True, given.get("readOnlyHint") is True
        may_read = not is_destructive and (is_read or not is_strict)
        is_allowed = {"read": may_read, "write": not is_destructive, "destructive": True, None: True}[variant]
        setup.alpha.sent.clear()
        if is_allowed:
            await setup.call(f"alpha:{name}", variant)
            assert len(setup.alpha.sent) == 1
        else:
            error = await setup.refused(f"alpha:{name}", variant)
            instead = f"call_tool_{call_with(given)}"
            assert (error.error_code, error.data) == ("intent_mismatch", {"call_with": instead})
            assert instead in error.hint


@pytest.mark.parametrize("arguments", [{}, {"n": "1"}, {"n": 1.5}, {"n": None}])
async def test_arguments_that_do_not_fit_are_not_sent(setup: CallSetup, arguments: dict[str, Any]) -> None:
    """The error holds what a repair needs."""
    error = await setup.refused("alpha:count", "read", arguments=arguments)
    assert error.error_code == "invalid_arguments"
    assert error.data is not None
    assert error.data["input_schema"] == NEEDS_N


async def test_a_tools_own_failure_is_a_result(setup: CallSetup, parts: Parts) -> None:
    """It passes to the letter and is written down as the tool's."""
    setup.alpha.answer = b'{"content":[{"type":"text","text":"no"}],"isError":true,"later":1e999}'
    assert (await setup.calls.call(CallRequest("alpha:save", {}, "write"))).text == setup.alpha.answer
    assert [line.outcome for line in parts.notebook.lines] == ["tool_error"]


@pytest.mark.parametrize("answer", [b"[]", b"null", b"5", b'{"resultType":"input_required"}'])
async def test_an_answer_that_is_no_complete_result_is_the_upstreams_failure(
    setup: CallSetup, parts: Parts, answer: bytes
) -> None:
    """The server had the call, so repeating it is the caller's decision."""
    setup.alpha.answer = answer
    with pytest.raises(UpstreamError) as caught:
        await setup.call("alpha:save")
    assert caught.value.delivery == "executed"
    assert "mcpproxy server logs alpha" in caught.value.hint
    assert [line.outcome for line in parts.notebook.lines] == ["upstream_failed"]


async def test_an_upstreams_error_comes_as_it_is(setup: CallSetup, parts: Parts) -> None:
    """With its own word on delivery."""
    setup.alpha.answer = UpstreamTimeoutError("Too slow.", delivery="unknown")
    with pytest.raises(UpstreamTimeoutError) as caught:
        await setup.call("alpha:save")
    assert caught.value is setup.alpha.answer
    assert [line.outcome for line in parts.notebook.lines] == ["upstream_timeout"]


async def test_a_cancelled_call_ends_the_upstreams_request_and_is_written_down(setup: CallSetup, parts: Parts) -> None:
    """Cancellation goes through; nobody answers in its place."""
    setup.alpha.gate = asyncio.Event()
    with anyio.fail_after(20):
        task = asyncio.ensure_future(setup.call("alpha:save"))
        await setup.alpha.busy.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [line.outcome for line in parts.notebook.lines] == ["cancelled"]


async def test_progress_goes_to_who_asked_for_it(setup: CallSetup) -> None:
    """As it was reported; the server is not asked for it where nobody wants to hear."""
    heard: list[ProgressReport] = []

    async def listen(report: ProgressReport) -> None:
        heard.append(report)

    await setup.call("alpha:save", on_progress=listen)
    assert setup.alpha.on_progress is not None
    reports = [ProgressReport(1, 2, "half"), ProgressReport(2), ProgressReport(3, message="")]
    for report in reports:
        await setup.alpha.on_progress(report)
    assert heard == reports
    await setup.call("alpha:save")
    assert setup.alpha.on_progress is None


@pytest.mark.parametrize("is_cleaned", [True, False])
async def test_what_is_said_of_progress_is_cleaned_like_a_result(
    setup: CallSetup, parts: Parts, is_cleaned: bool
) -> None:
    """Commands to a terminal, hidden characters, and what its server was trusted with; also where it is long."""
    careful = CallSetup(parts, is_cleaned=is_cleaned)
    heard: list[str | None] = []

    async def listen(report: ProgressReport) -> None:
        heard.append(report.message)

    await careful.call("alpha:save", on_progress=listen)
    assert careful.alpha.on_progress is not None
    hostile = "\x1b[2Jst\u202eep\U000e0041 of trusted-word-1"
    with secrets_hidden(["trusted-word-1"]):
        for report in (ProgressReport(1, 3, hostile), ProgressReport(2, 3, hostile * 10_000)):
            await careful.alpha.on_progress(report)
    short, long = heard
    assert short is not None and long is not None
    assert "trusted-word-1" not in short + long
    assert short.startswith("step of " if is_cleaned else "\x1b[2Jst\u202eep\U000e0041 of ")
    assert ("\x1b" in long, "\u202e" in long) == (not is_cleaned, not is_cleaned)


async def test_one_line_of_activity_per_call(setup: CallSetup, parts: Parts) -> None:
    """Who, what, how it ended, how long it took and why; never an argument."""
    clock = parts.clock
    original = setup.alpha.request

    async def slow(*args: Any, **kwargs: Any) -> bytes:
        clock.now_s += 1.5
        return await original(*args, **kwargs)

    setup.alpha.request = slow  # type: ignore[method-assign]  # a server that takes its time
    intent = Intent(reason="to see", data_sensitivity="private")
    await setup.call("alpha__count", "read", arguments={"n": 424242}, principal="ann", intent=intent)
    await setup.call("alpha:save", None)
    first, second = parts.notebook.lines
    assert (first.kind, first.principal, first.subject, first.outcome) == ("call", "ann", "alpha:count", "ok")
    assert first.duration_ms == pytest.approx(1500)
    assert first.detail == {"variant": "read", "reason": "to see", "sensitivity": "private"}
    assert second.detail == {"variant": None}
    assert "424242" not in repr(parts.notebook.lines)


async def test_an_unknown_name_is_written_down_shortened(setup: CallSetup, parts: Parts) -> None:
    """What was asked for, not a megabyte of it."""
    await setup.refused("x" * 100_000)
    (line,) = parts.notebook.lines
    assert (line.outcome, line.subject) == ("tool_not_found", "x" * 200)


async def test_long_text_is_cut_where_the_settings_ask_for_it(setup: CallSetup, parts: Parts) -> None:
    """For the caller's principal; without the setting everything comes whole."""
    text = "line\n" * 200
    setup.alpha.answer = json.dumps({"content": [{"type": "text", "text": text}]}).encode()
    assert (await setup.call("alpha:save"))["content"][0]["text"] == text
    cutting = CallSetup(parts, output_limit_chars=300)
    cutting.alpha.answer = setup.alpha.answer
    result = await cutting.call("alpha:save", principal="ann")
    assert len(result["content"][0]["text"]) <= 300
    key = result["_meta"][META_KEY]["key"]
    assert (await parts.outputs.page(key, "ann", 0, 2000)).items == text


async def test_a_result_is_cleaned_then_cut_then_fenced(setup: CallSetup, parts: Parts) -> None:
    """What is taken out does not count towards the limit; the fence stands around what is left, but not in scripts."""
    careful = CallSetup(parts, output_limit_chars=300, is_cleaned=True, is_fenced=True)
    for text in ("\x1b[31m" + "a" * 290, "\x1b[31m" + "a" * 70_000):
        careful.alpha.answer = json.dumps({"content": [{"type": "text", "text": text}]}).encode()
        result = await careful.call("alpha:save")
        shown = result["content"][0]["text"]
        assert re.fullmatch(r"<(untrusted-output-\w{16})>\na+[^\x1b]*a+\n</\1>", shown)
        assert (META_KEY in result["_meta"]) == (len(text) > 300)
        assert result["_meta"][CLEANED_META_KEY] == {"removed_chars": 5}
    inner = await careful.call("alpha:save", parent="1")
    assert inner["content"][0]["text"].startswith("aaa")


async def test_a_long_result_is_cut_off_the_loop(
    setup: CallSetup, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else waits for it; a short one is cut at once."""
    threads: list[int] = []

    def clock() -> float:
        threads.append(get_ident())
        return 0.0

    monkeypatch.setattr(parts, "outputs", Outputs(clock))
    cutting = CallSetup(parts, output_limit_chars=300)
    for size, is_here in ((1_000, True), (70_000, False)):
        threads.clear()
        cutting.alpha.answer = json.dumps({"content": [{"type": "text", "text": "a" * size}]}).encode()
        assert META_KEY in (await cutting.call("alpha:save"))["_meta"]
        assert (set(threads) == {get_ident()}) is is_here


async def test_a_clean_result_passes_byte_for_byte(parts: Parts, setup: CallSetup) -> None:
    """Cleaning writes nothing anew where there is nothing to take out."""
    careful = CallSetup(parts, is_cleaned=True)
    careful.alpha.answer = b'{ "content" : [{"type":"text","text":"a\\r\\n\\u0041"}] , "x":1e22}'
    assert (await careful.calls.call(CallRequest("alpha:save", {}, "write"))).text == careful.alpha.answer


async def test_a_tool_that_is_no_longer_offered_is_not_called(setup: CallSetup, parts: Parts) -> None:
    """From the change of configuration on, whatever the agent remembers."""
    await setup.call("alpha:save")
    setup.alpha.sent.clear()
    parts.visible.reconfigure({"alpha": replace(config("alpha"), disabled=True)})
    assert (await setup.refused("alpha:save")).error_code == "server_disabled"


class FirstLists:
    """Servers' lists of which the first one is on its way; then every tool stands in another form there."""

    def __init__(self, while_waiting: Callable[[], Any] = lambda: None, *, differs: bool = True) -> None:
        self.limits_s: list[float] = []
        self._while_waiting = while_waiting
        self._differs = differs

    def is_awaited(self, server: str) -> bool:
        return not self.limits_s

    async def wait_listed(self, server: str, limit_s: float) -> None:
        self.limits_s.append(limit_s)
        self._while_waiting()

    def require_approved(self, record: ToolRecord) -> None:
        if self.limits_s and self._differs:
            raise differs_here(record.key)


class Waiting:
    """A call that stands in the queue of its server while another one is under way."""

    def __init__(self, setup: CallSetup, parts: Parts, *, inputs: Any = None, lists: Any = None) -> None:
        limits = ServerLimits(in_flight=1, queue=1)
        admission = AdmissionControl(servers={"alpha": replace(config("alpha"), limits=limits)}, clock=parts.clock)
        fleet: Any = setup.fleet
        notebook: Any = parts.notebook
        self.alpha = setup.alpha
        self.admission = admission
        path = RequestPath(fleet, notebook, CallLimits(), parts.clock, admission=admission, inputs=inputs)
        self.calls = Calls(path, parts.visible, parts.outputs, lists=lists)

    async def until_queued(self) -> "asyncio.Future[RawResult]":
        """The call, once it waits for its turn."""
        self.alpha.gate = asyncio.Event()
        self.first = asyncio.ensure_future(self.calls.call(CallRequest("alpha:look", {}, "read")))
        await self.alpha.busy.wait()
        queued = asyncio.ensure_future(self.calls.call(CallRequest("alpha:save", {}, "write")))
        while "1 calls waiting" not in repr(self.admission.places):
            await asyncio.sleep(0)
        return queued

    async def refused(self, queued: "asyncio.Future[RawResult]") -> ProxyError:
        """How the queued call ends when it is its turn; it was not sent."""
        assert self.alpha.gate is not None
        self.alpha.gate.set()
        with pytest.raises(ProxyError) as caught:
            await queued
        assert [params["name"] for _, params in self.alpha.sent] == ["look"]
        assert caught.value.delivery == "not_sent"
        return caught.value


@pytest.mark.parametrize(
    ("tools", "code"),
    [
        ([definition("look", hints=READ), definition("save", "Something else.")], "definition_changed"),
        ([definition("look", hints=READ)], "tool_not_found"),
    ],
    ids=["changed", "gone"],
)
async def test_what_changed_while_a_call_waited_is_not_called(
    setup: CallSetup, parts: Parts, tools: list[dict[str, Any]], code: str
) -> None:
    """It was let in by a definition that is not the present one."""
    with anyio.fail_after(10):
        waiting = Waiting(setup, parts)
        queued = await waiting.until_queued()
        await parts.sync("alpha", tools)
        assert (await waiting.refused(queued)).error_code == code


@pytest.mark.parametrize("code", ["quarantined", "server_disabled"])
async def test_what_was_blocked_or_switched_off_while_a_call_waited_is_not_called(
    setup: CallSetup, parts: Parts, code: str
) -> None:
    """The user's word holds from when it was said."""
    with anyio.fail_after(10):
        waiting = Waiting(setup, parts)
        queued = await waiting.until_queued()
        if code == "quarantined":
            await parts.catalog.block(ToolKey("alpha", "save"), "tester")
            await parts.catalog.refresh()
        else:
            parts.visible.reconfigure({"alpha": replace(config("alpha"), disabled=True)})
        assert (await waiting.refused(queued)).error_code == code


async def test_what_was_blocked_while_the_client_was_asked_is_not_called(setup: CallSetup, parts: Parts) -> None:
    """A person may take minutes to answer."""

    class Asking:
        async def begin(self, subject: Any, input: ClientInput) -> Round:
            await parts.catalog.block(ToolKey("alpha", "save"), "tester")
            await parts.catalog.refresh()
            return Round(subject, input, {}, None)

    inputs: Any = Asking()
    waiting = Waiting(setup, parts, inputs=inputs)
    with pytest.raises(ProxyError) as caught:
        await waiting.calls.call(CallRequest("alpha:save", {}, "write", input=ClientInput({})))
    assert (caught.value.error_code, caught.value.delivery) == ("quarantined", "not_sent")
    assert setup.alpha.sent == []


async def test_a_call_that_waited_for_a_connection_is_confirmed_on_that_one(setup: CallSetup, parts: Parts) -> None:
    """Another program may answer there."""
    lists = FirstLists()
    with anyio.fail_after(10):
        waiting = Waiting(setup, parts, lists=lists)
        setup.alpha.move(ServerState.CONNECTING)
        call = asyncio.ensure_future(waiting.calls.call(CallRequest("alpha:save", {}, "write")))
        await setup.alpha.awaited.wait()
        setup.alpha.move(ServerState.READY)
        with pytest.raises(QuarantinedError):
            await call
    assert 0 < lists.limits_s[0] <= setup.alpha.config.limits.call_s
    assert setup.alpha.sent == []


async def test_waiting_for_a_first_list_is_part_of_the_calls_time(setup: CallSetup, parts: Parts) -> None:
    """A server that connects but shows no list gets what is left of the call's seconds, and no more."""

    def advance() -> None:
        parts.clock.now_s += 1.25

    lists = FirstLists(while_waiting=advance, differs=False)
    setup.alpha.config = replace(setup.alpha.config, limits=ServerLimits(call_s=3.0))
    waiting = Waiting(setup, parts, lists=lists)
    await waiting.calls.call(CallRequest("alpha:save", {}, "write"))
    assert lists.limits_s == [3.0]
    assert setup.alpha.timeout_s == 1.75


async def test_a_connection_that_is_lost_while_it_is_looked_at_gets_no_call(setup: CallSetup, parts: Parts) -> None:
    """The next one would not have been looked at."""
    lists = FirstLists(while_waiting=lambda: setup.alpha.move(ServerState.CONNECTING), differs=False)
    with pytest.raises(UpstreamError, match="not ready"):
        setup.alpha.move(ServerState.CONNECTING)
        waiting = Waiting(setup, parts, lists=lists)
        with anyio.fail_after(10):
            call = asyncio.ensure_future(waiting.calls.call(CallRequest("alpha:save", {}, "write")))
            await setup.alpha.awaited.wait()
            setup.alpha.move(ServerState.READY)
            await call
    assert setup.alpha.sent == []
