"""Admission control before every send: rates, slots with a queue, breakers."""

import asyncio
import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import msgspec

from smart_mcp_proxy.errors import RateLimitedError, UpstreamError
from smart_mcp_proxy.gateway.calls.quotas import CountedQuota, Quotas, open_quotas
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.policy.breaker import Breaker, Breakers, Epochs, classify_end
from smart_mcp_proxy.policy.limits import (
    PlaceState,
    Slot,
    SlotPool,
    TokenBucket,
    share_of_count,
    share_of_limits,
    share_of_rate,
)
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.settings import Settings

CALLERS_REMEMBERED: Final = 4_096
"""Buckets of callers; beyond it those that are full again are dropped, which nobody notices."""
FULL_RETRY_S: Final = 1.0
"""Seconds that a caller should wait where nobody can know how long the calls under way take."""
SERVER_LIMITS: Final = "The user can raise 'in_flight' and 'queue' under 'limits' in the server's entry."


class CallerRate(msgspec.Struct, frozen=True):
    """Rate limit of each caller.

    Attributes:
        calls_per_s: On average; 0 is no limit.
        burst: At once; 0 is one second's worth.
    """

    calls_per_s: float = 0.0
    burst: int = 0

    def share(self, gateways: int) -> "CallerRate":
        """Return one gateway's share of the rate limit."""
        return CallerRate(share_of_rate(self.calls_per_s, gateways), share_of_count(self.burst, gateways))


class _ServerAdmission:
    """Rate limit and breakers of one server."""

    __slots__ = ("breakers", "bucket", "gateways", "limits", "server")

    def __init__(self, server: str, breakers: Breakers) -> None:
        self.server = server
        self.breakers = breakers
        self.limits = ServerLimits()
        self.gateways = 1
        self.bucket: TokenBucket | None = None

    def limit(self, limits: ServerLimits, gateways: int, now_s: float) -> None:
        """Replace the limits by the share of one of so many gateways."""
        self.limits = limits
        self.gateways = gateways
        if limits.calls_per_s is None:
            self.bucket = None
        elif self.bucket is None:
            self.bucket = TokenBucket(limits.calls_per_s, limits.burst)
        else:
            self.bucket.change(limits.calls_per_s, limits.burst, now_s)


class AdmissionControl:
    """Lets calls through to their servers, makes them wait for their turn, or refuses them.

    Several gateways on one store keep the limits together: each lets its share through, and nothing is asked of the
    others on the way of a call. A limit of a server is shared by those gateways that have that server.

    Args:
        in_flight: Calls at the same time over all servers; 0 is no limit.
        caller: What each caller may do; None for whatever it likes.
        servers: The configured servers, for their `limits`.
        clock: Monotonic seconds.
        rng: Source of the breakers' jitter.
        quotas: Of people and groups; None where there are none.
    """

    def __init__(
        self,
        in_flight: int = 0,
        caller: CallerRate | None = None,
        servers: Mapping[str, ServerConfig] | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.clock = clock
        self.quotas = quotas
        self.places = SlotPool(in_flight)
        self.held_because = ""
        self.gateways = 1
        self._in_flight = in_flight
        self._caller = self._caller_share = caller or CallerRate()
        self._callers: dict[str, TokenBucket] = {}
        self._others: tuple[frozenset[str], ...] = ()
        """Servers of each other gateway."""
        self._servers: Mapping[str, ServerConfig] = {}
        self._rng = rng or random.Random()
        self._gates: dict[str, _ServerAdmission] = {}
        self._waiting: dict[Slot, asyncio.Future[None]] = {}
        self.configure(servers or {})

    def __repr__(self) -> str:
        held = [name for name, gate in self._gates.items() if gate.breakers.find_tripped()]
        return f"<AdmissionControl {self.places!r}, held back: {', '.join(held) or 'nobody'}>"

    def configure(self, servers: Mapping[str, ServerConfig]) -> None:
        """Puts the servers' present limits in force; calls in flight and calls that wait stay what they are."""
        self._servers = servers
        for name in self._gates.keys() - servers.keys():
            del self._gates[name]
        self._limit()

    def divide(self, others: Sequence[Collection[str]]) -> None:
        """Keep this gateway's share of every limit; calls in flight and calls that wait stay what they are.

        Args:
            others: The names of the servers of each other gateway that lives.
        """
        known = tuple(map(frozenset, others))
        if known == self._others:
            return
        self._others = known
        self.gateways = 1 + len(known)
        self._caller_share = self._caller.share(self.gateways)
        now_s = self.clock()
        for bucket in self._callers.values():
            bucket.change(self._caller_share.calls_per_s, self._caller_share.burst or None, now_s)
        if self.quotas is not None:
            self.quotas.divide(self.gateways, now_s)
        self._limit()

    def _limit(self) -> None:
        """Puts this gateway's shares in force."""
        now_s, shares = self.clock(), dict[str, ServerLimits]()
        for name, config in self._servers.items():
            gateways = 1 + sum(name in servers for servers in self._others)
            shares[name] = share_of_limits(config.limits, gateways)
            self._gate(name).limit(shares[name], gateways, now_s)
        self.wake(self.places.configure(shares, share_of_count(self._in_flight, self.gateways)))

    def connection_changed(self, status: ServerStatus) -> None:
        """Close the breakers of a server that was connected anew, however its last connection ended."""
        if status.state is ServerState.READY and (gate := self._gates.get(status.name)) is not None:
            gate.breakers.reset()

    def add_breaker_status(self, status: ServerStatus) -> ServerStatus:
        """The status with what its breakers add to it."""
        gate = self._gates.get(status.name)
        held = None if gate is None or status.state is not ServerState.READY else gate.breakers.find_tripped()
        if held is None:
            return status
        item, breaker = held
        wait_s = breaker.wait_s(self.clock())
        calls = f"Calls of {item!r}" if item else "Calls"
        return msgspec.structs.replace(
            status,
            breaker=breaker.state.value,
            error=f"{calls} are held back, because it {breaker.reason}.",
            hint=f"One call is let through in {wait_s:.0f} s to see." if wait_s else "The next call is let through.",
        )

    def _caller_wait_s(self, principal: str, now_s: float) -> float:
        """Seconds until this caller, whose rate is limited, may make another call, 0 if it may now."""
        rate, bucket = self._caller_share, self._callers.get(principal)
        if bucket is None:
            if len(self._callers) >= CALLERS_REMEMBERED:
                self._callers = {name: one for name, one in self._callers.items() if not one.is_full(now_s)}
            bucket = self._callers[principal] = TokenBucket(rate.calls_per_s, rate.burst or None)
        return bucket.wait_s(now_s)

    def take(self, gate: _ServerAdmission, principal: str, now_s: float, *, goes_on: bool = False) -> None:
        """Counts a call against both rates, and against the quotas of whoever makes it unless it goes on.

        Raises:
            RateLimitedError: One of them is used up; nothing is counted then.
        """
        quotas = () if self.quotas is None or goes_on else self._require_quotas(self.quotas, principal, now_s)
        if self._caller_share.calls_per_s and (wait_s := self._caller_wait_s(principal, now_s)):
            raise build_caller_rate_error(self._callers[principal], self.gateways, wait_s)
        if gate.bucket is not None:
            if wait_s := gate.bucket.wait_s(now_s):
                raise build_server_rate_error(gate.server, gate.bucket, gate.gateways, wait_s)
            gate.bucket.take(now_s)
        if (bucket := self._callers.get(principal)) is not None:
            bucket.take(now_s)
        for quota in quotas:
            quota.bucket.take(now_s)

    def _require_quotas(self, quotas: Quotas, principal: str, now_s: float) -> tuple[CountedQuota, ...]:
        """Return what a call is counted against, if it may be made."""
        if most := quotas.find_crowd(principal):
            raise build_crowd_error(most, self.gateways)
        found = tuple(quotas.find(principal, now_s))
        for quota in found:
            if wait_s := quota.bucket.wait_s(now_s):
                raise build_quota_error(quota, self.gateways, wait_s)
        return found

    async def turn(self, place: Slot, timeout_s: float) -> None:
        """Waits until a waiting place is held.

        Raises:
            TimeoutError: It was not its turn in time. The place has to be left in any case.
        """
        if place.state is not PlaceState.WAITING:  # it has come meanwhile
            return
        turn = self._waiting[place] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        finally:
            del self._waiting[place]

    def hold(self, why: str) -> None:
        """Start no call until `resume`; calls queue up to their servers' limits.

        Args:
            why: The rest of a sentence, for those that are refused meanwhile.
        """
        self.held_because = why
        self.places.hold()

    def resume(self) -> None:
        """Starts calls again, those that waited first."""
        self.wake(self.places.resume())

    def wake(self, places: list[Slot]) -> None:
        """Wake the calls whose turn it is."""
        for place in places:
            # One that was cancelled a moment ago has not left yet; it gives the place on when it does.
            if (turn := self._waiting.get(place)) is not None and not turn.done():
                turn.set_result(None)

    def _gate(self, server: str) -> _ServerAdmission:
        gate = self._gates.get(server)
        if gate is None:
            gate = self._gates[server] = _ServerAdmission(server, Breakers(self._rng))
        return gate


class CallAdmission:
    """Context manager that admits one call to its server.

    The call may be sent within the context; where it `is_waiting`, only after its `turn`.

    Args:
        admission: Lets it through.
        server: Configured name.
        item: The tool that is called; of other requests the method.
        principal: Who asks.
        goes_on: Whether it is the rest of a call that was counted against its person's quotas already.

    Attributes:
        is_waiting: Whether it has to wait for its turn.

    Raises:
        RateLimitedError: On entering: too many calls, at once or in too short a time.
        UpstreamError: On entering: such calls are held back, code `breaker_open`.
    """

    __slots__ = (
        *("_entered_s", "_epochs", "_gate", "_gates", "_goes_on", "_item", "_person", "_place", "_principal"),
        "is_waiting",
    )

    def __init__(
        self, admission: AdmissionControl, server: str, item: str, principal: str, *, goes_on: bool = False
    ) -> None:
        self.is_waiting = False
        self._goes_on = goes_on
        self._gates = admission
        self._gate = admission._gates.get(server) or admission._gate(server)
        self._item = item
        self._principal = principal
        self._person: str | None = None
        self._place: Slot | None = None
        self._entered_s = 0.0
        self._epochs: Epochs | None = None
        """Of the server's breaker and the item's, as the call was let through; None before."""

    def __enter__(self) -> Self:
        admission, gate, breakers = self._gates, self._gate, self._gate.breakers
        self._entered_s = now_s = admission.clock()
        if breakers.has_failed:
            self._require_let_through(now_s)
        place = admission.places.enter(gate.server, self._principal)
        self.is_waiting = place.state is PlaceState.WAITING
        if place.state is not PlaceState.HELD and not self.is_waiting:
            raise self._full(place)
        try:
            admission.take(gate, self._principal, now_s, goes_on=self._goes_on)
            if not self.is_waiting:
                self._epochs = self._ask_breakers(now_s) if breakers.has_failed else (breakers.server.epoch, 0)
        except BaseException:
            admission.wake(admission.places.leave(place))
            raise
        self._place = place
        if admission.quotas is not None:
            self._person = admission.quotas.enter(self._principal)
        return self

    async def turn(self) -> float:
        """The seconds that the call has left, once it is its turn.

        Raises:
            RateLimitedError: It was not its turn in time.
            UpstreamError: Such calls are held back by now.
        """
        assert self._place is not None
        call_s = self._gate.limits.call_s
        try:
            await self._gates.turn(self._place, call_s)
        except TimeoutError:
            waited = f"The call waited {call_s:g} s for its turn at server '{self._gate.server}' and was not sent"
            if self._gates.places.is_held:
                raise self._build_hold_error(waited) from None
            lifted = f"{SERVER_LIMITS}{share_note(self._gate.gateways)}"
            raise RateLimitedError(
                f"{waited}.",
                hint=f"Try again later, or make fewer calls at a time. {lifted}",
                retry_after_s=FULL_RETRY_S,
            ) from None
        now_s = self._gates.clock()
        self._epochs = self._ask_breakers(now_s)
        return max(0.0, call_s - (now_s - self._entered_s))

    def _ask_breakers(self, now_s: float) -> Epochs:
        """The breakers' last word before the call is sent."""
        self._require_let_through(now_s)
        return self._gate.breakers.ask(self._item, now_s, self._gate.limits.call_s)

    def _require_let_through(self, now_s: float) -> None:
        server, breakers = self._gate.server, self._gate.breakers
        for name, breaker in breakers.of(self._item):
            if wait_s := breaker.wait_s(now_s):
                raise build_breaker_error(server, name, breaker, wait_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        admission = self._gates
        if self._person is not None and admission.quotas is not None:
            admission.quotas.leave(self._person)
        if self._place is not None and (admitted := admission.places.leave(self._place)):
            admission.wake(admitted)
        if self._epochs is not None:
            now_s, breakers = admission.clock(), self._gate.breakers
            if isinstance(error, UpstreamError) and error.retry_after_s:
                breakers.hold(now_s, error.retry_after_s)
            if error is None and not breakers.has_failed:
                breakers.server.record_success(self._epochs[0], now_s)
            else:
                breakers.record_end(self._item, self._epochs, classify_end(error), now_s)

    def _full(self, place: Slot) -> RateLimitedError:
        most, queue = self._gates.places.get_server_limits(self._gate.server)
        if self._gates.places.is_held:
            return self._build_hold_error(
                f"{queue:g} calls wait for server '{self._gate.server}' already; this one was not sent"
            )
        if place.state is PlaceState.SERVER_FULL:
            message = f"Server '{self._gate.server}' has {most:g} calls in flight and {queue:g} waiting, its limit."
            lifted = f"{SERVER_LIMITS}{share_note(self._gate.gateways)}"
        else:
            message = (
                f"The gateway has {self._gates.places.most:g} calls in flight, its limit, and {queue:g} more wait for "
                f"server '{self._gate.server}'."
            )
            lifted = f"The operator can raise MCPPROXY_IN_FLIGHT.{share_note(self._gates.gateways)}"
        return RateLimitedError(
            message, hint=f"Try again later, or make fewer calls at a time. {lifted}", retry_after_s=FULL_RETRY_S
        )

    def _build_hold_error(self, what: str) -> RateLimitedError:
        return RateLimitedError(
            f"{what}: {self._gates.held_because}.",
            hint="Read the answers that are there, then call again; make fewer calls at a time.",
            retry_after_s=FULL_RETRY_S,
        )


def open_admission(
    settings: Settings, servers: Mapping[str, ServerConfig], clock: Callable[[], float]
) -> AdmissionControl:
    """Admission control as the settings ask for it."""
    caller, quotas = CallerRate(settings.calls_per_s, settings.calls_burst), open_quotas(settings, CALLERS_REMEMBERED)
    return AdmissionControl(settings.in_flight, caller, servers, clock, quotas=quotas)


def round_up_s(wait_s: float) -> float:
    """Rounded up, from a second on to whole ones: whoever waits that long has waited long enough."""
    return math.ceil(wait_s * 1000) / 1000 if wait_s < 1 else float(math.ceil(wait_s))


def share_note(gateways: int) -> str:
    """A further sentence where this gateway lets only its share through."""
    return f" {gateways} gateways share the limit; this is the share of one." if gateways > 1 else ""


def build_caller_rate_error(bucket: TokenBucket, gateways: int, wait_s: float) -> RateLimitedError:
    """The refusal of a call that its caller's rate does not cover."""
    return RateLimitedError(
        f"A caller may make {bucket.rate_per_s:g} calls a second (at once: {bucket.burst}); this one is too many.",
        hint=f"Try again in {round_up_s(wait_s):g} s. "
        f"The operator can raise MCPPROXY_CALLS_PER_S and MCPPROXY_CALLS_BURST.{share_note(gateways)}",
        retry_after_s=round_up_s(wait_s),
    )


def build_crowd_error(most: int, gateways: int) -> RateLimitedError:
    """The refusal of a call whose person has as many under way as one may."""
    return RateLimitedError(
        f"A person may have {most} calls under way at the same time; this one is too many.",
        hint="Wait for answers, then call again; make fewer calls at a time. "
        f"The operator can raise MCPPROXY_PERSON_IN_FLIGHT.{share_note(gateways)}",
        retry_after_s=FULL_RETRY_S,
    )


def build_quota_error(counted: CountedQuota, gateways: int, wait_s: float) -> RateLimitedError:
    """The refusal of a call that a quota of its person or of a group of theirs does not cover."""
    calls, time = counted.quota
    who = f"The people of group '{counted.group}' may together" if counted.group else "A person may"
    variable = "MCPPROXY_GROUP_QUOTAS" if counted.group else "MCPPROXY_PERSON_QUOTA"
    return RateLimitedError(
        f"{who} make {calls} calls {'an' if time == 'hour' else 'a'} {time}; this one is too many.",
        hint=f"Try again in {round_up_s(wait_s):g} s. The operator can raise {variable}.{share_note(gateways)}",
        data={"quota": f"{counted.group or 'person'}={calls}/{time}"},
        retry_after_s=round_up_s(wait_s),
    )


def build_server_rate_error(server: str, bucket: TokenBucket, gateways: int, wait_s: float) -> RateLimitedError:
    """The refusal of a call that its server's rate does not cover."""
    return RateLimitedError(
        f"Server '{server}' takes {bucket.rate_per_s:g} calls a second (at once: {bucket.burst}); this is too many.",
        hint=f"Try again in {round_up_s(wait_s):g} s. The user can raise 'calls_per_s' and 'burst' under 'limits' in "
        f"the server's entry.{share_note(gateways)}",
        retry_after_s=round_up_s(wait_s),
    )


def build_breaker_error(server: str, item: str, breaker: Breaker, wait_s: float) -> UpstreamError:
    """The refusal of a call while its server keeps failing, or the item of it that is named."""
    calls = f"Calls of {item!r} at server '{server}'" if item else f"Calls to server '{server}'"
    return UpstreamError(
        f"{calls} are held back, because it {breaker.reason}.",
        hint=f"Try again in {round_up_s(wait_s):g} s: one call is let through then to see. "
        f"Its user can look at: mcpproxy server logs {shell_word(server)}",
        code="breaker_open",
        data={"breaker": breaker.state.value},
        retry_after_s=round_up_s(wait_s),
    )
