"""The fast door: the common `tools/call` answered from raw JSON, everything else handed on to the SDK.

A message is read once, checked for what the SDK would check, and answered by the same agent and the same one call
path as behind the SDK. Whatever is unusual (a progress token, an answer to an input request, a member this file does
not know, a header that does not match) is not judged here: the SDK gets the untouched message and says what is wrong.
"""

import asyncio
from typing import Any, Literal

import mcp_types
import msgspec
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION

from smart_mcp_proxy.fastmcp_compat.asking import declared_inputs
from smart_mcp_proxy.fastmcp_compat.screen import has_odd_members
from smart_mcp_proxy.fastmcp_compat.server import has_good_envelope
from smart_mcp_proxy.gateway.agent import Agent
from smart_mcp_proxy.gateway.offer import Offer
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.models import Era

__all__ = ["CallsInFlight", "WireCall", "WireCancel", "error_reply", "parse_wire"]

_UNUSUAL_META = frozenset({"progressToken", mcp_types.LOG_LEVEL_META_KEY})
_ENVELOPE_META = frozenset(
    {mcp_types.PROTOCOL_VERSION_META_KEY, mcp_types.CLIENT_INFO_META_KEY, mcp_types.CLIENT_CAPABILITIES_META_KEY}
)
_ABSENT: dict[str, Any] = {}
_ENVELOPE_MEMBERS = 5
"""`jsonrpc`, `id`, `method`, `params` and its `name`."""


def _absent() -> dict[str, Any]:
    return _ABSENT


class _CallParams(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=_absent)
    meta: dict[str, Any] = msgspec.field(default_factory=_absent, name="_meta")

    @property
    def optional(self) -> list[dict[str, Any]]:
        """The members that are there and need not be."""
        return [each for each in (self.arguments, self.meta) if each is not _ABSENT]


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
            and mcp_types.CLIENT_CAPABILITIES_META_KEY in meta
            and has_good_envelope(LATEST_MODERN_VERSION, meta)
        )

    @property
    def is_askable(self) -> bool:
        """Whether its envelope declares that the client can be asked for something."""
        return bool(declared_inputs(self.params.meta.get(mcp_types.CLIENT_CAPABILITIES_META_KEY)))

    def caller(self, principal: str, session: str | None) -> Caller:
        """Who calls."""
        meta = self.params.meta
        if meta:
            meta = {key: value for key, value in meta.items() if key not in _ENVELOPE_META}
        return Caller(principal, meta, None, session)


class WireCancel(msgspec.Struct, tag_field="method", tag="notifications/cancelled"):
    """A client's word that it no longer waits for a request."""

    params: _CancelParams


_decoder: "msgspec.json.Decoder[WireCall | WireCancel]" = msgspec.json.Decoder(WireCall | WireCancel)


def parse_wire(message: bytes) -> WireCall | WireCancel | None:
    """The message if it is one that this door understands, else None."""
    try:
        parsed = _decoder.decode(message)
        return parsed if isinstance(parsed, WireCancel) or _is_usual(message, parsed.params) else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _is_usual(message: bytes, params: _CallParams) -> bool:
    if params.meta and not _UNUSUAL_META.isdisjoint(params.meta):
        return False
    optional = params.optional
    return not has_odd_members(message, optional, _ENVELOPE_MEMBERS + len(optional))


def error_reply(call: WireCall, failure: MCPError) -> bytes:
    """The JSON-RPC error that answers `call`."""
    error = {"code": failure.error.code, "message": failure.error.message}
    if failure.error.data is not None:
        error["data"] = failure.error.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": call.id, "error": error})


class CallsInFlight:
    """The fast calls of one client that are under way, by request id, so that the client can cancel them.

    Args:
        agent: Answers.
        offer: What the client is offered.
        session: The client's session, where it has one.
        is_askable: Whether the session's client declared that it can be asked for something.
    """

    def __init__(self, agent: Agent, offer: Offer, session: str | None = None, *, is_askable: bool = False) -> None:
        self.offer = offer
        self._is_askable = is_askable
        self._agent = agent
        self._session = session
        self._tasks: dict[int | str, asyncio.Task[Any]] = {}

    def takes(self, call: WireCall) -> bool:
        """Whether this call is answered here: a listed tool, an id that is not in use, nobody to be asked."""
        if self._agent.may_ask() and (self._is_askable or call.is_askable):
            return False
        if coerce_request_id(call.id) in self._tasks or not self.offer.has(call.params.name):
            return False
        return not (self._agent.may_need_line() and self.offer.may_need_line(call.params.name, call.params.arguments))

    def add(self, call: WireCall, task: "asyncio.Task[None]") -> None:
        """Lets the client cancel a call that `task` is going to answer, before it has begun."""
        self._tasks[coerce_request_id(call.id)] = task

    async def answer(self, call: WireCall, era: Era, principal: str) -> bytes | None:
        """The JSON-RPC reply in the current task, None if the client cancelled the call.

        Raises:
            MCPError: The reply is a JSON-RPC error; see `error_reply`.
        """
        task = asyncio.current_task()
        assert task is not None
        key = coerce_request_id(call.id)
        self._tasks[key] = task
        try:
            params, caller = call.params, call.caller(principal, self._session)
            raw = await self._agent.answer(self.offer, params.name, params.arguments, caller, era)
        except asyncio.CancelledError:
            # Taken out by cancel(): the client's wish, not the server's end.
            if key in self._tasks:
                raise
            task.uncancel()
            return None
        finally:
            self._tasks.pop(key, None)
        return b'{"jsonrpc":"2.0","id":' + msgspec.json.encode(call.id) + b',"result":' + raw + b"}"

    def cancel(self, request_id: int | str) -> bool:
        """Ends a call that is under way; False if none of ours has this id."""
        task = self._tasks.pop(coerce_request_id(request_id), None)
        if task is None:
            return False
        task.cancel()
        return True
