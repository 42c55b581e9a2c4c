"""The start of a server: its turn among those that start, and what can be said of one that takes long."""

import asyncio
from typing import Final, NamedTuple

from msgspec.structs import replace

from smart_mcp_proxy.models import ServerStatus

_TURN_S: Final = 10.0
"""A start that takes longer, for a download say, holds up no other. Source: docs/design/processes.md#starting"""


class StartTurn:
    """A place among the servers that start at the same time; a start that takes long gives it back early.

    Args:
        gate: The places.
    """

    def __init__(self, gate: asyncio.Semaphore) -> None:
        self._gate = gate
        self._has_place = False

    async def __aenter__(self) -> None:
        await self._gate.acquire()
        self._has_place = True
        self._timer = asyncio.get_running_loop().call_later(_TURN_S, self._give_back)

    async def __aexit__(self, *exc_info: object) -> None:
        self._timer.cancel()
        self._give_back()

    def _give_back(self) -> None:
        if self._has_place:
            self._has_place = False
            self._gate.release()


class ServerStart(NamedTuple):
    """A start that is under way.

    Attributes:
        began_s: On the clock of its supervisor.
        limit_s: Seconds that it may take.
    """

    began_s: float
    limit_s: float


def describe_start(status: ServerStatus, start: ServerStart | None, now_s: float, last_said: str) -> ServerStatus:
    """Status of a server that has not answered yet, with how long that has taken.

    Args:
        status: Without it.
        start: Its start; None while it waits for its turn.
        now_s: On the same clock.
        last_said: The last line that its program wrote, secrets hidden.
    """
    is_program = status.transport == "stdio"
    if start is None:
        return replace(status, error="It waits for its turn to start." if is_program else "")
    error = f"It has not answered yet, {now_s - start.began_s:.0f} s after its start (at most {start.limit_s:g} s)."
    if not is_program:
        return replace(status, error=error)
    said = f"It last wrote: {last_said}" if last_said else "It has written nothing to stderr."
    hint = status.hint or "Its program runs and is waited for: a first start may have to download or compile."
    return replace(status, error=f"{error} {said}", hint=hint)
