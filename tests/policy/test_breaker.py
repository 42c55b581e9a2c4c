"""When calls to a failing server are held back, how one is let through to see, and what counts as failing."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from smart_mcp_proxy.errors import Delivery, RequestError, UpstreamAuthError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.policy.breaker import (
    FAILURES_IN_A_ROW,
    FIRST_PAUSE_S,
    JITTER,
    LONGEST_PAUSE_S,
    PROBE_RETRY_S,
    WINDOW_CALLS,
    WINDOW_S,
    Breaker,
    Breakers,
    BreakerState,
    CallEnd,
    classify_end,
)

CALL_S = 60.0


def breaker(seed: int = 0) -> Breaker:
    return Breaker(random.Random(seed))


def fail(made: Breaker, count: int, now_s: float = 0.0) -> None:
    for _ in range(count):
        assert made.ask(now_s, CALL_S) == 0
        made.record_failure(made.epoch, now_s)


def test_five_failures_in_a_row_hold_calls_back() -> None:
    """Four do not, and an answer in between begins the count anew."""
    made = breaker()
    fail(made, FAILURES_IN_A_ROW - 1)
    made.record_success(made.epoch, 0)
    fail(made, FAILURES_IN_A_ROW - 1)
    assert made.state is BreakerState.CLOSED
    fail(made, 1)
    assert made.state is BreakerState.OPEN
    assert made.reason == "failed 5 calls in a row"
    assert FIRST_PAUSE_S * JITTER <= made.wait_s(0) <= FIRST_PAUSE_S


def test_half_of_ten_calls_within_the_window_hold_calls_back() -> None:
    """Also if they are never five in a row; failures that are far apart do not add up."""
    made = breaker()
    for now_s in range(WINDOW_CALLS):
        if now_s % 2:
            made.record_failure(made.epoch, now_s)
        else:
            made.record_success(made.epoch, now_s)
    assert made.state is BreakerState.OPEN
    assert made.reason == "failed 5 of 10 calls"
    made = breaker()
    for number in range(10 * WINDOW_CALLS):
        now_s = number * WINDOW_S / 5
        if number % 2:
            made.record_failure(made.epoch, now_s)
        else:
            made.record_success(made.epoch, now_s)
    assert made.state is BreakerState.CLOSED


def test_after_the_pause_exactly_one_call_is_let_through() -> None:
    """The others are told to come again; its success lets all of them through."""
    made = breaker()
    fail(made, FAILURES_IN_A_ROW)
    later_s = made.wait_s(0)
    assert made.ask(later_s, CALL_S) == 0
    probe = made.epoch
    assert made.state is BreakerState.HALF_OPEN
    assert [made.ask(later_s, CALL_S) for _ in range(3)] == [PROBE_RETRY_S] * 3
    made.record_success(probe, later_s)
    assert made.state is BreakerState.CLOSED
    assert made.ask(later_s, CALL_S) == 0


def test_a_try_that_fails_doubles_the_pause_up_to_a_minute() -> None:
    """Each within its half of chance."""
    made = breaker()
    fail(made, FAILURES_IN_A_ROW)
    now_s, pause_s = made.wait_s(0), FIRST_PAUSE_S
    for _ in range(6):
        assert made.ask(now_s, CALL_S) == 0
        made.record_failure(made.epoch, now_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        assert pause_s * JITTER <= made.wait_s(now_s) <= pause_s
        now_s += made.wait_s(now_s)
    assert pause_s == LONGEST_PAUSE_S
    made.ask(now_s, CALL_S)
    made.record_success(made.epoch, now_s)
    fail(made, FAILURES_IN_A_ROW, now_s)
    assert made.wait_s(now_s) <= FIRST_PAUSE_S


def test_servers_that_fail_together_are_not_tried_together() -> None:
    """The pauses differ."""
    pauses = set()
    for seed in range(20):
        made = breaker(seed)
        fail(made, FAILURES_IN_A_ROW)
        pauses.add(made.wait_s(0))
    assert len(pauses) == 20


def test_a_try_that_never_ends_is_given_up_and_its_late_end_counts_for_nothing() -> None:
    """After the longest time a call may take another one tries."""
    made = breaker()
    fail(made, FAILURES_IN_A_ROW)
    now_s = made.wait_s(0)
    made.ask(now_s, CALL_S)
    lost = made.epoch
    assert made.ask(now_s + CALL_S - 1, CALL_S) == PROBE_RETRY_S
    assert made.ask(now_s + CALL_S, CALL_S) == 0
    made.record_failure(lost, now_s + CALL_S)
    made.record_success(lost, now_s + CALL_S)
    assert made.state is BreakerState.HALF_OPEN
    made.record_success(made.epoch, now_s + CALL_S)
    assert made.state is BreakerState.CLOSED


def test_a_try_that_its_caller_gave_up_is_followed_by_another_at_once() -> None:
    """It said nothing about the server."""
    made = breaker()
    fail(made, FAILURES_IN_A_ROW)
    now_s = made.wait_s(0)
    made.ask(now_s, CALL_S)
    made.record_inconclusive(made.epoch)
    assert made.ask(now_s, CALL_S) == 0


def test_calls_from_before_do_not_decide_about_the_server_as_it_is_now() -> None:
    """Slow calls that end after the breaker opened neither close it nor open it further."""
    made = breaker()
    old = made.epoch
    fail(made, FAILURES_IN_A_ROW)
    wait_s = made.wait_s(0)
    made.record_success(old, 0)
    made.record_failure(old, 0)
    assert (made.state, made.wait_s(0)) == (BreakerState.OPEN, wait_s)


def test_a_server_that_asks_for_a_pause_gets_it_but_not_for_ever() -> None:
    """At most a minute, then one call tries; a new connection ends it."""
    made = breaker()
    made.hold(0, 7)
    assert made.wait_s(0) == 7
    made.hold(0, 86_400)
    assert made.wait_s(0) == LONGEST_PAUSE_S
    made.hold(0, 1)
    assert made.wait_s(0) == LONGEST_PAUSE_S
    assert made.reason == "asked for a pause"
    made.reset()
    assert (made.wait_s(0), repr(made)) == (0, "<Breaker closed, 0 failures in a row>")


def lost(message: str, delivery: Delivery) -> UpstreamError:
    error = UpstreamError(message, delivery=delivery)
    error.is_lost = True
    return error


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (None, CallEnd.ANSWERED),
        (UpstreamTimeoutError("too slow", delivery="unknown"), CallEnd.UNANSWERED),
        (UpstreamTimeoutError("does not read", delivery="not_sent"), CallEnd.UNREACHED),
        (lost("cannot be reached", "not_sent"), CallEnd.UNREACHED),
        (lost("broke the connection", "unknown"), CallEnd.UNANSWERED),
        (UpstreamError("HTTP 502", delivery="unknown", data={"http_status": 502}), CallEnd.UNANSWERED),
        (UpstreamError("HTTP 503", delivery="unknown", data={"http_status": 503}), CallEnd.UNANSWERED),
        (UpstreamError("HTTP 504", delivery="unknown", data={"http_status": 504}), CallEnd.UNANSWERED),
        (UpstreamError("HTTP 500", delivery="unknown", data={"http_status": 500}), CallEnd.ANSWERED),
        (UpstreamError("HTTP 404", delivery="unknown", data={"http_status": 404}), CallEnd.ANSWERED),
        (UpstreamError("HTTP 429", delivery="unknown", data={"http_status": 429}), CallEnd.ANSWERED),
        (UpstreamAuthError("HTTP 401", data={"http_status": 401}), CallEnd.ANSWERED),
        (UpstreamError("error -32603", delivery="executed", data={"rpc_code": -32603}), CallEnd.ANSWERED),
        (UpstreamError("error -32000", delivery="executed", data={"rpc_code": -32000}), CallEnd.ANSWERED),
        (UpstreamError("error -32602", delivery="executed", data={"rpc_code": -32602}), CallEnd.ANSWERED),
        (UpstreamError("no complete result", delivery="executed"), CallEnd.ANSWERED),
        (UpstreamError("asked what it may not", delivery="unknown", code="upstream_protocol"), CallEnd.UNCLEAR),
        (UpstreamError("cannot be read", delivery="unknown"), CallEnd.UNCLEAR),
        (UpstreamError("not ready", data={"state": "error"}), CallEnd.UNCLEAR),
        (RequestError("not sent"), CallEnd.UNCLEAR),
        (asyncio.CancelledError(), CallEnd.UNCLEAR),
    ],
    ids=repr,
)
def test_only_lost_connections_and_missed_deadlines_are_failures(error: BaseException | None, end: CallEnd) -> None:
    """An answer shows that the server is alive, whatever it says; what was sent and not answered is the tool's own."""
    assert classify_end(error) is end


def end_calls(made: Breakers, item: str, *ends: CallEnd) -> None:
    for end in ends:
        made.record_end(item, made.ask(item, 0, CALL_S), end, 0)


def held(made: Breakers, item: str) -> list[str]:
    return [name for name, one in made.of(item) if one.wait_s(0)]


def test_a_tool_that_gives_no_answer_is_held_back_alone() -> None:
    """The others of its server are let through, and its own answer lets it through again."""
    made = Breakers(random.Random(0))
    end_calls(made, "slow", *[CallEnd.UNANSWERED] * FAILURES_IN_A_ROW)
    assert (held(made, "slow"), held(made, "fast")) == (["slow"], [])
    end_calls(made, "fast", CallEnd.ANSWERED)
    assert held(made, "slow") == ["slow"]
    found = made.find_tripped()
    assert found is not None and found[0] == "slow"
    later_s = found[1].wait_s(0)
    made.record_end("slow", made.ask("slow", later_s, CALL_S), CallEnd.ANSWERED, later_s)
    assert made.find_tripped() is None


def test_a_server_that_is_not_reached_is_held_back_as_a_whole() -> None:
    """Whichever tools were called; connected anew it is let through, and calls from before count for nothing."""
    made = Breakers(random.Random(0))
    before = made.ask("save", 0, CALL_S)
    for item in "abcde":
        end_calls(made, item, CallEnd.UNREACHED)
    assert (held(made, "a"), held(made, "f")) == ([""], [""])
    made.reset()
    for _ in range(FAILURES_IN_A_ROW):
        made.record_end("save", before, CallEnd.UNANSWERED, 0)
    assert made.find_tripped() is None


class BreakerMachine(RuleBasedStateMachine):
    """Any interleaving of calls, their ends, pauses and reconnections."""

    def __init__(self) -> None:
        super().__init__()
        self.made = breaker()
        self.now_s = 100.0
        self.flying: list[int] = []
        self.probes: dict[int, float] = {}

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def call(self) -> None:
        was_closed = self.made.state is BreakerState.CLOSED
        if self.made.ask(self.now_s, CALL_S) == 0:
            self.flying.append(self.made.epoch)
            if not was_closed:
                self.probes[self.made.epoch] = self.now_s + CALL_S
        else:
            assert not was_closed

    @rule(which=st.integers(0, 50), end=st.sampled_from(["good", "bad", "given up"]))
    def end(self, which: int, end: str) -> None:
        if not self.flying:
            return
        epoch = self.flying.pop(which % len(self.flying))
        self.probes.pop(epoch, None)
        if end == "good":
            self.made.record_success(epoch, self.now_s)
        elif end == "bad":
            self.made.record_failure(epoch, self.now_s)
        else:
            self.made.record_inconclusive(epoch)

    @rule()
    def reconnect(self) -> None:
        self.made.reset()
        self.probes.clear()

    @invariant()
    def at_most_one_try_at_a_time(self) -> None:
        assert sum(until_s > self.now_s for until_s in self.probes.values()) <= 1

    @invariant()
    def nobody_is_held_back_for_ever(self) -> None:
        wait_s = self.made.wait_s(self.now_s)
        assert 0 <= wait_s <= LONGEST_PAUSE_S
        assert wait_s == 0 or self.made.state is not BreakerState.CLOSED


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.__doc__ = "No interleaving lets two calls try at a time, or holds calls back for more than a minute."


@given(seed=st.integers(0, 1000))
def test_the_pause_is_never_nothing(seed: int) -> None:
    """Chance takes half of it at most."""
    made = breaker(seed)
    fail(made, FAILURES_IN_A_ROW)
    assert made.wait_s(0) >= FIRST_PAUSE_S * JITTER
