"""Tool results on the wire: ours written, a server's passed on, fitted to the agent's era.

Most results pass unread: what must be known of them is searched for in their text.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from mcp_types import SERVER_INFO_META_KEY

from smart_mcp_proxy import __version__
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.invisible.quick_look import are_harmless, may_hold_hidden
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.raw_result import OUTLINE_BYTES, RawResult

SERVER_NAME = "smart-mcp-proxy"
_CONNECTION_META_PREFIX = "io.modelcontextprotocol/"


class ResultFacts(msgspec.Struct):
    """The few members of a tool result that the gateway itself looks at; the rest is only scanned over."""

    isError: bool | None = False  # noqa: N815  (MCP's spelling; some servers send null)
    resultType: str = "complete"  # noqa: N815  (MCP's spelling)


INPUT_REQUIRED = "input_required"
OFF_LOOP_BYTES = 65_536
"""A longer result is rewritten in a thread (measured: cleaning takes 3 ms for this much)."""
SHORT_BYTES = 16_384
"""Up to here looking for a word takes less time than reading the text (measured: 4 us against 6 us)."""
_BLANKS = b" \t\r\n"
_BRACE = ord("{")
_COMPLETE_TEXT = b'"complete"'
_PLAIN = ResultFacts()
_facts = msgspec.json.Decoder(ResultFacts)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])
_COMPLETE = msgspec.Raw(_COMPLETE_TEXT)
_SERVER_INFO = msgspec.Raw(msgspec.json.encode({"name": SERVER_NAME, "version": __version__}))
_META_END = b'"_meta":' + msgspec.json.encode({SERVER_INFO_META_KEY: _SERVER_INFO}) + b"}"
_MODERN_END = b'"resultType":"complete",' + _META_END
_Usual = Sequence[tuple[bytes, bytes | None]]
_NO_META = (b'"_meta"', None)
_NO_KIND = (b'"resultType"', None)
_USUAL_FACTS: _Usual = ((b'"isError"', b'"isError":false'), (b'"resultType"', b'"resultType":"complete"'))
_FITTING: dict[Era, _Usual] = {
    "handshake": ((b'"structuredContent"', b'"structuredContent":{'), _NO_KIND, _NO_META),
    "modern": (_NO_KIND, _NO_META),
}
"""Members that one era's results must not have, or have otherwise; text that only looks like one costs a reading."""
_COMPLETE_FIRST = b'{"resultType":"complete"'
_COMPLETE_OUTLINE: Mapping[str, bytes] = {"resultType": _COMPLETE_TEXT}
_DELETE = b"\x7f"
_SUSPECT_ESCAPE = re.compile(
    rb"\\(?:[bf]|r(?!\\n)|u(?:00(?:0[0-8b-f]|1|7f|[89]|ad)|034f|06(?:0[0-5]|1c|dd)|070f|08(?:9[01]|e2)|11(?:5f|60)|"
    rb"17b[45]|180[b-f]|20(?:0[b-f]|2[a-e]|6)|2800|3164|e|f[0-8]|fd[de]|fe(?:0|ff)|ff(?:a0|f[0-9abcef])|"
    rb"d(?:b(?:4[0-3]|[89a-f])|8(?:0[4d]|1b|2f|34))))",
    re.IGNORECASE,
)
"""By an escape, what cleaning may take out, and what begins like that; long texts are then looked at more closely."""
_MARK: Final = b'"resource'
"""Beginning of each word that a link cannot do without: `resource_link`, `resource`, `resourceUri`."""
_FLAT_MARK: Final = b'"ui/resource'
"""Beginning of the older name of an interface."""
_MARKS: Final = (_MARK, _FLAT_MARK)
_QUOTE: Final = b'"'
_QUOTES: Final = 64
"""Quotes that are looked at one by one."""
_ESCAPED_LETTER: Final = re.compile(rb"\\u00[67]")
"""A letter of such a word, written as an escape."""


def read_facts(raw: RawResult) -> ResultFacts | None:
    """Facts that `raw` states about itself; None if it is not a tool result's JSON object."""
    if _says_only(raw, _USUAL_FACTS):
        return _PLAIN if raw.text.startswith(b"{") or raw.text.lstrip().startswith(b"{") else None
    try:
        outline = raw.outline
        is_error = outline.get("isError", b"false")
        kind = outline.get("resultType", _COMPLETE_TEXT)
        if is_error == b"false" and kind == _COMPLETE_TEXT:
            return _PLAIN
        return _facts.decode(b'{"isError":%b,"resultType":%b}' % (is_error, kind))
    except (msgspec.MsgspecError, RecursionError):
        return None


def is_input_required(raw: RawResult) -> bool:
    """Whether the server wants to know more before it answers."""
    facts = read_facts(raw)
    return facts is not None and facts.resultType == INPUT_REQUIRED


def may_need_cleaning(raw: RawResult) -> bool:
    """Whether a result holds anything that `clean` may take out; False is certain."""
    if raw.is_clean:
        return False
    text = raw.text
    is_short = len(text) <= SHORT_BYTES
    if _DELETE in text or (b"\\" in text and _SUSPECT_ESCAPE.search(text) and (is_short or not are_harmless(text))):
        return True
    return not text.isascii() and may_hold_hidden(text)


def may_link(raw: RawResult) -> bool:
    """Whether a result may name a resource; found without reading the result, and False for nearly all.

    A short one is looked through also for words that are spelled with escapes, which no known server does.
    """
    text = raw.pieces[0]
    if len(raw.pieces) == 1 and len(text) <= SHORT_BYTES:
        return _MARK in text or _FLAT_MARK in text or (b"\\u00" in text and _ESCAPED_LETTER.search(text) is not None)
    reach = len(_FLAT_MARK) - 1
    joints = [before[-reach:] + after[:reach] for before, after in pairwise(raw.pieces)]
    return any(map(_is_marked, raw.pieces)) or any(_MARK in joint or _FLAT_MARK in joint for joint in joints)


def _is_marked(text: bytes) -> bool:
    """Return whether a long text holds the mark, searching for a byte before the word."""
    at = text.find(_QUOTE)
    for _ in range(_QUOTES):
        if at < 0 or text.startswith(_MARKS, at):
            return at >= 0
        at = text.find(_QUOTE, at + 1)
    return at >= 0 and (text.find(_MARK, at) >= 0 or text.find(_FLAT_MARK, at) >= 0)


def decode_members(raw: bytes) -> dict[str, msgspec.Raw]:
    """The members of a result, their values unread. Raises `msgspec.MsgspecError` if it is no JSON object."""
    return _members.decode(raw)


def read_object(raw: msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    """The members of an object, their values unread; none of other values: some servers send null."""
    try:
        return _members.decode(raw or b"{}")
    except msgspec.ValidationError:
        return {}


def read_list(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    """The items of a list, unread themselves; none of any other value."""
    try:
        return _list.decode(raw or b"[]")
    except msgspec.ValidationError:
        return []


def read_text(raw: msgspec.Raw | None) -> str | None:
    """The text; None for any other value."""
    try:
        return None if raw is None else msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return None


def encode_raw(value: Any) -> msgspec.Raw:
    """JSON text of a value, to stand inside another text."""
    return msgspec.Raw(msgspec.json.encode(value))


def _says_only(raw: RawResult, usual: _Usual) -> bool:
    """Return whether a short text certainly lacks such a member with another value.

    A long one costs less to read than to search.

    Args:
        raw: The result.
        usual: Names, each with the beginning that the member has then; None where it must not be there at all.
    """
    # A letter of a name can be written as an escape, which a search for the name does not see.
    text = raw.pieces[0]
    if len(raw.pieces) > 1 or len(text) > SHORT_BYTES or b"\\u00" in text:
        return False
    for name, member in usual:
        if name in text and (member is None or text.count(name) != text.count(member)):
            return False
    return True


def build_structured_result(value: Mapping[str, Any], *, is_error: bool = False) -> RawResult:
    """A tool result that carries `value` as structured content and the same JSON as its one text block."""
    structured = msgspec.json.encode(value)
    content = b'[{"type":"text","text":%b}]' % msgspec.json.encode(structured.decode())
    state = b"true" if is_error else b"false"
    members = {"structuredContent": structured, "isError": state}
    return RawResult(
        b'{"content":%b,"structuredContent":%b,"isError":%b}' % (content, structured, state),
        outline={name: text[:OUTLINE_BYTES] for name, text in members.items()},
        is_sound=True,
    )


def error_result(error: ProxyError) -> RawResult:
    """A tool result that tells an agent what failed, why, what to do, and whether the call may have run."""
    return build_structured_result({"error": error.to_dict()}, is_error=True)


async def rewrite_result(raw: RawResult, rewrite: Callable[[bytes], bytes]) -> RawResult:
    """Rewrite a result; a long one in a thread."""
    text = raw.text
    new = await asyncio.to_thread(rewrite, text) if len(text) > OFF_LOOP_BYTES else rewrite(text)
    return raw if new is text else RawResult(new)


def is_said(structured: str, text: str) -> bool:
    """Whether a result's text says what its structured content says.

    That is: the same JSON, or the same string, bare or as the member `result` in which FastMCP wraps what is no object.

    Args:
        structured: The structured content as JSON text.
        text: The text blocks, joined by newlines.
    """
    value = _json_or_text(structured)
    said = (text, _json_or_text(text))
    return value in said or value in [{"result": each} for each in said]


def _json_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text


def fit_to_era(raw: RawResult, era: Era) -> RawResult:
    """The result as one era's wire knows it; nothing else of it is touched, and most results pass unread.

    Up to 2025-11-25 `structuredContent` is an object and `resultType` does not exist; from 2026-07-28 on every result
    has a `resultType` and says in `_meta` which server it is from. What an upstream says there of its own connection
    is not ours to repeat.
    """
    has = _find_unfit_members(raw, era)
    if era == "handshake" and "_meta" not in has and "resultType" not in has and _is_object(has):
        return raw
    if era == "modern" and "_meta" not in has:
        return _with_end(raw, _META_END if "resultType" in has else _MODERN_END)
    members = decode_members(raw.text)
    meta = {
        key: value
        for key, value in read_object(members.get("_meta")).items()
        if not key.startswith(_CONNECTION_META_PREFIX)
    }
    if era == "modern":
        members.setdefault("resultType", _COMPLETE)
        meta[SERVER_INFO_META_KEY] = _SERVER_INFO
    else:
        members.pop("resultType", None)
        if not bytes(members.get("structuredContent", b"{")).startswith(b"{"):
            del members["structuredContent"]
    if meta:
        members["_meta"] = encode_raw(meta)
    else:
        members.pop("_meta", None)
    return RawResult(msgspec.json.encode(members))


def _find_unfit_members(raw: RawResult, era: Era) -> Mapping[str, bytes]:
    """Members that one era's results must not have or have otherwise; mostly none, unread."""
    if _says_only(raw, _FITTING[era]):
        return {}
    if era == "modern" and raw.pieces[0].startswith(_COMPLETE_FIRST) and _says_only(raw, (_NO_META,)):
        return _COMPLETE_OUTLINE
    return raw.outline


def _with_end(raw: RawResult, end: bytes) -> RawResult:
    """A result with more members at its end; of a long one only the last piece is copied."""
    *before, last = raw.pieces
    stop = last.rfind(b"}")
    while stop > 0 and last[stop - 1] in _BLANKS:
        stop -= 1
    if stop <= 0 and before:  # whether a comma is needed stands in another piece
        return _with_end(RawResult(raw.text), end)
    return RawResult(*before, b"".join((memoryview(last)[:stop], b"" if last[stop - 1] == _BRACE else b",", end)))


def _is_object(outline: Mapping[str, bytes]) -> bool:
    """Whether the structured content is an object, or there is none."""
    return outline.get("structuredContent", b"{").startswith(b"{")
