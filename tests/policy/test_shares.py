"""Shares of limits that several gateways keep together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.policy.limits import LEAST_RATE_PER_S, share_of_count, share_of_limits, share_of_rate
from smart_mcp_proxy.servers import ServerLimits

counts = st.integers(1, 100_000)
gateways = st.integers(1, 200)


@given(limit=counts, number=gateways)
def test_shares_of_a_count_are_no_more_than_the_whole_as_long_as_each_can_have_one(limit: int, number: int) -> None:
    """And less than one place for each gateway is lost; below that each has one."""
    share = share_of_count(limit, number)
    assert share >= 1
    if limit >= number:
        assert limit - number < share * number <= limit
    else:
        assert share == 1


@given(rate=st.floats(0.001, 1e5), number=gateways)
def test_shares_of_a_rate_add_up_to_it(rate: float, number: int) -> None:
    """Unless a share would be less than a call a minute; a rate that is lower than that is not divided."""
    share = share_of_rate(rate, number)
    if rate / number >= LEAST_RATE_PER_S:
        assert share * number == pytest.approx(rate)
    else:
        assert share == min(rate, LEAST_RATE_PER_S)


def test_no_limit_stays_none() -> None:
    """However many gateways there are."""
    assert (share_of_count(0, 3), share_of_rate(0.0, 3)) == (0, 0.0)
    assert share_of_limits(ServerLimits(), 3) == ServerLimits()


def test_of_a_servers_limits_those_on_the_server_are_divided() -> None:
    """Its queue and its times stay; one gateway alone has all."""
    whole = ServerLimits(calls_per_s=6.0, burst=10, in_flight=8, queue=5, call_s=7.0)
    assert share_of_limits(whole, 1) is whole
    assert share_of_limits(whole, 3) == ServerLimits(calls_per_s=2.0, burst=3, in_flight=2, queue=5, call_s=7.0)
