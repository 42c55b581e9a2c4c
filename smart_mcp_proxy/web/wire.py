"""The fast door: the common `tools/call` answered from raw JSON, everything else handed on to the SDK.

A message is read once, checked for what the SDK would check, and answered by the same agent and the same one call
path as behind the SDK. Whatever is unusual (a progress token, an answer to an input request, a member this file does
not know, a header that does not match) is not judged here: the SDK gets the untouched message and says what is wrong.
"""

import asyncio
from typing import Any, Literal

import mcp_types
import msgspec
from mcp_types.version import LATEST_MODERN_VERSION

from smart_mcp_proxy.gateway.agent import Agent
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.models import Era

__all__ = ["CallsInFlight", "WireCall", "WireCancel", "parse_wire"]

_UNUSUAL_META = ("progressToken", mcp_types.LOG_LEVEL_META_KEY)
_ENVELOPE_META = frozenset(
    {mcp_types.PROTOCOL_VERSION_META_KEY, mcp_types.CLIENT_INFO_META_KEY, mcp_types.CLIENT_CAPABILITIES_META_KEY}
)


class _CallParams(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    meta: dict[str, Any] = msgspec.field(default={}, name="_meta")


class _CancelParams(msgspec.Struct):
    requestId: int | str  # noqa: N815  (the protocol's name)


class WireCall(msgspec.Struct, forbid_unknown_fields=True, tag_field="method", tag="tools/call"):
    """A `tools/call` request of the usual shape."""

    jsonrpc: Literal["2.0"]
    id: int | str
    params: _CallParams

    @property
    def version(self) -> str | None:
        """The protocol version in the envelope; None in the handshake era, which has no envelope."""
        stated = self.params.meta.get(mcp_types.PROTOCOL_VERSION_META_KEY)
        return str(stated) if stated is not None else None

    @property
    def is_modern(self) -> bool:
        """Whether the envelope is a complete one of the modern era."""
        meta = self.params.meta
        return (
            meta.get(mcp_types.PROTOCOL_VERSION_META_KEY) == LATEST_MODERN_VERSION
            and isinstance(meta.get(mcp_types.CLIENT_CAPABILITIES_META_KEY), dict)
            and isinstance(meta.get(mcp_types.CLIENT_INFO_META_KEY, {}), dict)
        )

    def caller(self, principal: str) -> Caller:
        """Who calls."""
        meta = self.params.meta
        if meta:
            meta = {key: value for key, value in meta.items() if key not in _ENVELOPE_META}
        return Caller(principal, meta, None)


class WireCancel(msgspec.Struct, tag_field="method", tag="notifications/cancelled"):
    """A client's word that it no longer waits for a request."""

    params: _CancelParams


_decoder: "msgspec.json.Decoder[WireCall | WireCancel]" = msgspec.json.Decoder(WireCall | WireCancel)


def parse_wire(message: bytes) -> WireCall | WireCancel | None:
    """The message if it is one that this door understands, else None."""
    try:
        parsed = _decoder.decode(message)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if isinstance(parsed, WireCall) and any(key in parsed.params.meta for key in _UNUSUAL_META):
        return None
    return parsed


class CallsInFlight:
    """The fast calls of one client that are under way, by request id, so that the client can cancel them.

    Args:
        agent: Answers.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._tasks: dict[int | str, asyncio.Task[Any]] = {}

    def takes(self, call: WireCall) -> bool:
        """Whether this call can be answered here: a listed tool, and an id that is not in use."""
        return call.id not in self._tasks and self._agent.has(call.params.name)

    async def answer(self, call: WireCall, era: Era, principal: str) -> bytes | None:
        """The JSON-RPC reply in the current task, None if the client cancelled the call."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks[call.id] = task
        try:
            raw = await self._agent.answer(call.params.name, call.params.arguments, call.caller(principal), era)
        except asyncio.CancelledError:
            # Taken out by cancel(): the client's wish, not the server's end.
            if call.id in self._tasks:
                raise
            task.uncancel()
            return None
        finally:
            self._tasks.pop(call.id, None)
        return b'{"jsonrpc":"2.0","id":' + msgspec.json.encode(call.id) + b',"result":' + raw + b"}"

    def cancel(self, request_id: int | str) -> bool:
        """Ends a call that is under way; False if none of ours has this id."""
        task = self._tasks.pop(request_id, None)
        if task is None:
            return False
        task.cancel()
        return True
