"""Quotas: what a person and the people of a group may call, whose calls count for whom, and gateways' shares."""

from contextlib import ExitStack
from typing import Any

import pytest
from gateway_fakes import HandClock, config

from smart_mcp_proxy.errors import RateLimitedError
from smart_mcp_proxy.gateway.calls import quotas as module
from smart_mcp_proxy.gateway.calls.admission import CallAdmission, open_admission
from smart_mcp_proxy.gateway.calls.quotas import open_quotas
from smart_mcp_proxy.settings import Settings

HOUR_S = 3_600.0


class Counted:
    """Admission with quotas, its clock, and calls that end at once."""

    def __init__(self, **settings: Any) -> None:
        self.clock = HandClock()
        self.admission = open_admission(Settings(**settings), {"alpha": config("alpha")}, self.clock)

    def call(self, principal: str) -> None:
        with CallAdmission(self.admission, "alpha", "save", principal):
            pass

    def count(self, principal: str) -> int:
        """Calls that are let through now."""
        for done in range(1_000):
            try:
                self.call(principal)
            except RateLimitedError:
                return done
        raise AssertionError("no end")

    def refused(self, principal: str) -> RateLimitedError:
        with pytest.raises(RateLimitedError) as caught:
            self.call(principal)
        return caught.value


def test_without_quotas_there_is_nothing_to_ask() -> None:
    """A gateway of one user has no object for them."""
    assert open_admission(Settings(), {}, HandClock()).quotas is None


def test_a_person_has_as_many_calls_as_the_quota_says_and_others_theirs() -> None:
    """A refusal says which quota and when again; then one more passes, and after the whole time all."""
    counted = Counted(person_quota="6/hour")
    assert (counted.count("ann"), counted.count("bob")) == (6, 6)
    error = counted.refused("ann")
    assert error.message == "A person may make 6 calls an hour; this one is too many."
    assert (error.error_code, error.http_status, error.retry_after_s) == ("rate_limited", 429, 600.0)
    assert "Try again in 600 s" in error.hint and "MCPPROXY_PERSON_QUOTA" in error.hint
    assert error.data == {"quota": "person=6/hour"}
    counted.clock.now_s += 600.0
    assert counted.count("ann") == 1
    counted.clock.now_s += HOUR_S
    assert counted.count("ann") == 6


def test_a_call_that_goes_on_is_counted_once() -> None:
    """As one does whose server answers with a task: its person's last call of the day may take its time."""
    counted = Counted(person_quota="2/hour", person_in_flight=1)
    for _ in range(2):
        counted.call("ann")
        with CallAdmission(counted.admission, "alpha", "save", "ann", goes_on=True):
            assert counted.admission.quotas is not None and counted.admission.quotas.find_crowd("ann") == 1
    assert counted.refused("ann").data == {"quota": "person=2/hour"}


def test_tokens_that_a_person_made_count_for_the_person() -> None:
    """Else a quota would be as large as the number of one's tokens."""
    counted = Counted(person_quota="4/day", group_quotas=("devs=3/day",))
    quotas = counted.admission.quotas
    assert quotas is not None
    quotas.find_person = lambda principal: {"agent-1": "ann"}.get(principal, principal)
    quotas.note_groups("ann", {"devs"})
    assert (counted.count("agent-1"), counted.count("ann"), counted.count("agent-2")) == (3, 0, 4)


def test_the_people_of_a_group_share_its_quota() -> None:
    """Of those in several groups each counts; a refused call counts against none, and unknown groups are none."""
    counted = Counted(group_quotas=("devs=4/day", "night shift=2/day"))
    quotas = counted.admission.quotas
    assert quotas is not None
    quotas.note_groups("ann", {"devs", "night shift", "other"})
    quotas.note_groups("bob", {"devs"})
    quotas.note_groups("eve", {f"group {number}" for number in range(5_000)})
    assert counted.count("ann") == 2
    error = counted.refused("ann")
    assert error.message.startswith("The people of group 'night shift' may together make 2 calls a day")
    assert "MCPPROXY_GROUP_QUOTAS" in error.hint and error.data == {"quota": "night shift=2/day"}
    assert (counted.count("bob"), counted.count("ann")) == (2, 0)
    with pytest.raises(AssertionError, match="no end"):
        counted.count("eve")
    quotas.note_groups("ann", ())
    with pytest.raises(AssertionError, match="no end"):
        counted.count("ann")


def test_gateways_on_one_store_take_equal_shares() -> None:
    """What was used stays used when another comes; a share is never none."""
    counted = Counted(person_quota="8/hour", group_quotas=("devs=2/hour",))
    quotas = counted.admission.quotas
    assert quotas is not None
    quotas.note_groups("dan", {"devs"})
    for _ in range(2):
        counted.call("ann")
    counted.admission.divide([["alpha"]])
    assert (counted.count("ann"), counted.count("bob"), counted.count("dan")) == (2, 4, 1)
    assert "2 gateways share the limit" in counted.refused("bob").hint
    counted.admission.divide([["alpha"]] * 9)
    assert counted.count("carol") == 1
    counted.admission.divide([])
    assert counted.count("eve") == 8


def test_calls_of_a_person_at_once_leave_room_for_others() -> None:
    """Whether they are sent or wait; with all of a person's tokens; each that ends makes room, however it ends."""
    counted = Counted(person_in_flight=4)
    quotas = counted.admission.quotas
    assert quotas is not None
    quotas.find_person = lambda principal: {"agent-1": "ann"}.get(principal, principal)
    with ExitStack() as under_way:
        for number in range(4):
            principal = ("ann", "agent-1")[number % 2]
            under_way.enter_context(CallAdmission(counted.admission, "alpha", "save", principal))
        error = counted.refused("ann")
        assert error.message == "A person may have 4 calls under way at the same time; this one is too many."
        assert error.retry_after_s == 1.0 and "MCPPROXY_PERSON_IN_FLIGHT" in error.hint
        counted.call("bob")
    with pytest.raises(KeyError), CallAdmission(counted.admission, "alpha", "save", "ann"):
        raise KeyError
    assert not quotas._under_way
    counted.admission.divide([["alpha"]])
    with ExitStack() as under_way:
        for _ in range(2):
            under_way.enter_context(CallAdmission(counted.admission, "alpha", "save", "ann"))
        assert "2 gateways share the limit" in counted.refused("agent-1").hint


def test_a_refused_call_is_not_under_way() -> None:
    """Whatever refuses it."""
    counted = Counted(person_in_flight=2, person_quota="1/day", in_flight=1)
    counted.call("ann")
    for _ in range(5):
        assert "1 calls a day" in counted.refused("ann").message
    quotas = counted.admission.quotas
    assert quotas is not None and not quotas._under_way


def test_memory_does_not_grow_with_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has all calls left is forgotten first."""
    monkeypatch.setattr(module, "PEOPLE_REMEMBERED", 3)
    quotas = open_quotas(Settings(person_quota="1/minute", group_quotas=("devs=1/day",)), 2)
    assert quotas is not None
    for number in range(9):
        quotas.note_groups(f"p{number}", {"devs"})
        for each in quotas.find(f"p{number}", 100.0 * number):
            each.bucket.take(100.0 * number)
    assert repr(quotas) == "<Quotas of 1 people and 1 groups>"
    assert len(list(quotas.find("p8", 900.0))) == 2 and len(list(quotas.find("p0", 900.0))) == 1
