"""A client of the official Python SDK whose answers are kept as they came, before the SDK's models have read them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

__all__ = ["TappedClient", "tapped"]


class TappedClient:
    """A connected client, and the last answer to each method.

    Attributes:
        client: Every answer passes its validation.
        answers: By method: the result, or `{"error": ...}`, members in the order in which they were sent.
    """

    def __init__(self, target: StdioServerParameters | str, mode: Any) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        self._methods: dict[int | str, str] = {}
        transport: Any = streamable_http_client(target) if isinstance(target, str) else stdio_client(target)
        self.client = Client(self._tap(transport), mode=mode, cache=None)

    @asynccontextmanager
    async def _tap(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[tuple[Any, Any]]:
        async with transport as (from_server, to_server):
            heard, told = anyio.create_memory_object_stream[Any](), anyio.create_memory_object_stream[Any]()

            async def listen() -> None:
                async for message in from_server:
                    self._note(getattr(message, "message", None))
                    await heard[0].send(message)
                await heard[0].aclose()

            async def talk() -> None:
                async for message in told[1]:
                    if isinstance(asked := message.message, JSONRPCRequest):
                        self._methods[asked.id] = asked.method
                    await to_server.send(message)
                await to_server.aclose()

            async with heard[0], heard[1], told[0], told[1], anyio.create_task_group() as group:
                group.start_soon(listen)
                group.start_soon(talk)
                yield heard[1], told[0]
                group.cancel_scope.cancel()

    def _note(self, message: Any) -> None:
        if isinstance(message, JSONRPCResponse):
            self.answers[self._methods[message.id]] = message.result
        elif isinstance(message, JSONRPCError) and message.id is not None:
            self.answers[self._methods[message.id]] = {"error": message.error.model_dump(exclude_unset=True)}


@asynccontextmanager
async def tapped(target: StdioServerParameters | str, mode: Any) -> AsyncIterator[TappedClient]:
    """A client that is connected, in the era that `mode` of the SDK names."""
    found = TappedClient(target, mode)
    async with found.client:
        yield found
