"""How many calls may be made: rates that are never exceeded, places that are never oversold, turns that are fair."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.policy.limits import QUEUE, QUEUE_PER_PLACE, PlaceState, Slot, SlotPool, TokenBucket
from smart_mcp_proxy.servers import ServerLimits

rates = st.floats(0.01, 1000, allow_nan=False)
bursts = st.integers(1, 50)
pauses = st.lists(st.floats(0, 5, allow_nan=False), min_size=1, max_size=80)


@given(rate=rates, burst=bursts, gaps=pauses)
def test_no_window_holds_more_than_the_burst_and_what_the_rate_adds(rate: float, burst: int, gaps: list[float]) -> None:
    """Whenever calls come, in any window of t seconds at most burst + rate * t of them pass."""
    bucket = TokenBucket(rate, burst)
    now, passed = 1000.0, []
    for gap in gaps:
        now += gap
        for _ in range(3):
            if not bucket.wait_s(now):
                bucket.take(now)
                passed.append(now)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + rate * (passed[last] - passed[first]) + 1e-6


@given(rate=rates, burst=bursts, gap=st.floats(0, 100))
def test_after_the_time_that_was_named_a_call_passes_and_not_before(rate: float, burst: int, gap: float) -> None:
    """What a refused caller is told is true."""
    bucket = TokenBucket(rate, burst)
    now = 500.0 + gap
    for _ in range(burst):
        assert bucket.wait_s(now) == 0
        bucket.take(now)
    wait_s = bucket.wait_s(now)
    assert 0 < wait_s <= 1 / rate * (1 + 1e-6)
    assert bucket.wait_s(now + wait_s * 0.99) > 0
    assert bucket.wait_s(now + wait_s) == 0


def test_a_rate_below_one_a_second_lets_one_call_through_at_a_time() -> None:
    """The burst that nobody named is one second's worth, and one call at least."""
    assert [TokenBucket(rate).burst for rate in (0.1, 1, 2.5, 10)] == [1, 1, 3, 10]


def test_another_rate_forgives_nothing() -> None:
    """Who used up the old rate has to wait under the new one as well."""
    bucket = TokenBucket(1, 2)
    for _ in range(2):
        bucket.take(0)
    bucket.change(1, 4, 0)
    assert [bucket.wait_s(0)] == [0]
    bucket.change(1, 1, 0)
    assert bucket.wait_s(0) == 2
    assert not bucket.is_full(1.9)
    assert bucket.is_full(2)


def test_what_was_taken_is_paid_back_at_the_new_rate() -> None:
    """Nobody waits for a minute because the rate was a call a minute when the last call was made."""
    bucket = TokenBucket(1 / 60, 1)
    bucket.take(0)
    assert bucket.wait_s(30) == pytest.approx(30)
    bucket.change(1, 1, 30)
    assert bucket.wait_s(30) == pytest.approx(0.5)


def test_another_number_of_places_takes_none_away() -> None:
    """Whoever holds one keeps it; the next call waits until few enough are held, also where places are held back."""
    places = SlotPool(8)
    held = entered(places, *["a/x"] * 4)
    assert places.configure({}, most=2) == []
    waiting = places.enter("a", "x")
    assert (states(held), states([waiting])) == ("hhhh", "w")
    assert [places.leave(place) for place in held[:3]] == [[], [], []]
    assert places.leave(held[3]) == [waiting]
    places.hold()
    assert places.configure({}, most=8) == []
    second = places.enter("a", "x")
    assert states([second]) == "w"
    assert places.resume() == [second]


def entered(places: SlotPool, *who: str) -> list[Slot]:
    """One place for each `server/principal`."""
    return [places.enter(*one.split("/")) for one in who]


def states(places: list[Slot]) -> str:
    """One letter a place: h(eld), w(aiting), s(erver full), a(ll full), l(eft)."""
    return "".join(place.state.value[0] for place in places)


def test_a_server_gets_as_many_calls_as_its_entry_allows_and_so_many_wait() -> None:
    """The next ones are refused; a place that is left goes to the one that has waited longest."""
    places = SlotPool()
    places.configure({"a": ServerLimits(in_flight=2, queue=1)})
    calls = entered(places, "a/x", "a/x", "a/x", "a/x", "b/x")
    assert states(calls) == "hhwsh"
    assert places.leave(calls[0]) == [calls[2]]
    assert states(calls) == "lhhsh"


def test_one_server_cannot_take_all_places_of_the_gateway() -> None:
    """Without a limit of its own it has half of them; an entry may say more or less."""
    places = SlotPool(4)
    assert states(entered(places, *["a/x"] * 3, *["b/x"] * 3)) == "hhwhhw"
    places = SlotPool(4)
    places.configure({"a": ServerLimits(in_flight=9), "b": ServerLimits()})
    assert states(entered(places, *["a/x"] * 5, "b/x")) == "hhhhww"
    assert SlotPool(1).enter("a", "x").state is PlaceState.HELD


def test_a_queue_without_a_size_holds_four_calls_for_each_place() -> None:
    """Waiting is bounded wherever flying is, and unbounded where nothing is limited."""
    places = SlotPool()
    places.configure({"a": ServerLimits(in_flight=2), "b": ServerLimits(in_flight=1, queue=0)})
    assert states(entered(places, *["a/x"] * 11)) == "hh" + "w" * 2 * QUEUE_PER_PLACE + "s"
    assert states(entered(places, "b/x", "b/x")) == "hs"
    assert states(entered(places, *["c/x"] * 1000)) == "h" * 1000


def test_while_places_are_held_back_everybody_waits() -> None:
    """As many as otherwise; nobody loses a place, and one that becomes free goes to nobody before they resume."""
    places = SlotPool(2)
    places.configure({"a": ServerLimits(in_flight=2, queue=2)})
    first = places.enter("a", "x")
    places.hold()
    assert places.is_held
    waiting = entered(places, *["a/x"] * 3)
    assert states([first, *waiting]) == "hwwa"
    assert places.leave(first) == []
    assert places.resume() == waiting[:2]
    assert not places.is_held
    assert states([*waiting[:2], places.enter("a", "x")]) == "hhw"


def test_a_server_without_limits_of_its_own_has_a_long_queue_that_ends() -> None:
    """Whatever the cap over all servers is; an entry's own numbers go before it."""
    for most in (2, 256):
        places = SlotPool(most)
        found = [place.state for place in entered(places, *["a/x"] * (most // 2 + QUEUE + 1))]
        assert found.count(PlaceState.HELD) == most // 2
        assert found.count(PlaceState.WAITING) == QUEUE
        assert found[-1] is PlaceState.SERVER_FULL
    places = SlotPool(8)
    places.configure({"a": ServerLimits(queue=1)})
    assert states(entered(places, *["a/x"] * 6)) == "hhhhws"


def test_callers_take_turns_in_the_queue() -> None:
    """Who has many calls waiting does not keep another one waiting for all of them; one's own keep their order."""
    places = SlotPool()
    places.configure({"a": ServerLimits(in_flight=1, queue=10)})
    first = places.enter("a", "greedy")
    waiting = entered(places, "a/greedy", "a/greedy", "a/greedy", "a/modest", "a/third")
    order = []
    current = first
    while admitted := places.leave(current):
        (current,) = admitted
        order.append(current)
    assert order == [waiting[0], waiting[3], waiting[4], waiting[1], waiting[2]]


def test_servers_take_turns_at_the_places_of_the_gateway() -> None:
    """When all places are taken, a server with a long queue does not starve another one."""
    places = SlotPool(2)
    held = entered(places, "a/x", "b/x")
    waiting = entered(places, "a/x", "a/x", "c/x")
    assert states(waiting) == "www"
    admitted = places.leave(held[1])
    assert admitted == [waiting[2]]
    assert places.leave(admitted[0]) == []
    assert places.leave(held[0]) == [waiting[0]]


def test_new_limits_take_no_place_away_and_give_waiting_calls_the_new_ones() -> None:
    """A lower limit holds for those that come; a higher one is felt at once."""
    places = SlotPool()
    places.configure({"a": ServerLimits(in_flight=3, queue=5)})
    calls = entered(places, *["a/x"] * 6)
    assert places.configure({"a": ServerLimits(in_flight=1, queue=5)}) == []
    assert [places.leave(call) for call in calls[:3]] == [[], [], [calls[3]]]
    assert places.configure({"a": ServerLimits()}) == calls[4:]
    assert places.configure({}) == []
    for call in calls[3:]:
        places.leave(call)
    assert repr(places) == "<SlotPool 0 of inf held, 0 calls waiting>"


def test_a_place_is_left_once() -> None:
    """Twice would let one call too many through: a bug, and said so."""
    places = SlotPool()
    place = places.enter("a", "x")
    places.leave(place)
    with pytest.raises(RuntimeError, match="left"):
        places.leave(place)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.sampled_from("abc"), st.sampled_from("xyz")),
        st.tuples(st.just("leave"), st.integers(0, 200), st.just("")),
        st.tuples(st.just("limit"), st.sampled_from("abc"), st.sampled_from(["1", "3", ""])),
    ),
    max_size=120,
)


@pytest.mark.long  # a third of a second of processor time
@given(most=st.integers(0, 6), queue=st.integers(0, 4), steps=steps)
def test_no_sequence_of_events_oversells_forgets_or_loses_a_place(
    most: int, queue: int, steps: list[tuple[str, str | int, str]]
) -> None:
    """Caps hold where limits were not lowered meanwhile; nobody waits while there is room; at the end all is free."""
    places = SlotPool(most)
    limits: dict[str, ServerLimits] = {}
    mine: list[Slot] = []
    highest: Counter[str] = Counter()
    for kind, which, value in steps:
        if kind == "enter":
            place = places.enter(str(which), value)
            if place.state in (PlaceState.HELD, PlaceState.WAITING):
                mine.append(place)
        elif kind == "leave" and mine:
            places.leave(mine.pop(int(which) % len(mine)))
        elif kind == "limit":
            limits[str(which)] = ServerLimits(in_flight=int(value) if value else None, queue=queue)
            places.configure(limits)
        held = [place for place in mine if place.state is PlaceState.HELD]
        assert len(held) == places.in_flight <= (most or math.inf)
        for server in "abc":
            own, _ = places.get_server_limits(server)
            count = sum(place.server == server for place in held)
            highest[server] = max(own, min(highest[server] or own, count))
            assert count <= highest[server]
            has_room = count < own and len(held) < (most or math.inf)
            assert not (has_room and any(p.server == server and p.state is PlaceState.WAITING for p in mine))
    while mine:
        places.leave(mine.pop(0))
    assert repr(places).endswith(" held, 0 calls waiting>") and places.in_flight == 0
