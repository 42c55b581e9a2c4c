"""The event loop's clock, turned forward by hand: minutes of a server's time cost a test none of its own."""

import asyncio

import pytest

__all__ = ["TurnedClock"]


class TurnedClock:
    """Puts the running loop's clock forward.

    Args:
        monkeypatch: Puts it back.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_s = 0.0
        loop = asyncio.get_running_loop()
        plain = loop.time
        monkeypatch.setattr(loop, "time", lambda: plain() + self._ahead_s)

    async def turn(self, seconds: float) -> None:
        """Lets the time pass, and what was due in it run."""
        await _run_due()  # what was begun before begins at its own time
        self._ahead_s += seconds
        await _run_due()


async def _run_due() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
