"""What stands before a send: turns, rates, caps and breakers, as calls meet them."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from gateway_fakes import HandClock, config, definition, record_of

from smart_mcp_proxy.errors import ProxyError, RateLimitedError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.gateway.calls.admission import AdmissionControl, CallAdmission, CallerRate, open_admission
from smart_mcp_proxy.models import CallRequest, ServerState, ServerStatus
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

TOOL = record_of(definition("save"))
OTHER = record_of(definition("save"), server="beta", id=2)
DEAD = UpstreamTimeoutError("Too slow.", delivery="unknown")
READY = ServerStatus("alpha", "stdio", ServerState.READY)


def ask(principal: str = "local") -> CallRequest:
    return CallRequest("alpha:save", {}, "write", principal=principal)


class AdmissionSetup:
    """Gates in front of alpha and beta, and calls that end when they are told to."""

    def __init__(self, in_flight: int = 0, caller: CallerRate | None = None, **limits: float | None) -> None:
        self.clock = HandClock()
        self.admission = AdmissionControl(in_flight, caller, self.servers(**limits), self.clock, random.Random(1))

    @staticmethod
    def servers(**limits: float | None) -> dict[str, ServerConfig]:
        made: Callable[..., ServerLimits] = ServerLimits
        return {"alpha": config("alpha", limits=made(**limits)), "beta": config("beta")}

    async def call(self, principal: str = "local", ends_with: ProxyError | None = None) -> float | None:
        with CallAdmission(self.admission, TOOL.key.server, "save", principal) as admission:
            left_s = await admission.turn() if admission.is_waiting else None
            if ends_with is not None:
                raise ends_with
        return left_s

    async def fails(self, times: int = 1, error: ProxyError = DEAD) -> None:
        for _ in range(times):
            with pytest.raises(type(error)):
                await self.call(ends_with=error)

    async def refused(self, principal: str = "local") -> ProxyError:
        with pytest.raises((RateLimitedError, UpstreamError)) as caught:
            await self.call(principal)
        error: ProxyError = caught.value
        assert error.delivery == "not_sent"
        assert error.retry_after_s is not None and error.retry_after_s > 0
        assert error.hint
        return error

    @asynccontextmanager
    async def flying(self, principal: str = "local") -> AsyncIterator[asyncio.Event]:
        """A call under way; it ends when the event is set, or with the context."""
        goes, lands = asyncio.Event(), asyncio.Event()

        async def fly() -> None:
            with CallAdmission(self.admission, TOOL.key.server, "save", principal):
                goes.set()
                await lands.wait()

        task = asyncio.ensure_future(fly())
        await goes.wait()
        try:
            yield lands
        finally:
            lands.set()
            with anyio.fail_after(20):
                await task


async def settled() -> None:
    """Lets everything that can go on go on."""
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def test_without_limits_every_call_passes_at_once() -> None:
    """Nothing is counted against it, and it has all its time."""
    setup = AdmissionSetup()
    assert [await setup.call() for _ in range(100)] == [None] * 100
    assert repr(setup.admission) == "<AdmissionControl <SlotPool 0 of inf held, 0 calls waiting>, held back: nobody>"


async def test_a_servers_rate_refuses_what_is_too_fast_and_says_when_to_come_again() -> None:
    """And who can raise it; after that time a call passes."""
    setup = AdmissionSetup(calls_per_s=2.0, burst=3)
    for _ in range(3):
        await setup.call()
    error = await setup.refused()
    assert (error.error_code, error.http_status, error.jsonrpc_code) == ("rate_limited", 429, -32603)
    assert error.message == "Server 'alpha' takes 2 calls a second (at once: 3); this is too many."
    assert error.retry_after_s == 0.5
    assert "'calls_per_s' and 'burst' under 'limits'" in error.hint
    setup.clock.now_s += 0.5
    await setup.call()
    await setup.refused()


async def test_a_callers_rate_is_its_own() -> None:
    """One that is too fast disturbs no other; the operator's settings are named."""
    setup = AdmissionSetup(caller=CallerRate(1.0, 2))
    for _ in range(2):
        await setup.call("greedy")
    error = await setup.refused("greedy")
    assert error.message == "A caller may make 1 calls a second (at once: 2); this one is too many."
    assert "MCPPROXY_CALLS_PER_S" in error.hint
    await setup.call("modest")


async def test_a_refused_call_costs_no_caller_its_rate() -> None:
    """What the server's rate refuses is not counted against the caller's."""
    setup = AdmissionSetup(caller=CallerRate(1.0, 2), calls_per_s=1.0, burst=1)
    await setup.call()
    for _ in range(5):
        assert "Server 'alpha'" in (await setup.refused()).message
    setup.clock.now_s += 1
    await setup.call()


async def test_a_call_waits_for_its_turn_and_has_the_rest_of_its_time() -> None:
    """The wait counts against its server's time for calls."""
    setup = AdmissionSetup(in_flight=0, call_s=30.0)
    setup.admission.configure(AdmissionSetup.servers(in_flight=1, queue=1, call_s=30.0))
    with anyio.fail_after(20):
        async with setup.flying() as lands:
            waiting = asyncio.ensure_future(setup.call())
            await settled()
            assert not waiting.done()
            setup.clock.now_s += 12
            lands.set()
            assert await waiting == 18.0


async def test_a_full_queue_refuses_and_names_both_numbers() -> None:
    """Who waits keeps waiting."""
    setup = AdmissionSetup()
    setup.admission.configure(AdmissionSetup.servers(in_flight=1, queue=1))
    with anyio.fail_after(20):
        async with setup.flying():
            waiting = asyncio.ensure_future(setup.call())
            await settled()
            error = await setup.refused()
            assert error.message == "Server 'alpha' has 1 calls in flight and 1 waiting, its limit."
            assert "'in_flight' and 'queue' under 'limits'" in error.hint
            with CallAdmission(setup.admission, OTHER.key.server, "save", "local"):
                pass
        assert await waiting is not None


async def test_the_gateways_own_cap_names_its_setting() -> None:
    """A server with many calls leaves the other half of all places to the others."""
    setup = AdmissionSetup(in_flight=2, queue=4)
    with anyio.fail_after(20):
        async with setup.flying():
            waiting = [asyncio.ensure_future(setup.call()) for _ in range(4)]
            await settled()
            with CallAdmission(setup.admission, OTHER.key.server, "save", "local"):
                assert "Server 'alpha' has 1 calls in flight and 4 waiting" in (await setup.refused()).message
        await asyncio.gather(*waiting)
    setup = AdmissionSetup(in_flight=1)
    setup.admission.configure(AdmissionSetup.servers(in_flight=5, queue=0))
    with CallAdmission(setup.admission, OTHER.key.server, "save", "local"):
        assert "MCPPROXY_IN_FLIGHT" in (await setup.refused()).hint


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("is_one_caller", [False, True])
async def test_a_thousand_clients_with_a_call_each_are_all_served_by_default(is_one_caller: bool) -> None:
    """At the same moment, by one server: those that find no place wait for one, whoever they are."""
    admission = open_admission(Settings(), AdmissionSetup.servers(), HandClock())
    served, most = 0, 0

    async def call(number: int) -> None:
        nonlocal served, most
        with CallAdmission(
            admission, TOOL.key.server, "save", "local" if is_one_caller else f"client-{number}"
        ) as admitted:
            if admitted.is_waiting:
                await admitted.turn()
            most = max(most, admission.places.in_flight)
            await anyio.lowlevel.checkpoint()
            served += 1

    with anyio.fail_after(30):
        await asyncio.gather(*map(call, range(1_000)))
    assert (served, most) == (1_000, Settings().in_flight // 2)


async def test_a_cancelled_call_leaves_the_queue_and_its_place() -> None:
    """Whether it waited, or was given its turn at this very moment."""
    setup = AdmissionSetup()
    setup.admission.configure(AdmissionSetup.servers(in_flight=1, queue=2))
    with anyio.fail_after(20):
        async with setup.flying() as lands:
            gone, late, last = (asyncio.ensure_future(setup.call()) for _ in range(3))
            await settled()
            with pytest.raises(RateLimitedError):
                await last
            gone.cancel()
            await asyncio.wait([gone])
            last = asyncio.ensure_future(setup.call())
            await settled()
            lands.set()
            late.cancel()
            await asyncio.wait([late])
            assert await last is not None
    assert setup.admission.places.in_flight == 0


async def test_a_call_whose_turn_never_comes_ends_in_its_time() -> None:
    """It was not sent, and says so."""
    setup = AdmissionSetup()
    setup.admission.configure(AdmissionSetup.servers(in_flight=1, queue=1, call_s=0.02))
    with anyio.fail_after(20):
        async with setup.flying():
            error = await setup.refused()
            assert error.message == "The call waited 0.02 s for its turn at server 'alpha' and was not sent."
    assert setup.admission.places.in_flight == 0


async def test_while_calls_are_held_back_none_starts_and_those_that_cannot_wait_say_why() -> None:
    """Neither one that finds the queue full nor one whose time is over was sent; the others go on afterwards."""
    setup = AdmissionSetup()
    setup.admission.configure(AdmissionSetup.servers(in_flight=5, queue=1))
    with anyio.fail_after(20):
        setup.admission.hold("nobody reads the answers")
        waiting = asyncio.ensure_future(setup.call())
        await settled()
        error = await setup.refused()
        assert (
            error.message == "1 calls wait for server 'alpha' already; this one was not sent: nobody reads the answers."
        )
        assert "Read the answers" in error.hint
        assert not waiting.done()
        setup.admission.resume()
        await waiting
        setup.admission.configure(AdmissionSetup.servers(in_flight=5, queue=1, call_s=0.02))
        setup.admission.hold("nobody reads the answers")
        assert (await setup.refused()).message == (
            "The call waited 0.02 s for its turn at server 'alpha' and was not sent: nobody reads the answers."
        )
        setup.admission.resume()
        await setup.call()
    assert setup.admission.places.in_flight == 0


async def test_new_limits_let_waiting_calls_go_and_disturb_none_under_way() -> None:
    """A change of the server file is felt at once."""
    setup = AdmissionSetup()
    setup.admission.configure(AdmissionSetup.servers(in_flight=1, queue=5))
    with anyio.fail_after(20):
        async with setup.flying():
            waiting = asyncio.ensure_future(setup.call())
            await settled()
            setup.admission.configure(AdmissionSetup.servers(in_flight=2, queue=5))
            assert await waiting is not None
            setup.admission.configure({})
        assert await setup.call() is None


async def test_a_tool_that_gives_no_answer_is_left_alone_for_a_while() -> None:
    """Calls are refused at once, unsent, with the time after which one of them is let through to see."""
    setup = AdmissionSetup()
    await setup.fails(5)
    error = await setup.refused()
    assert (error.error_code, error.data) == ("breaker_open", {"breaker": "open"})
    assert isinstance(error, UpstreamError)
    assert error.message == "Calls of 'save' at server 'alpha' are held back, because it failed 5 calls in a row."
    with CallAdmission(setup.admission, TOOL.key.server, "load", "local"):
        pass
    with CallAdmission(setup.admission, OTHER.key.server, "save", "local"):
        pass
    assert error.retry_after_s is not None
    setup.clock.now_s += error.retry_after_s
    async with setup.flying():
        assert (await setup.refused()).data == {"breaker": "half_open"}
    await asyncio.gather(*(setup.call() for _ in range(10)))


async def test_what_the_tool_or_the_caller_did_wrong_opens_no_breaker() -> None:
    """A server that answers, if only to say no, is well."""
    setup = AdmissionSetup()
    refusal = UpstreamError("error -32603", delivery="executed", data={"rpc_code": -32603})
    not_ready = UpstreamError("not ready", data={"state": "error"})
    for _ in range(3):
        setup.clock.now_s += 60
        await setup.fails(4)
        await setup.fails(6, refusal)
        await setup.fails(6, not_ready)
    assert setup.admission.add_breaker_status(READY) == READY


async def test_a_server_that_cannot_be_reached_is_left_alone_whatever_is_called() -> None:
    """Nothing was sent, so it is not about one tool."""
    setup = AdmissionSetup()
    unreachable = UpstreamError("Connection refused.", delivery="not_sent")
    unreachable.is_lost = True
    await setup.fails(5, unreachable)
    assert (await setup.refused()).message.startswith("Calls to server 'alpha' are held back")
    with pytest.raises(UpstreamError), CallAdmission(setup.admission, TOOL.key.server, "load", "local"):
        pass
    assert setup.admission.add_breaker_status(READY).error == "Calls are held back, because it failed 5 calls in a row."


async def test_a_try_that_is_cancelled_is_followed_by_another() -> None:
    """The breaker does not wait for a call that nobody waits for."""
    setup = AdmissionSetup()
    await setup.fails(5)
    setup.clock.now_s += 60
    with anyio.fail_after(20):
        begun = asyncio.Event()

        async def probe() -> None:
            with CallAdmission(setup.admission, TOOL.key.server, "save", "local"):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(probe())
        await begun.wait()
        await setup.refused()
        task.cancel()
        await asyncio.wait([task])
        await setup.call()


async def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    """Retry-After of one answer holds for all calls."""
    setup = AdmissionSetup()
    busy = UpstreamError("HTTP 429", delivery="unknown", data={"http_status": 429}, retry_after_s=3)
    await setup.fails(1, busy)
    error = await setup.refused()
    assert (error.error_code, error.retry_after_s) == ("breaker_open", 3)
    setup.clock.now_s += 3
    await setup.call()


async def test_the_status_of_a_server_says_that_calls_are_held_back() -> None:
    """Until it is connected anew, which begins a clean sheet."""
    setup = AdmissionSetup()
    await setup.fails(5)
    shown = setup.admission.add_breaker_status(READY)
    assert (shown.state, shown.breaker) == (ServerState.READY, "open")
    assert shown.error == "Calls of 'save' are held back, because it failed 5 calls in a row."
    assert shown.hint.startswith("One call is let through in ")
    setup.clock.now_s += 60
    assert setup.admission.add_breaker_status(READY).hint == "The next call is let through."
    setup.admission.connection_changed(READY)
    assert setup.admission.add_breaker_status(READY) == READY
    await setup.call()


async def test_gateways_share_a_servers_rate() -> None:
    """Three let a third through each, and say so; one that goes leaves its share to the others."""
    setup = AdmissionSetup(calls_per_s=6.0, burst=6)
    setup.admission.divide([["alpha"], ["alpha", "beta"]])
    await setup.call()
    await setup.call()
    error = await setup.refused()
    assert error.message == "Server 'alpha' takes 2 calls a second (at once: 2); this is too many."
    assert error.hint.endswith("3 gateways share the limit; this is the share of one.")
    setup.admission.divide([["alpha"]])
    await setup.call()
    error = await setup.refused()
    assert error.message.startswith("Server 'alpha' takes 3 calls a second (at once: 3)")
    assert error.hint.endswith("2 gateways share the limit; this is the share of one.")


async def test_a_servers_limit_is_shared_by_the_gateways_that_have_it() -> None:
    """One that serves other servers needs no share of it, but one of what holds for all servers and for callers."""
    setup = AdmissionSetup(in_flight=8, caller=CallerRate(4.0, 4), calls_per_s=2.0, burst=2)
    setup.admission.divide([["beta"]])
    await setup.call("one")
    await setup.call("one")
    assert (await setup.refused("one")).message.startswith("A caller may make 2 calls a second (at once: 2)")
    assert (await setup.refused("two")).message.startswith("Server 'alpha' takes 2 calls a second (at once: 2)")
    assert setup.admission.places.most == 4


async def test_a_share_that_changes_ends_no_call() -> None:
    """Calls under way go on, calls that wait go on waiting, and start when there is room again."""
    setup = AdmissionSetup()
    setup.admission.configure(AdmissionSetup.servers(in_flight=2, queue=9))
    with anyio.fail_after(20):
        async with setup.flying() as first, setup.flying():
            setup.admission.divide([["alpha"]])
            waiting = asyncio.ensure_future(setup.call())
            await settled()
            first.set()
            await settled()
            assert not waiting.done()  # one is in flight still, this gateway's whole share
            setup.admission.divide([])
            assert await waiting is not None


async def test_a_share_holds_over_a_change_of_the_servers() -> None:
    """New limits are divided as well, and held places stay held."""
    setup = AdmissionSetup(in_flight=9)
    setup.admission.divide([["alpha"], ["alpha"]])
    setup.admission.configure(AdmissionSetup.servers(in_flight=6, queue=0))
    assert setup.admission.places.get_server_limits("alpha") == (2, 0)
    assert setup.admission.places.most == 3
    setup.admission.hold("because")
    setup.admission.divide([])
    assert setup.admission.places.is_held
    assert setup.admission.places.get_server_limits("alpha") == (6, 0)


async def test_a_callers_share_is_never_below_one_call() -> None:
    """At once, and in a minute: with so many gateways the limit is exceeded rather than calls impossible."""
    setup = AdmissionSetup(in_flight=2, caller=CallerRate(1.0, 1))
    setup.admission.divide([[]] * 99)
    await setup.call()
    assert (await setup.refused()).retry_after_s == 60.0
    assert setup.admission.places.most == 1
