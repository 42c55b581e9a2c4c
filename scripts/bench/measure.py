"""Rounds of measures that alternate between the candidates, so that the machine's noise hits all of them alike."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.load import time_limit
from bench.targets import Target
from bench.upstream import escaped
from bench.wire import BadReplyError

__all__ = ["FULL", "QUICK", "Plan", "Readings", "run_profile", "run_rounds"]

TEXT = "a small text of forty characters or more"
SIZES = {"1 KB": 1_000, "100 KB": 100_000, "1 MB": 1_000_000}
ESCAPED_SIZES = {r"1 MB of \u": 1_000_000}
SLACK_S = 30.0
"""How long one measure may take beyond its time before the candidate counts as hung."""
PROFILE_CALLERS = 32
PROFILE_CALLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; each measure ends at its count or its time, whichever comes first.

    Attributes:
        rounds: How often each measure is repeated; the median counts.
        calls: At most, one after another.
        calls_s: At most, for them.
        flood_s: For each number of callers.
        flood_calls: At most, for each number of callers.
        callers: The numbers of callers.
        size_calls: At most, for each size of result.
        size_s: At most, for them.
    """

    rounds: int = 3
    calls: int = 3_000
    calls_s: float = 1.5
    flood_s: float = 1.0
    flood_calls: int = 30_000
    callers: tuple[int, ...] = (1, 8, 32, 64)
    size_calls: int = 300
    size_s: float = 0.5


FULL = Plan()
QUICK = Plan(rounds=1, calls=300, calls_s=0.3, flood_s=0.25, callers=(1, 64), size_calls=40, size_s=0.15)


@dataclass(slots=True)
class Speed:
    """How quickly calls of one kind were answered, round by round.

    Attributes:
        percentiles: p50, p95 and p99 of sequential calls, milliseconds.
        per_s: Calls per second by number of callers.
    """

    percentiles: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    per_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def summary(self, base: "Speed | None") -> dict[str, Any]:
        """Medians over the rounds; `base` is the speed of the direct calls."""
        row: dict[str, Any] = {f"{name}_ms": _median(values) for name, values in self.percentiles.items()}
        row["calls_per_s"] = {str(callers): _median(values) for callers, values in self.per_s.items()}
        if base is not None:
            row["added_p50_ms"] = row["p50_ms"] - _median(base.percentiles["p50"])
        return row


@dataclass(slots=True)
class Readings:
    """What was read of one candidate, round by round.

    Attributes:
        told: Calls with a progress token, as most clients send them.
        plain: Calls without one.
        sizes: p50 by size of result, milliseconds.
        cpu: By measure: CPU seconds of the candidate's process and calls, summed over the rounds.
        client_share: Highest share of a core that the load client itself took in a flood.
        failure: Why its measures stopped.
    """

    told: Speed = field(default_factory=Speed)
    plain: Speed = field(default_factory=Speed)
    sizes: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))
    client_share: float = 0.0
    idle_mb: float = 0.0
    peak_mb: float = 0.0
    failure: str | None = None

    def summary(self, base: "Readings | None") -> dict[str, Any]:
        """Medians over the rounds; `base` are the readings of the direct calls."""
        if self.failure is not None:
            return {"failure": self.failure}
        base = None if base is None or base.failure is not None else base
        row = self.told.summary(base and base.told)
        row["without_token"] = self.plain.summary(base and base.plain)
        row["sizes_p50_ms"] = {size: _median(values) for size, values in self.sizes.items()}
        row["cpu_ms_per_call"] = {name: 1000 * cpu / calls for name, (cpu, calls) in self.cpu.items() if calls}
        row |= {"idle_mb": self.idle_mb, "peak_mb": self.peak_mb, "client_cpu_share": self.client_share}
        if base is not None:
            row["sizes_ratio"] = {size: _median(self.sizes[size]) / _median(base.sizes[size]) for size in self.sizes}
        return row


def run_rounds(targets: Sequence[Target], plan: Plan) -> Mapping[str, Readings]:
    """All measures on all targets, `plan.rounds` times. A candidate that fails is left out from then on."""
    readings = {target.name: Readings(idle_mb=target.idle_mb) for target in targets}
    for _ in range(plan.rounds):
        for limit_s, measure in _measures(plan):
            for target in targets:
                own = readings[target.name]
                if own.failure is None:
                    _measure(measure, limit_s, target, own)
    for target in targets:
        if readings[target.name].failure is None:
            readings[target.name].peak_mb = target.memory_mb("VmHWM")
    return readings


def _measure(measure: Callable[[Target, Readings], None], limit_s: float, target: Target, own: Readings) -> None:
    try:
        with time_limit(limit_s + SLACK_S, target.name):
            measure(target, own)
    except (BadReplyError, OSError) as exc:  # a TimeoutError is an OSError
        own.failure = f"{type(exc).__name__}: {exc}"[:300]


def _measures(plan: Plan) -> list[tuple[float, Callable[[Target, Readings], None]]]:
    """The measures of one round, each with the time it is meant to take."""

    def sequential(*, has_token: bool) -> Callable[[Target, Readings], None]:
        def run(target: Target, own: Readings) -> None:
            request = target.prepare("echo", {"text": TEXT}, TEXT, has_token=has_token)
            cpu_s = target.cpu_s()
            times = target.link.sequential(request, plan.calls, plan.calls_s)
            _add_cpu(own, _label("sequential", has_token), target.cpu_s() - cpu_s, len(times))
            times.sort()
            for name, part in (("p50", 0.50), ("p95", 0.95), ("p99", 0.99)):
                _speed(own, has_token).percentiles[name].append(times[min(len(times) - 1, int(part * len(times)))])

        return run

    def flood(callers: int, *, has_token: bool) -> Callable[[Target, Readings], None]:
        def run(target: Target, own: Readings) -> None:
            request = target.prepare("echo", {"text": TEXT}, TEXT, has_token=has_token)
            cpu_s, client_s = target.cpu_s(), time.process_time()
            calls, seconds = target.link.flood(request, callers, plan.flood_calls, plan.flood_s)
            _add_cpu(own, _label(f"{callers} callers", has_token), target.cpu_s() - cpu_s, calls)
            own.client_share = max(own.client_share, (time.process_time() - client_s) / seconds)
            _speed(own, has_token).per_s[callers].append(calls / seconds)

        return run

    def big(label: str, size: int, *, is_escaped: bool = False) -> Callable[[Target, Readings], None]:
        arguments, text = (
            ({"size": size, "escaped": True}, escaped(size)) if is_escaped else ({"size": size}, "x" * size)
        )

        def run(target: Target, own: Readings) -> None:
            request = target.prepare("blob", arguments, text, has_token=True)
            cpu_s = target.cpu_s()
            times = target.link.sequential(request, plan.size_calls, plan.size_s)
            _add_cpu(own, label, target.cpu_s() - cpu_s, len(times))
            own.sizes[label].append(statistics.median(times))

        return run

    return [
        # Beside each other: what the machine does meanwhile, it does to both.
        (plan.calls_s, sequential(has_token=True)),
        (plan.calls_s, sequential(has_token=False)),
        *((plan.flood_s, flood(callers, has_token=True)) for callers in plan.callers),
        (plan.flood_s, flood(plan.callers[-1], has_token=False)),
        *((plan.size_s, big(label, size)) for label, size in SIZES.items()),
        *((plan.size_s, big(label, size, is_escaped=True)) for label, size in ESCAPED_SIZES.items()),
    ]


def run_profile(target: Target, size: int, seconds: float) -> Mapping[str, Any]:
    """Shares of the gateway's CPU time while many callers call.

    Args:
        target: Our gateway, with its sampler.
        size: Letters of each result.
        seconds: Of the measured flood; a shorter one warms up.
    """
    request = target.prepare("blob", {"size": size}, "x" * size, has_token=True)
    with time_limit(2 * seconds + SLACK_S, "the profiled flood"):
        target.link.flood(request, PROFILE_CALLERS, PROFILE_CALLS, seconds / 4)
        target.start_profile()
        calls, spent = target.link.flood(request, PROFILE_CALLERS, PROFILE_CALLS, seconds)
    return {"calls_per_s": calls / spent, "calls": calls, **target.stop_profile()}


def _speed(own: Readings, has_token: bool) -> Speed:
    return own.told if has_token else own.plain


def _label(measure: str, has_token: bool) -> str:
    return measure if has_token else f"{measure}, no token"


def _add_cpu(own: Readings, measure: str, cpu_s: float, calls: int) -> None:
    own.cpu[measure][0] += cpu_s
    own.cpu[measure][1] += calls


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
