"""The fast door: the common `tools/call` answered from raw JSON, everything else handed on to the SDK.

A message is read once, checked for what the SDK would check, and answered by the same agent and the same one call
path as behind the SDK. Whatever is unusual (a progress token, an answer to an input request, a member this file does
not know, a header that does not match) is not judged here: the SDK gets the untouched message and says what is wrong.
"""

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import mcp_types
import msgspec
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION

from smart_mcp_proxy.fastmcp_compat.asking import declared_inputs
from smart_mcp_proxy.fastmcp_compat.screen import MAX_DEPTH, count_members, has_odd_members
from smart_mcp_proxy.fastmcp_compat.server import has_good_envelope
from smart_mcp_proxy.gateway.agent import Agent
from smart_mcp_proxy.gateway.offer import Offer
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.models import Era

__all__ = ["CallMeta", "CallsInFlight", "Pieces", "WireCall", "WireCancel", "error_reply", "parse_wire"]

_UNUSUAL_META = frozenset({"progressToken", mcp_types.LOG_LEVEL_META_KEY})
_ENVELOPE_META = frozenset(
    {mcp_types.PROTOCOL_VERSION_META_KEY, mcp_types.CLIENT_INFO_META_KEY, mcp_types.CLIENT_CAPABILITIES_META_KEY}
)
_ABSENT: dict[str, Any] = {}
_ENVELOPE_MEMBERS = 5
"""`jsonrpc`, `id`, `method`, `params` and its `name`."""
_PARAM_LEVELS: Final = MAX_DEPTH - 2
"""Left for what a parameter holds, below the message and its `params`."""
_METAS: Final = 128
"""Remembered as they were written; a client of the modern era writes the same one into every request."""
_META_BYTES: Final = 1_024
"""A longer one is read each time."""


Pieces = tuple[bytes, ...]
"""One text after the other: a long result is not copied to stand in a reply."""


def _absent() -> dict[str, Any]:
    return _ABSENT


class _CallParams(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=_absent)
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="_meta")


class _CancelParams(msgspec.Struct):
    requestId: int | str  # noqa: N815  (the protocol's name)


class CallMeta(NamedTuple):
    """What the `_meta` of a call says.

    Attributes:
        rest: Without the members that belong to the connection.
        version: The protocol version in the envelope; None in the handshake era, which has no envelope.
        is_modern: Whether the envelope is a complete one of the modern era.
        is_askable: Whether the envelope declares that the client can be asked for something.
        is_usual: Whether it holds nothing that only the SDK understands.
        members: How many members all its objects have.
    """

    rest: Mapping[str, Any]
    version: str | None
    is_modern: bool
    is_askable: bool
    is_usual: bool
    members: int


_NO_META = CallMeta({}, None, is_modern=False, is_askable=False, is_usual=True, members=0)
_meta = msgspec.json.Decoder(dict[str, Any])


def _read_meta(text: bytes) -> CallMeta:
    """Raises `msgspec.MsgspecError` or RecursionError where it cannot be read."""
    meta = _meta.decode(text)
    stated = meta.get(mcp_types.PROTOCOL_VERSION_META_KEY)
    return CallMeta(
        rest={key: value for key, value in meta.items() if key not in _ENVELOPE_META},
        version=str(stated) if stated is not None else None,
        is_modern=stated == LATEST_MODERN_VERSION
        and mcp_types.CLIENT_CAPABILITIES_META_KEY in meta
        and has_good_envelope(LATEST_MODERN_VERSION, meta),
        is_askable=bool(declared_inputs(meta.get(mcp_types.CLIENT_CAPABILITIES_META_KEY))),
        is_usual=_UNUSUAL_META.isdisjoint(meta),
        members=count_members(meta, _PARAM_LEVELS),
    )


_known_meta = lru_cache(_METAS)(_read_meta)


class _CallMessage(msgspec.Struct, forbid_unknown_fields=True, tag_field="method", tag="tools/call"):
    jsonrpc: Literal["2.0"]
    id: int | str
    params: _CallParams


class WireCall(NamedTuple):
    """A `tools/call` request of the usual shape.

    Attributes:
        id: Of the request.
        key: The same for 7 and "7", which the SDK takes for one id.
        name: The tool.
        arguments: For it.
        meta: What goes with them.
    """

    id: int | str
    key: int | str
    name: str
    arguments: Mapping[str, Any]
    meta: CallMeta


class WireCancel(msgspec.Struct, tag_field="method", tag="notifications/cancelled"):
    """A client's word that it no longer waits for a request."""

    params: _CancelParams


_decoder: "msgspec.json.Decoder[_CallMessage | WireCancel]" = msgspec.json.Decoder(_CallMessage | WireCancel)


def parse_wire(message: bytes) -> WireCall | WireCancel | None:
    """The message if it is one that this door understands, else None."""
    try:
        parsed = _decoder.decode(message)
        return parsed if isinstance(parsed, WireCancel) else _usual(message, parsed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _usual(message: bytes, parsed: _CallMessage) -> WireCall | None:
    """The call, if it has no member that this file does not know, and none twice."""
    params, members, meta = parsed.params, _ENVELOPE_MEMBERS, _NO_META
    if text := bytes(params.meta):
        meta = _known_meta(text) if len(text) <= _META_BYTES else _read_meta(text)
        members += meta.members + 1
    if params.arguments is not _ABSENT:
        members += 1
    if not meta.is_usual or has_odd_members(message, params.arguments, members, _PARAM_LEVELS):
        return None
    return WireCall(parsed.id, coerce_request_id(parsed.id), params.name, params.arguments, meta)


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
        if self._agent.may_ask() and (self._is_askable or call.meta.is_askable):
            return False
        if call.key in self._tasks or not self.offer.has(call.name):
            return False
        return not (self._agent.may_need_line() and self.offer.may_need_line(call.name, call.arguments))

    def add(self, call: WireCall, task: "asyncio.Task[None]") -> None:
        """Lets the client cancel a call that `task` is going to answer, before it has begun."""
        self._tasks[call.key] = task

    async def answer(self, call: WireCall, era: Era, principal: str) -> Pieces | None:
        """The JSON-RPC reply in the current task, in pieces; None if the client cancelled the call.

        Raises:
            MCPError: The reply is a JSON-RPC error; see `error_reply`.
        """
        task = asyncio.current_task()
        assert task is not None
        self._tasks[call.key] = task
        try:
            caller = Caller(principal, call.meta.rest, None, self._session)
            raw = await self._agent.answer(self.offer, call.name, call.arguments, caller, era)
        except asyncio.CancelledError:
            # Taken out by cancel(): the client's wish, not the server's end.
            if call.key in self._tasks:
                raise
            task.uncancel()
            return None
        finally:
            self._tasks.pop(call.key, None)
        return b'{"jsonrpc":"2.0","id":%b,"result":' % msgspec.json.encode(call.id), *raw.pieces, b"}"

    def cancel(self, request_id: int | str) -> bool:
        """Ends a call that is under way; False if none of ours has this id."""
        task = self._tasks.pop(coerce_request_id(request_id), None)
        if task is None:
            return False
        task.cancel()
        return True
