"""Count the work of a job, or compare its cost at two sizes.

Counts do not depend on the machine and belong into any test; seconds do, and belong into tests marked `long`.
"""

import sys
import time
from collections.abc import Callable

NOISE_S = 0.05
"""A job that takes less cannot be told from what else the machine does."""


def cost_s(job: Callable[[], object], rounds: int = 3) -> float:
    """Processor time of this thread for one run of the job, in seconds; the best of several rounds."""
    spent = []
    for _ in range(rounds):
        started = time.thread_time()
        job()
        spent.append(time.thread_time() - started)
    return min(spent)


def assert_growth(job: Callable[[int], object], small: int, large: int, *, at_most: float) -> None:
    """Fails if the job of size `large` costs more than `at_most` times the job of size `small`, and noise.

    Args:
        job: Does the work for a size.
        small: The size to compare with.
        large: The size that must not cost much more.
        at_most: Highest ratio of the two costs. What grows with the size alone stays near `large / small`, what grows
            with its square near `(large / small) ** 2`: a limit between the two leaves room for the machine.
    """
    costs = []
    for _ in range(3):  # once may be the machine's fault, three times in a row is the code's
        small_s = cost_s(lambda: job(small))
        for _ in range(3):  # the best of them counts: the first that is cheap enough spares the others
            costs.append((small_s, cost_s(lambda: job(large), rounds=1)))
            if costs[-1][1] <= at_most * small_s + NOISE_S:
                return
    raise AssertionError(f"{small} -> {large} costs (small, large) in seconds: {costs}, more than {at_most} times")


def calls_of(job: Callable[[], object]) -> int:
    """How many functions the job calls, in Python and in C: work that does not depend on the machine."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(before)
    return count
