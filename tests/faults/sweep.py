"""One fault after the other through a real gateway, and what was seen, as a table."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from modes import Mode, Place
from rig import CALL_S, Answer, Rig, opened_rig, percentile_95

__all__ = ["Finding", "meet", "table"]

GRACE_S = 1.0
"""How long after its deadline a call may end at the latest."""
RECOVERY_S = 10.0
RECOVERY_PACE_S = 0.05
ROUNDS = 3
_WITHOUT_NONCE = ("call no-content", "call content-text")
"""Faults that lose the text by which an answer is known."""


@dataclass
class Finding:
    """What one fault led to.

    Attributes:
        mode: The fault.
        place: Where.
        answer: What the call got.
        recovery_s: From the end of the fault to the first good call.
        usual_s: The neighbour's p95 before.
        beside_s: The neighbour's p95 during the fault.
        problems: What was not as it must be, a sentence each.
    """

    mode: Mode
    place: Place
    answer: Answer
    recovery_s: float = 0.0
    usual_s: float = 0.0
    beside_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        answer = self.answer
        said = f"{answer.outcome} {answer.delivery}".strip()
        verdict = "; ".join(self.problems) or "as it must be"
        return (
            f"{self.mode.fault:30} {self.place!s:16} {said:28} {answer.seconds:6.2f} s  back {self.recovery_s:5.2f} s  "
            f"neighbour {self.usual_s * 1e3:5.1f} -> {self.beside_s * 1e3:5.1f} ms  {verdict}"
        )


async def meet(directory: Path, mode: Mode, place: Place, *, neighbour_calls: int, noise_s: float) -> Finding:
    """One fault: a call while it is on, a look at the neighbour, and a good call afterwards.

    The neighbour's latency is the best of three rounds, each in a new gateway; everything else must hold in each.

    Args:
        directory: Empty, for this fault alone.
        mode: The fault.
        place: Where it is met.
        neighbour_calls: Calls of the neighbour, before and during the fault each.
        noise_s: What the machine's scheduler may add to the neighbour's p95 by itself.
    """
    finding = await _met_once(directory / "0", mode, place, neighbour_calls)
    for number in range(1, ROUNDS):
        if finding.problems or not _is_slow(finding, noise_s):
            break
        finding = await _met_once(directory / str(number), mode, place, neighbour_calls)
    if _is_slow(finding, noise_s):
        finding.problems.append("the neighbour became slower than twice as slow")
    return finding


def _is_slow(finding: Finding, noise_s: float) -> bool:
    return finding.beside_s > 2 * finding.usual_s + noise_s


async def _met_once(directory: Path, mode: Mode, place: Place, neighbour_calls: int) -> Finding:
    directory.mkdir(parents=True)
    async with opened_rig(directory, place, with_relay=mode.stage == "net") as rig:
        usual_s = percentile_95(await rig.neighbour(neighbour_calls))
        rig.faulty.switch(mode.fault)
        nonce = rig.nonce()
        call = asyncio.create_task(_call_in_fault(rig, mode, nonce))
        taken = await rig.neighbour(neighbour_calls, busy=call)
        finding = Finding(mode, place, await call, usual_s=usual_s, beside_s=percentile_95(taken))
        _judge_answer(finding, nonce)
        await rig.faulty.lift()
        if mode.stage == "list" or finding.answer.outcome in ("tool_not_found", "upstream_auth"):
            # A server says when its list is good again, and a user who has signed in says so, too.
            await rig.reconnect()
            await rig.settle()
        await _recover(rig, finding)
        _judge_ledger(rig, finding, nonce)
        return finding


async def _call_in_fault(rig: Rig, mode: Mode, nonce: str) -> Answer:
    """The call, once the gateway is where it meets the fault: faults before a call are met at a new connection."""
    if mode.stage not in ("call", "net"):
        await rig.reconnect()
    if mode.stage == "list" or "tool_not_found" in mode.answers:
        await rig.settle()
    try:
        return await asyncio.wait_for(rig.call(nonce, mode), CALL_S + 10 * GRACE_S)
    except Exception as exc:
        return Answer(f"raised {type(exc).__name__}", "", str(exc), 0.0)


def _judge_answer(finding: Finding, nonce: str) -> None:
    mode, answer, problems = finding.mode, finding.answer, finding.problems
    if answer.outcome not in mode.answers:
        problems.append(f"answered {answer.outcome}: {answer.text[:200]!r}, expected {sorted(mode.answers)}")
    elif answer.delivery and answer.delivery not in mode.delivery:
        problems.append(f"delivery {answer.delivery}, expected {sorted(mode.delivery)}")
    if answer.seconds > CALL_S + GRACE_S:
        problems.append(f"took {answer.seconds:.2f} s")
    if "stolen" in answer.text or (
        answer.outcome == "ok" and nonce not in answer.text and mode.fault not in _WITHOUT_NONCE
    ):
        problems.append(f"got an answer that is not its own: {answer.text[:200]!r}")


async def _recover(rig: Rig, finding: Finding) -> None:
    """Good calls until one succeeds; none may get another one's answer."""
    began = time.monotonic()
    while time.monotonic() - began < RECOVERY_S:
        nonce = rig.nonce()
        answer = await asyncio.wait_for(rig.call(nonce), CALL_S + 10 * GRACE_S)
        if answer.outcome == "ok":
            finding.recovery_s = time.monotonic() - began
            if nonce not in answer.text:
                finding.problems.append(f"afterwards an answer that is not its own: {answer.text[:200]!r}")
            if rig.faulty.executions(nonce) != 1:
                finding.problems.append(f"a good call was carried out {rig.faulty.executions(nonce)} times")
            return
        if rig.faulty.executions(nonce) > (answer.delivery != "not_sent"):
            finding.problems.append(f"afterwards delivery {answer.delivery} of a call that was carried out")
        await asyncio.sleep(RECOVERY_PACE_S)
    finding.problems.append(f"no good call within {RECOVERY_S:g} s afterwards: {answer}")


def _judge_ledger(rig: Rig, finding: Finding, nonce: str) -> None:
    times, answer = rig.faulty.executions(nonce), finding.answer
    if times > 1:
        finding.problems.append(f"was carried out {times} times")
    if (sent := rig.faulty.arrivals(nonce)) > 1 and not finding.mode.is_sent_again:
        finding.problems.append(f"was sent {sent} times")
    if answer.delivery == "not_sent" and times:
        finding.problems.append("delivery not_sent of a call that was carried out")
    if not times and (answer.delivery == "executed" or answer.outcome in ("ok", "tool_error")):
        finding.problems.append("was not carried out although the answer says so")


def table(findings: list[Finding]) -> str:
    """All findings, one a line, and their count."""
    bad = sum(bool(finding.problems) for finding in findings)
    return "\n".join([*map(str, findings), f"{len(findings)} faults met, {bad} not as they must be"])
