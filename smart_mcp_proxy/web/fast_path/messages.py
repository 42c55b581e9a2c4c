"""Fast path: the common `tools/call` answered from raw JSON, nearly everything else left to the SDK.

A message is read once, checked for what the SDK would check, and answered by the same agent and the same one call
path as behind the SDK. Whatever is unusual (an answer to an input request, a level for log messages, a member this file
does not know, a header that does not match) is not judged here: the SDK gets the untouched message and says what is
wrong.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache, partial
from typing import Any, Final, Literal, NamedTuple

import mcp_types
import msgspec
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION

from smart_mcp_proxy.extensions import APP_META, Extensions, read_client_extensions
from smart_mcp_proxy.fastmcp_compat.asking import read_input_capabilities
from smart_mcp_proxy.fastmcp_compat.message_guard import MAX_DEPTH, count_members, has_odd_members
from smart_mcp_proxy.fastmcp_compat.server import has_good_envelope
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.gateway.shared.agent_tools import ToolList
from smart_mcp_proxy.gateway.tools import Caller
from smart_mcp_proxy.models import Era, Principal, ProgressReport

_TOKEN_KEY: Final = "progressToken"
_TOKEN_MARK: Final = b'"progressToken"'
"""A token that is spelled otherwise is left to the SDK."""
_USUAL_TOKEN: Final = re.compile(rb'"progressToken": ?(-?\d{1,18}|"[^"\\\x00-\x1f]{0,128}")([,}])')
_UNUSUAL_META = frozenset(
    {_TOKEN_KEY, "progress_token", mcp_types.LOG_LEVEL_META_KEY, mcp_types.SERVER_INFO_META_KEY, APP_META}
)
_ENVELOPE_META: Final = (
    mcp_types.PROTOCOL_VERSION_META_KEY,
    mcp_types.CLIENT_INFO_META_KEY,
    mcp_types.CLIENT_CAPABILITIES_META_KEY,
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
"""Texts one after the other: a long result is not copied to stand in a reply."""
Token = int | str
Tell = Callable[[bytes], Awaitable[None]]
"""Sends the client a notification that belongs to its call, before the reply."""


def _absent() -> dict[str, Any]:
    return _ABSENT


class _CallParams(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=_absent)
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="_meta")


class _CancelParams(msgspec.Struct):
    requestId: int | str  # noqa: N815  (the protocol's name)


class CallMeta(NamedTuple):
    """Facts in the `_meta` of a call.

    Attributes:
        rest: Without the members that belong to the connection.
        version: The protocol version in the envelope; None in the handshake era, which has no envelope.
        is_modern: Whether the envelope is a complete one of the modern era.
        is_askable: Whether the envelope declares that the client can be asked for something.
        is_usual: Whether it holds nothing that only the SDK understands.
        members: How many members all its objects have.
        extensions: What the envelope declares of extensions; None where nothing.
    """

    rest: Mapping[str, Any]
    version: str | None
    is_modern: bool
    is_askable: bool
    is_usual: bool
    members: int
    extensions: Extensions | None = None


_NO_META = CallMeta({}, None, is_modern=False, is_askable=False, is_usual=True, members=0)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_token = msgspec.json.Decoder(Token)


def _read_envelope(*texts: bytes) -> CallMeta:
    """Read the members of the envelope; empty where one is absent."""
    given = {key: msgspec.json.decode(text) for key, text in zip(_ENVELOPE_META, texts, strict=True) if text}
    stated = given.get(mcp_types.PROTOCOL_VERSION_META_KEY)
    return CallMeta(
        rest={},
        version=str(stated) if stated is not None else None,
        is_modern=stated == LATEST_MODERN_VERSION
        and mcp_types.CLIENT_CAPABILITIES_META_KEY in given
        and has_good_envelope(LATEST_MODERN_VERSION, given),
        is_askable=bool(read_input_capabilities(given.get(mcp_types.CLIENT_CAPABILITIES_META_KEY))),
        is_usual=True,
        members=count_members(given, _PARAM_LEVELS),
        extensions=read_client_extensions(given.get(mcp_types.CLIENT_CAPABILITIES_META_KEY), "modern"),
    )


_known_envelope = lru_cache(_METAS)(_read_envelope)


def _build_call_meta(members: dict[str, msgspec.Raw]) -> CallMeta:
    """Raises `msgspec.MsgspecError` or RecursionError where a member cannot be read."""
    version = bytes(members.pop(mcp_types.PROTOCOL_VERSION_META_KEY, b""))
    info = bytes(members.pop(mcp_types.CLIENT_INFO_META_KEY, b""))
    capabilities = bytes(members.pop(mcp_types.CLIENT_CAPABILITIES_META_KEY, b""))
    is_short = len(info) + len(capabilities) <= _META_BYTES
    envelope = (_known_envelope if is_short else _read_envelope)(version, info, capabilities)
    if not members:
        return envelope
    rest = {key: msgspec.json.decode(text) for key, text in members.items()}
    count = envelope.members + count_members(rest, _PARAM_LEVELS)
    return envelope._replace(rest=rest, is_usual=_UNUSUAL_META.isdisjoint(rest), members=count)


def _read_meta(text: bytes) -> CallMeta:
    """Raises `msgspec.MsgspecError` or RecursionError where it cannot be read."""
    return _build_call_meta(_members.decode(text))


_known_meta = lru_cache(_METAS)(_read_meta)


def _read_told(text: bytes, place: int) -> tuple[CallMeta, Token | None]:
    """Split the `_meta` of a call into facts and the progress token, which differs in each call.

    Args:
        text: A JSON object.
        place: Where the token's name stands in it, or where something is spelled like it.

    Raises:
        msgspec.MsgspecError: It cannot be read, or the token is neither a string nor an integer.
        RecursionError: It is nested too deeply.
    """
    found = _USUAL_TOKEN.match(text, place) if len(text) <= _META_BYTES else None
    if found is not None:
        if found.span() == (1, len(text)):  # alone, as nearly all clients of the handshake era have it
            return _NO_META, _token.decode(found[1])
        if rest := _without(text, found):
            return _known_meta(rest), _token.decode(found[1])
    members = _members.decode(text)
    token = members.pop(_TOKEN_KEY, None)
    return _build_call_meta(members), None if token is None else _token.decode(token)


def _without(text: bytes, found: re.Match[bytes]) -> bytes:
    """Remove a member that is certainly the first or last of several; else nothing."""
    start, end = found.span()
    if start == 1:
        return b"{" + text[end:] if found[2] == b"," else b""
    # The quote behind a comma opens a name, and the brace that ends the text closes the object itself.
    return text[: start - 1] + b"}" if end == len(text) and text[start - 1 : start] == b"," else b""


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
        token: Of the client, for the progress of the call; None where it asks for none.
    """

    id: int | str
    key: int | str
    name: str
    arguments: Mapping[str, Any]
    meta: CallMeta
    token: Token | None = None


class WireCancel(msgspec.Struct, tag_field="method", tag="notifications/cancelled"):
    """A client's word that it no longer waits for a request."""

    params: _CancelParams


class _NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object without members."""


class WireInitialized(msgspec.Struct, forbid_unknown_fields=True, tag_field="method", tag="notifications/initialized"):
    """A client's word that it knows what its session can do; all of them say it, with nothing else in it."""

    jsonrpc: Literal["2.0"]
    params: _NoParams | msgspec.UnsetType = msgspec.UNSET


_Message = _CallMessage | WireCancel | WireInitialized
_decoder: "msgspec.json.Decoder[_Message]" = msgspec.json.Decoder(_Message)


def parse_wire(message: bytes) -> WireCall | WireCancel | WireInitialized | None:
    """The message if it is one that the fast path understands, else None."""
    try:
        parsed = _decoder.decode(message)
        if isinstance(parsed, _CallMessage):
            return _usual(message, parsed)
        is_odd = isinstance(parsed, WireInitialized) and has_odd_members(
            message, {}, 2 + (parsed.params is not msgspec.UNSET)
        )
        return None if is_odd else parsed
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _usual(message: bytes, parsed: _CallMessage) -> WireCall | None:
    """The call, if it has no member that this file does not know, and none twice."""
    params, members, meta, token = parsed.params, _ENVELOPE_MEMBERS, _NO_META, None
    if text := bytes(params.meta):
        if (place := text.find(_TOKEN_MARK)) > 0:
            meta, token = _read_told(text, place)
        else:
            meta = _known_meta(text) if len(text) <= _META_BYTES else _read_meta(text)
        members += meta.members + (1 if token is None else 2)
    if params.arguments is not _ABSENT:
        members += 1
    if not meta.is_usual or has_odd_members(message, params.arguments, members, _PARAM_LEVELS):
        return None
    return WireCall(parsed.id, coerce_request_id(parsed.id), params.name, params.arguments, meta, token)


async def _report(tell: Tell, token: Token, report: ProgressReport) -> None:
    """Tells the client of the progress of its call, under the client's own token."""
    params = report.build_params(token)
    await tell(msgspec.json.encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))


def error_reply(call: WireCall, failure: MCPError) -> bytes:
    """The JSON-RPC error that answers `call`."""
    error = {"code": failure.error.code, "message": failure.error.message}
    if failure.error.data is not None:
        error["data"] = failure.error.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": call.id, "error": error})


@dataclass(eq=False, repr=False)
class CallsInFlight:
    """The fast calls of one client that are under way, by request id, so that the client can cancel them.

    Attributes:
        agent: Answers.
        tool_list: The tools that the client sees.
        session: The client's session, where it has one.
        is_askable: Whether the session's client declared that it can be asked for something.
        extensions: What it declared of extensions; None where nothing.
    """

    agent: Agent
    tool_list: ToolList
    session: str | None = None
    _: KW_ONLY
    is_askable: bool = False
    extensions: Extensions | None = None

    def __post_init__(self) -> None:
        self._tasks: dict[int | str, asyncio.Task[Any]] = {}

    def takes(self, call: WireCall) -> bool:
        """Whether this call is answered here: a listed tool, an id that is not in use, nobody to be asked."""
        if self.agent.questions.is_on and (self.is_askable or call.meta.is_askable):
            return False
        if call.key in self._tasks or not self.tool_list.has(call.name):
            return False
        return not (self.agent.may_need_line() and self.tool_list.may_need_line(call.name, call.arguments))

    def add(self, call: WireCall, task: "asyncio.Task[None]") -> None:
        """Lets the client cancel a call that `task` is going to answer, before it has begun."""
        self._tasks[call.key] = task

    async def answer(self, call: WireCall, era: Era, who: Principal, tell: Tell | None) -> Pieces | None:
        """The JSON-RPC reply in the current task, in pieces; None if the client cancelled the call.

        Args:
            call: Answered.
            era: Of its message.
            who: On whose behalf.
            tell: Takes what the client is told before; None where there is no way to tell it.

        Raises:
            MCPError: The reply is a JSON-RPC error; see `error_reply`.
        """
        task = asyncio.current_task()
        assert task is not None
        self._tasks[call.key] = task
        try:
            on_progress = None if call.token is None or tell is None else partial(_report, tell, call.token)
            declared = call.meta.extensions or self.extensions
            rest, session = call.meta.rest, self.session
            caller = Caller(who.id, rest, on_progress, session, extensions=declared, era=era, role=who.role)
            raw = await self.agent.answer(self.tool_list.call, call.name, call.arguments, caller, era)
        except asyncio.CancelledError:
            # Taken out by cancel(): the client's wish, not the server's end.
            if call.key in self._tasks:
                raise
            task.uncancel()
            return None
        finally:
            self._tasks.pop(call.key, None)
        return b'{"jsonrpc":"2.0","id":%b,"result":' % msgspec.json.encode(call.id), *raw.pieces, b"}"

    def cancel_all(self) -> None:
        """Ends every call that is under way: nobody waits for an answer."""
        for key in [*self._tasks]:
            self.cancel(key)

    def cancel(self, request_id: int | str) -> bool:
        """Ends a call that is under way; False if none of ours has this id."""
        task = self._tasks.pop(coerce_request_id(request_id), None)
        if task is None:
            return False
        task.cancel()
        return True
