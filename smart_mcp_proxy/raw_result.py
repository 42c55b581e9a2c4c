"""Results as their servers wrote them: passed on unread where possible, else read once."""

import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar

import msgspec
import numpy as np

OUTLINE_BYTES = 64
"""Bytes that are kept of a member's value: enough for a flag, a word, or to see what kind of value it is."""
_QUOTES = 32
"""Quotes looked for, those of a text in front of a picture, say; short strings are read faster than looked for."""
_ESCAPE = b"\\"
DEEPEST_LEVELS: Final = 1_000
"""As deep as Python 3.11 reads. What is deeper breaks the parsers of clients, which would wait for their answer."""
_READS_ANY_DEPTH: Final = sys.version_info >= (3, 14)
"""Earlier ones count levels and stop at some thousands; this one measures the stack, which holds 100,000."""
_CASE_BIT: Final = 0x20
"""The bit in which a bracket differs from a brace."""
_OPENING = b"{"
_QUOTE = b'"'
_STEP_BIT: Final = 0x02
"""The bit that what opens has and what closes has not."""
_NO: Final = (b"", b"false", b"0", b"0.0", b"no", b"null", b"[]", b"{}")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SHORT_BYTES = 4_096
"""Up to here strings are made of what is checked: that takes less time than a look at each."""
_OUTLINED: Final = (
    ("isError", "isError"),
    ("structuredContent", "structuredContent"),
    ("resultType", "resultType"),
    ("_meta", "meta"),
)
"""Members that the gateway looks at, each with the name of its field."""
_UNSET = msgspec.UNSET
_Maybe = msgspec.UnsetType
String = TypeVar("String", str, msgspec.Raw)
"""Raw: not made, and whether it is a string is looked at."""


_SafeInt = Annotated[int, msgspec.Meta(ge=-(2**53 - 1), le=2**53 - 1)]
"""Integers that JavaScript has."""
_Time = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
        r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])\Z"
    ),
]
"""A time with its zone: the TypeScript SDK takes no other."""


class _Task(msgspec.Struct, gc=False):
    taskId: str  # noqa: N815  (the protocol's name)


class _Meta(msgspec.Struct, gc=False):
    """The members that the TypeScript SDK looks at: for another value it throws the answer away."""

    progressToken: _SafeInt | str | _Maybe = _UNSET  # noqa: N815  (the protocol's name)
    task: _Task | _Maybe = msgspec.field(default=_UNSET, name="io.modelcontextprotocol/related-task")


class _Icon(msgspec.Struct, gc=False):
    src: str
    mimeType: str | _Maybe = _UNSET  # noqa: N815  (the protocol's name)
    sizes: list[str] | _Maybe = _UNSET
    theme: Literal["light", "dark"] | _Maybe = _UNSET


class _Annotations(msgspec.Struct, gc=False):
    audience: list[Literal["user", "assistant"]] | _Maybe = _UNSET
    priority: Annotated[float, msgspec.Meta(ge=0, le=1)] | _Maybe = _UNSET
    lastModified: _Time | _Maybe = _UNSET  # noqa: N815  (the protocol's name)


class _Contents(msgspec.Struct, gc=False, kw_only=True):
    """The contents of a resource; one of two members, which a struct cannot say."""

    uri: str
    mimeType: str | _Maybe = _UNSET  # noqa: N815  (the protocol's name)
    text: msgspec.Raw | _Maybe = _UNSET
    blob: msgspec.Raw | _Maybe = _UNSET
    meta: dict[str, msgspec.Raw] | _Maybe = msgspec.field(default=_UNSET, name="_meta")


class _Block(msgspec.Struct, tag_field="type", gc=False, kw_only=True):
    annotations: _Annotations | _Maybe = _UNSET
    meta: dict[str, msgspec.Raw] | _Maybe = msgspec.field(default=_UNSET, name="_meta")


class _Link(_Block, tag="resource_link", gc=False, kw_only=True):
    uri: str
    name: str
    title: str | _Maybe = _UNSET
    description: str | _Maybe = _UNSET
    mimeType: str | _Maybe = _UNSET  # noqa: N815  (the protocol's name)
    size: int | _Maybe = _UNSET
    icons: list[_Icon] | _Maybe = _UNSET


class _Embedded(_Block, tag="resource", gc=False, kw_only=True):
    resource: _Contents


class _Text(_Block, Generic[String], tag="text", gc=False, kw_only=True):
    text: String


class _Image(_Block, Generic[String], tag="image", gc=False, kw_only=True):
    text: String = msgspec.field(name="data")
    mimeType: str  # noqa: N815  (the protocol's name)


class _Audio(_Block, Generic[String], tag="audio", gc=False, kw_only=True):
    text: String = msgspec.field(name="data")
    mimeType: str  # noqa: N815  (the protocol's name)


class _Result(msgspec.Struct, Generic[String], gc=False, kw_only=True):
    """A tool's result as client libraries take it.

    Source: https://modelcontextprotocol.io/specification/2025-11-25/schema
    """

    content: list[_Text[String] | _Image[String] | _Audio[String] | _Link | _Embedded] | _Maybe = _UNSET
    isError: bool | _Maybe = _UNSET  # noqa: N815  (the protocol's name)
    structuredContent: msgspec.Raw | _Maybe = _UNSET  # noqa: N815  (the protocol's name)
    resultType: msgspec.Raw | _Maybe = _UNSET  # noqa: N815  (the protocol's name)
    meta: _Meta | _Maybe = msgspec.field(default=_UNSET, name="_meta")


_short_result = msgspec.json.Decoder(_Result[str])
_long_result = msgspec.json.Decoder(_Result[msgspec.Raw])


def _is_sound(result: Any) -> bool:
    """Whether client libraries can read what was decoded as a tool's result."""
    if result.content is _UNSET:
        return False
    for block in result.content:  # not a function for each: there may be thousands
        held = block.text if type(block) not in (_Link, _Embedded) else b'"'
        if type(block) is _Embedded:
            held = block.resource.text if block.resource.text is not _UNSET else block.resource.blob
        if held is _UNSET or (type(held) is not str and memoryview(held)[0] != _QUOTE[0]):
            return False
    return True


def refuse_deep(text: bytes) -> None:
    """Do nothing for text that may be read.

    Raises:
        RecursionError: It is nested too deep, and this interpreter would read it all the same.
    """
    if _READS_ANY_DEPTH and is_nested_deeper(text, DEEPEST_LEVELS):
        raise RecursionError(f"it is nested deeper than {DEEPEST_LEVELS:,} levels")


def is_nested_deeper(text: bytes, levels: int) -> bool:
    """Whether arrays and objects stand in each other more than `levels` deep.

    Most texts have not so many of them at all, which is seen at memory speed.

    Args:
        text: JSON; of a text that is none, this says nothing.
        levels: At least one.
    """
    if len(text) <= 2 * levels or np.count_nonzero(np.frombuffer(text, np.uint8) | _CASE_BIT == _OPENING[0]) <= levels:
        return False
    outside = b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(_QUOTE)[::2])
    brackets = np.frombuffer(outside.translate(None, _NO_BRACKETS), np.int8)
    steps = (brackets & _STEP_BIT) - 1
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0)) > levels


def means_yes(flag: bytes) -> bool:
    """Whether a flag's JSON text means yes, also where it is a number or text."""
    return flag.strip(b'" ').lower() not in _NO


def _inspect_result(text: bytes) -> tuple[dict[str, bytes], bool]:
    """The outline of a result, and whether client libraries can read it as a tool's: most are read once."""
    try:
        result = _long_result.decode(text)
    except msgspec.ValidationError:
        members: dict[str, Any] = _members.decode(text)
        is_readable = False
    else:
        members, is_readable = {name: getattr(result, field) for name, field in _OUTLINED}, _is_sound(result)
    found = dict[str, bytes]()
    for name, _ in _OUTLINED:
        if type(value := members.get(name, _UNSET)) is msgspec.Raw:
            found[name] = bytes(memoryview(value)[:OUTLINE_BYTES])
        elif type(value) is bool:
            found[name] = b"true" if value else b"false"
        elif value is not _UNSET:  # only that there are some is asked
            found[name] = _OPENING
    if not is_readable and "isError" in found:
        found["isError"] = b"true" if means_yes(found["isError"]) else b"false"
    return found, is_readable


class RawResult:
    """A result's JSON text in the pieces in which it came: a long one is passed on without being copied.

    However many ask what is in it, it is looked through once.

    Args:
        pieces: The text, at least one piece.
        is_clean: Whether the text is known to be clean; see `is_clean` of `smart_mcp_proxy/invisible/quick_look.py`.
        outline: Its members, where they are known; see the property.
        is_sound: Whether client libraries can read it as a tool's, where that is known.
    """

    __slots__ = ("_is_sound", "_outline", "is_clean", "pieces")

    def __init__(
        self,
        *pieces: bytes,
        is_clean: bool = False,
        outline: Mapping[str, bytes] | None = None,
        is_sound: bool | None = None,
    ) -> None:
        self.pieces = pieces
        self.is_clean = is_clean
        self._outline = outline
        self._is_sound = is_sound

    @classmethod
    def read(cls, *pieces: bytes, is_clean: bool) -> Self:
        """Create a result and parse its outline at once.

        Raises:
            msgspec.MsgspecError: It is no object.
            RecursionError: It is nested too deep.
        """
        is_plain = is_clean and not any(_ESCAPE in piece for piece in pieces)
        text = _without_long_strings(pieces) if is_plain else b"".join(pieces)
        refuse_deep(text)
        outline, is_sound = _inspect_result(text)
        return cls(*pieces, is_clean=is_clean, outline=outline, is_sound=is_sound)

    def __repr__(self) -> str:
        return f"<RawResult of {self.size_bytes:,} bytes>"

    @property
    def size_bytes(self) -> int:
        """Length of the text."""
        return sum(map(len, self.pieces))

    @property
    def text(self) -> bytes:
        """The text in one piece."""
        if len(self.pieces) > 1:
            self.pieces = (b"".join(self.pieces),)
        return self.pieces[0]

    @property
    def outline(self) -> Mapping[str, bytes]:
        """The members of the object that the gateway looks at by name, of each value the first 64 bytes.

        Not the values themselves: they would refer to the text that refers to them, and live until a collection.

        Raises:
            msgspec.MsgspecError: It is no object.
        """
        if self._outline is None:
            self._outline, self._is_sound = _inspect_result(self.text)
        return self._outline

    @property
    def is_sound(self) -> bool:
        """Whether client libraries can read it as the result of a tool."""
        if self._is_sound is None:
            text = self.text
            try:
                if len(text) > _SHORT_BYTES:
                    self._is_sound = _is_sound(_long_result.decode(text))
                else:
                    result = _short_result.decode(text)
                    is_plain = result.content is not _UNSET and _Embedded not in map(type, result.content)
                    self._is_sound = is_plain or _is_sound(result)
            except (msgspec.MsgspecError, RecursionError):
                self._is_sound = False
        return self._is_sound


def _without_long_strings(pieces: Iterable[bytes]) -> bytes:
    """A clean text with long strings cut to their beginnings: JSON if the text is.

    Whatever is left out of a string could neither end it nor be wrong in it. The outline is the same, but for what
    names of more than 64 characters end in.
    """
    kept: list[bytes] = []
    is_inside, left, quotes = False, 0, _QUOTES
    for piece in pieces:
        start = kept_from = 0
        while quotes:
            quote = piece.find(b'"', start)
            end = len(piece) if quote < 0 else quote
            if is_inside and end - start > left:
                kept.append(piece[kept_from : start + left])
                kept_from = end
            if quote < 0:
                left = max(0, left - (end - start))
                break
            is_inside, left, quotes = not is_inside, OUTLINE_BYTES, quotes - 1
            start = quote + 1
        kept.append(piece[kept_from:])
    return b"".join(kept)
