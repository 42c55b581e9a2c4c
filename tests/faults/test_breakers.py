"""A server whose every call fails is left alone while its neighbour notices nothing, and limits change under way."""

import asyncio
import json
from pathlib import Path

import anyio
import pytest
from modes import Place
from msgspec.structs import replace
from rig import Rig, opened_rig

from smart_mcp_proxy.models import CallRequest
from smart_mcp_proxy.policy.breaker import FAILURES_IN_A_ROW, FIRST_PAUSE_S

pytestmark = pytest.mark.anyio

BAD_CALLS = 40


async def outcome_of(rig: Rig, nonce: str) -> tuple[str, str]:
    answer = await rig.call(nonce)
    return answer.outcome, answer.delivery


@pytest.mark.long  # starts and ends processes, seconds of it
@pytest.mark.parametrize("fault", ["call 503"])
async def test_a_poison_pill_is_left_alone_and_its_neighbour_served(tmp_path: Path, fault: str) -> None:
    """It connects, and every call fails: after five at most the rest is refused unsent; then one is let through."""
    async with opened_rig(tmp_path, Place("http", "modern")) as rig:
        rig.faulty.switch(fault)
        beside = asyncio.ensure_future(rig.neighbour(BAD_CALLS))
        nonces = [rig.nonce() for _ in range(BAD_CALLS)]
        answers = [await outcome_of(rig, nonce) for nonce in nonces]
        refused = [answer for answer in answers if answer == ("breaker_open", "not_sent")]
        assert len(refused) >= BAD_CALLS - FAILURES_IN_A_ROW
        assert sum(map(rig.faulty.arrivals, nonces)) <= FAILURES_IN_A_ROW
        with anyio.fail_after(30):
            assert len(await beside) == BAD_CALLS
        held = {status.name: status for status in rig.gateway.status().servers}
        assert (held["faulty"].breaker, held["neighbour"].breaker) == ("open", "closed")
        assert held["faulty"].error.startswith("Calls are held back")
        await rig.faulty.lift()
        with anyio.fail_after(4 * FIRST_PAUSE_S):
            while (await rig.call(rig.nonce())).outcome != "ok":
                await asyncio.sleep(0.05)
        assert {status.breaker for status in rig.gateway.status().servers} == {"closed"}


@pytest.mark.long  # a third of a second of processor time
async def test_new_limits_hold_at_once_and_drop_no_call_under_way(tmp_path: Path) -> None:
    """The server is not restarted for them; a waiting call goes as soon as it may."""
    async with opened_rig(tmp_path, Place("stdio", "handshake")) as rig:
        calls, fleet = rig.gateway.calls, rig.gateway.upstreams.fleet
        upstream = fleet.upstreams.get("faulty")
        assert upstream is not None
        before = upstream.config
        configs = {one.name: one.config for one in fleet}

        async def limit(in_flight: int | None) -> None:
            limits = replace(before.limits, in_flight=in_flight, queue=0, call_s=20.0)
            await rig.gateway.apply(configs | {"faulty": replace(before, limits=limits)})

        rig.faulty.switch("call slow")
        request = CallRequest("faulty:effect", {"nonce": "under way"}, "write")
        under_way = asyncio.ensure_future(calls.call(request))
        with anyio.fail_after(10):
            while not rig.faulty.arrivals("under way"):
                await asyncio.sleep(0.01)
        await limit(1)
        assert await outcome_of(rig, "one too many") == ("rate_limited", "not_sent")
        await limit(None)
        rig.faulty.switch("")
        assert fleet.upstreams.get("faulty") is upstream
        with anyio.fail_after(10):
            assert b"recorded under way" in (await under_way).text
        assert json.loads((await calls.call(CallRequest("faulty:effect", {"nonce": "after"}, "write"))).text)
