"""The stream that a client of a session opens to be told things (GET): whoever opens it last has it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from anyio import CancelScope, move_on_after
from starlette.types import Scope

LET_GO_S = 1.0
"""A stream that is told to end does so at once, unless its client does not read."""


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """Open GET request that is being answered with the stream."""

    scope: CancelScope = field(default_factory=CancelScope)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class EventStream:
    """Ends the former stream before it opens one.

    The SDK refuses a second one with 409 for as long as it has not noticed that the first is gone. Where the network
    was lost that takes minutes, where the client closed it some milliseconds; and clients on the SDKs give up for good
    after two tries, and hear nothing any more.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._open: _Open | None = None

    async def serve(self, answer: Callable[[], Awaitable[None]], *, end: Callable[[], Awaitable[None]]) -> None:
        """Answers a request for the stream; returns when the stream is over.

        Args:
            answer: Serves the request.
            end: Has the present stream end, as the SDK ends one.
        """
        async with self._turn:
            if (former := self._open) is not None:
                await end()
                with move_on_after(LET_GO_S):
                    await former.is_over.wait()
                former.scope.cancel()
                await former.is_over.wait()
            own = self._open = _Open()
        try:
            with own.scope:
                await answer()
        finally:
            own.is_over.set()
            if self._open is own:
                self._open = None


def drop_last_event_id(scope: Scope) -> Scope:
    """Drop `Last-Event-ID`: we keep no event history, and the SDK rejects a resume."""
    return {**scope, "headers": [each for each in scope["headers"] if each[0] != b"last-event-id"]}
