"""End of open streams at shutdown, in good order."""

import asyncio

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LISTEN = (b"mcp-method", b"subscriptions/listen")
_LEFT: Message = {"type": "http.disconnect"}


class StopSteps:
    """The two steps in which a gateway stops.

    Attributes:
        is_leaving: Set when new clients have to look elsewhere.
        is_over: Set when the streams that clients keep open have to end.
    """

    def __init__(self) -> None:
        self.is_leaving = asyncio.Event()
        self.is_over = asyncio.Event()


class EndingStreams:
    """An ASGI app whose open streams can be ended.

    A client keeps a stream open for as long as it lives. Without this the server would wait for it in vain, and then
    cancel it with a traceback in the log.

    Args:
        app: Answers.
        is_over: Set when streams have to end.
    """

    def __init__(self, app: ASGIApp, is_over: asyncio.Event) -> None:
        self._app = app
        self._is_over = is_over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if not is_kept_open(scope):
            await self._app(scope, receive, send)
            return
        has_body_left = True

        async def hear() -> Message:
            nonlocal has_body_left
            if not has_body_left:  # what else can come is that the client leaves
                return await self._await_disconnect(receive)
            message = await receive()
            has_body_left = message.get("more_body", False)
            return message

        await self._app(scope, hear, send)

    async def _await_disconnect(self, receive: Receive) -> Message:
        async with anyio.create_task_group() as waiting:

            async def wait_over() -> None:
                await self._is_over.wait()
                waiting.cancel_scope.cancel()

            waiting.start_soon(wait_over)
            message = await receive()
            waiting.cancel_scope.cancel()
            return message
        return _LEFT


def is_kept_open(scope: Scope) -> bool:
    """Whether the answer to this request ends only when the client or the server does."""
    return scope["type"] == "http" and (scope["method"] == "GET" or _LISTEN in scope["headers"])
