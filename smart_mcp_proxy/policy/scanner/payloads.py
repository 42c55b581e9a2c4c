"""Text in code: base64, hexadecimal, escapes, rot13 and reversed writing, read and looked at."""

import base64
import binascii
import codecs
import html
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence, Passage, escaped

__all__ = ["encoded_text"]

READABLE_WEIGHT = 0.3
_MOST_CHARS = 20_000
"""Of one encoded run; decoding more would cost more than it tells."""
_DEPTH = 3
"""Encodings inside each other that are followed."""
_LEAST_CHARS = 6
_LEAST_ENCODED_CHARS = 12
_COMMAND = re.compile(
    r"\b(?:curl|wget|nc|ncat|netcat|bash|zsh|powershell|pwsh|chmod|chown|sudo|eval|exec|scp|ssh|nohup|crontab|mkfifo|"
    r"osascript|certutil|invoke-webrequest|iex|base64|rm\s+-[rf]+|del\s+/|format\s+c:|os\.system|subprocess|__import__|"
    r"python[23]?\s+-c|node\s+-e|perl\s+-e)\b|/bin/(?:ba|z|da)?sh\b|/dev/tcp/|\|\s*(?:ba|z)?sh\b|"
    r"https?://|~/\.|/etc/(?:passwd|shadow)|id_(?:rsa|ed25519)|\.env\b|<script|javascript:|"
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|send|upload|forward|exfiltrat\w*|reveal|leak|steal|delete|execute|"
    r"run|call|read|instructions?|system|prompt|password\w*|credentials?|secrets?|tokens?|api.?keys?|user|tool|admin|"
    r"attacker|do not|don't|must|always|never)\b",
    re.IGNORECASE,
)
_BASE64 = re.compile(r"(?<![\w+/-])(?![g-v+/_-].[^A-D])[A-Za-z0-9+/_-]{12,}={0,2}(?![\w+/-])")
"""What begins with one of these letters gives a byte that begins no UTF-8, and most words do; with a zero byte behind
it, it may begin UTF-16."""
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_BASE32 = re.compile(r"(?<![\w=])[A-Z2-7]{16,}={0,6}(?![\w=])")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:0x)?(?:[0-9A-Fa-f]{2}[ :,]?){8,}+")
_ESCAPES = re.compile(r"(?:\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[0-7]{3}){4,}")
_ENTITIES = re.compile(r"(?:&#(?:x[0-9a-fA-F]{1,6}|\d{1,7});){4,}")
_PERCENT = re.compile(r"(?:%[0-9a-fA-F]{2}[\w./:-]{0,40}){4,}+")
_NUMBERS = re.compile(r"(?<![\w.])(?:\d{2,3}[,\s]{1,3}){7,}\d{2,3}")
_BITS = re.compile(r"(?<![01])(?:[01]{8}[ ,]?){6,}+")
_TURNED = {
    "rot13": (
        "vtaber",
        "qvfertneq",
        "vafgehpgvba",
        "cnffjbeq",
        "perqragvny",
        "rkrphgr",
        "hcybnq",
        "flfgrz cebzcg",
        "phey ",
    ),
    "reversed": (
        "erongi",
        "dragersid",
        "snoitcurtsni",
        "drowssap",
        "slaitnederc",
        "etucexe",
        "daolpu",
        "tpmorp metsys",
    ),
}
"""Words that betray a text written in another alphabet or backwards."""


def encoded_text(passages: tuple[Passage, ...]) -> Iterator[Evidence]:
    """Evidence of encoded text in the passages: decisive where it is an order or a command."""
    whole = "\n".join(passage.text for passage in passages)
    is_turned = any(True for _ in _turned(whole))
    unbroken = " ".join(word for word in whole.split() if len(word) >= _LEAST_ENCODED_CHARS)
    kinds = [kind for kind in _KINDS if _is_there(kind, whole if kind.may_be_spaced else unbroken)]
    if not kinds and not is_turned:
        return
    for passage in passages:
        if len(passage.text) < _LEAST_ENCODED_CHARS:
            continue
        for kind, said in _turned(passage.text) if is_turned else ():
            yield _evidence(passage, kind, said)
        for kind, said in _decoded(passage.text, _DEPTH, kinds):
            yield _evidence(passage, kind, said)


def _is_there(kind: "_Kind", text: str) -> bool:
    return bool(text) and bool(kind.is_possible(text)) and kind.pattern.search(text) is not None


def _evidence(passage: Passage, kind: str, said: str) -> Evidence:
    shown = escaped(said)[:120]
    if _COMMAND.search(said):
        return Evidence("encoded_text", DECISIVE, passage.place, f"A command or an address is hidden as {kind}.", shown)
    if len(set(map(str.lower, _ORDER.findall(said)))) >= 2:
        return Evidence("encoded_text", DECISIVE, passage.place, f"Words to the agent are hidden as {kind}.", shown)
    return Evidence("encoded_text", READABLE_WEIGHT, passage.place, f"Readable text is written as {kind}.", shown)


def _turned(text: str) -> Iterator[tuple[str, str]]:
    lower = text.lower()
    if any(word in lower for word in _TURNED["rot13"]):
        yield "rot13", codecs.encode(text, "rot13")
    if any(word in lower for word in _TURNED["reversed"]):
        yield "reversed writing", text[::-1]


def _decoded(text: str, depth: int, kinds: Iterable["_Kind"]) -> Iterator[tuple[str, str]]:
    """Kind and plain text of every encoded run, runs inside runs included."""
    for kind, is_possible, pattern, decode, _ in kinds:
        if not is_possible(text):
            continue
        for match in pattern.finditer(text):
            said = _readable(decode(match[0][:_MOST_CHARS]))
            if said and said != match[0]:
                inner = list(_decoded(said, depth - 1, _KINDS)) if depth > 1 else []
                yield from inner or [(kind, said)]


def _readable(data: bytes | str | None) -> str:
    """The decoded text if a person would call it text, else an empty string."""
    if isinstance(data, bytes):
        try:
            data = data.decode("utf-16-le" if len(data) > 3 and data[1::2] == bytes(len(data) // 2) else "utf-8")
        except UnicodeDecodeError:
            return ""
    if data is None or len(data) < _LEAST_CHARS:
        return ""
    plain = sum(char.isprintable() or char in "\n\t\r" for char in data)
    words = sum(char.isalnum() or char in " /.-_:" for char in data)
    return data if plain == len(data) and words >= 0.7 * len(data) else ""


def _from_base64(run: str) -> bytes | None:
    body = run.rstrip("=").encode("ascii").translate(_URL_SAFE)
    # A run that was cut loses its last few bits, not all of it.
    body = body[:-1] if len(body) % 4 == 1 else body
    try:
        return binascii.a2b_base64(body + b"=" * (-len(body) % 4))
    except binascii.Error:
        return None


def _from_base32(run: str) -> bytes | None:
    try:
        return base64.b32decode(run.rstrip("=") + "=" * (-len(run.rstrip("=")) % 8))
    except binascii.Error:
        return None


def _from_hex(run: str) -> bytes | None:
    try:
        return bytes.fromhex(re.sub(r"0x|[ :,]", "", run))
    except ValueError:
        return None


def _from_escapes(run: str) -> str:
    return codecs.decode(run.encode("ascii"), "unicode_escape")


def _from_numbers(run: str) -> str | None:
    codes = list(map(int, re.findall(r"\d+", run)))
    return "".join(map(chr, codes)) if all(9 <= code < 127 for code in codes) else None


def _from_bits(run: str) -> bytes:
    digits = re.sub("[ ,]", "", run)
    return bytes(int(digits[at : at + 8], 2) for at in range(0, len(digits), 8))


def _has(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


class _Kind(NamedTuple):
    """An encoding.

    Attributes:
        name: For the reason.
        is_possible: A quick look whether it is there at all; true for every text around one for which it is true.
        pattern: Its runs.
        decode: Reads one.
        may_be_spaced: Whether there may be blanks in one.
    """

    name: str
    is_possible: Callable[[str], object]
    pattern: re.Pattern[str]
    decode: Callable[[str], bytes | str | None]
    may_be_spaced: bool = False


_KINDS = (
    _Kind("base64", _has(r"[A-Za-z0-9+/_-]{12}"), _BASE64, _from_base64),
    _Kind("base32", _has(r"[A-Z2-7]{16}"), _BASE32, _from_base32),
    _Kind(
        "hexadecimal", _has(r"[0-9A-Fa-f]{2}[ :,]?[0-9A-Fa-f]{2}[ :,]?[0-9A-Fa-f]{2}[ :,]?[0-9]"), _HEX, _from_hex, True
    ),
    _Kind("escapes", lambda text: "\\" in text, _ESCAPES, _from_escapes),
    _Kind("character references", lambda text: "&#" in text, _ENTITIES, html.unescape),
    _Kind("percent encoding", lambda text: "%" in text, _PERCENT, unquote),
    _Kind("character codes", _has(r"\d\d[,\s]{1,3}\d\d"), _NUMBERS, _from_numbers, True),
    _Kind("bits", _has(r"[01]{8}"), _BITS, _from_bits, True),
)
