"""Encodings and ciphers in which text hides: where each may stand in a text, and what it says."""

import base64
import binascii
import codecs
import re
import string
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote

MOST_DECODED = 100_000
"""Bytes that are unpacked of one run, as many as are read of a definition: a packed bomb is not."""
_LEAST_CHARS = 6
_PACKED_LIKE_GZIP = 32 + zlib.MAX_WBITS
"""Either header, gzip's or zlib's. Source: https://www.zlib.net/manual.html"""
_UNREADABLE = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\ud7ff\uf900-\ufffc\U00010000-\U000effff]")
_WORDY = re.compile(r"[^\W_]|[ /.:_-]")
_WORDY_SHARE = 0.7
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_SHAPE = bytes(
    ord("A") if char.isupper() else ord("a") if char.isalnum() else code
    for code, char in enumerate(map(chr, range(128)))
) + bytes(128)
"""Every byte to the kind of letter it is; a digit counts as a small letter."""
_BASE64 = r"(?<![\w+/-])(?![g-v+/_-].[^A-D])[A-Za-z0-9+/_-]{12,}={0,2}(?![\w+/-])"
"""Run of base64. A run that begins with one of these letters gives a byte that begins no UTF-8, and most words do; with
a zero byte behind it, it may begin UTF-16."""
_QUOTED_JOINT = r"[\"'`]\s{0,3}[+.,&\\]?\s{0,3}[\"'`]"
_BETWEEN = rf"(?:{_QUOTED_JOINT}|[-_.,:;|*~]|\s{{1,3}})?+"
_GROUPS = "(?:" + _BETWEEN.join(
    ["[I-Za-f]", "[A-HQ-Xg-nw-z0-3]", "[ABEFIJMNQRUVYZcdghklopstwx014589]", "[A-Za-z0-9+/]"]
)
_GROUPS += rf"{_BETWEEN}){{5,}}+"
_PACKED = ("H4sIA", "eJ", "eN", "eA")
_PIECES = rf"{_GROUPS}|(?:{'|'.join(_PACKED)})(?:[A-Za-z0-9+/]{_BETWEEN}){{20,}}+"
"""Each group of four stands for three letters of ASCII, or begins a packed text."""
_FIRST_GROUPS = re.compile(_GROUPS)
_BASE32 = r"(?<!\w)(?:[A-Z2-7]{16,}|(?:[e-p][abefijmnqruvyz45][a-z2-7][a-hq-x][a-z2-7]{4}){2,}[a-z2-7]*)={0,6}(?![\w=])"
"""In small letters, as most words are, only what stands for ASCII."""
_BASE85 = r"(?:[A-Za-e][0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]{4}){4,}+[0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]{0,4}"
_ASCII85 = r"(?:[+-I][!-u]{4}){4,}+[!-u]{0,4}"
"""Each group of five begins with one of these where it stands for ASCII."""
_HEX = r"(?<![0-9A-Za-z])(?:(?:0x)?[0-9A-Fa-f]{2}(?:, ?|[ :;-])?){8,}+"
_DIGITS = b"0" * 16
_HEX_DIGITS = bytes(ord("0") if code < 128 and chr(code) in string.hexdigits else 0 for code in range(256))
"""Every byte to whether it is a hexadecimal digit."""
_LEAST_DIGITS = 16
"""Least digits of a row of numbers."""
_NUMBERS = r"(?<![\w.])(?:\d{2,3}[,\s]{1,3}){7,}\d{2,3}"
_BITS = r"(?<![01])(?:[01]{8}[ ,]?){6,}+"
_NEAR = r"[\w ,.'/:;-]{0,24}"
"""Text that may stand between two escapes of one run."""
_ESCAPE = re.compile(
    r"\\x([0-9a-fA-F]{2})|%([0-9a-fA-F]{2})|=([0-9A-F]{2})|\\u([0-9a-fA-F]{4})|\\u\{([0-9a-fA-F]{1,6})\}|"
    r"\\U([0-9a-fA-F]{8})|%u([0-9a-fA-F]{4})|U\+([0-9a-fA-F]{4,6})[ ,]{0,2}|&#x([0-9a-fA-F]{1,6});?|&#(\d{1,7});?|"
    r"\\([0-3][0-7]{2})"
)
_HEX_BYTE, _HEX_CODE, _DECIMAL = (1, 2, 3), (4, 5, 6, 7, 8, 9), 10
_COMMON = re.findall(r"\w+", "the and you this that with user tool file must always before send from")
_TELLING = re.findall(
    r"\w+",
    """ignore disregard instructions instruction previous password passwords credentials execute upload secret
        secrets reveal forward system""",
)
_TOGETHER = 2
"""Words of which each alone may be a word of another language or a name."""

Decode = Callable[[str], str]


class Encoding(NamedTuple):
    """An encoding.

    Attributes:
        name: For the reason.
        is_possible: A quick look whether it is there at all; true for every text around one for which it is true.
        pattern: Its runs.
        decode: Reads one.
        may_be_spaced: Whether there may be blanks in one.
        escape: What stands for one character among plain ones; none where no character of a run is readable.
    """

    name: str
    is_possible: Callable[[str], object]
    pattern: re.Pattern[str]
    decode: Callable[[str], bytes | str | None]
    may_be_spaced: bool = False
    escape: re.Pattern[str] | None = None


def readable(data: bytes | str | None) -> str:
    """The decoded text, unpacked if it is packed, if a person would call it text; else an empty string."""
    if isinstance(data, bytes):
        data = _as_text(_decompress(data))
    if data is None or len(data) < _LEAST_CHARS or _UNREADABLE.search(data):
        return ""
    return data if len(_WORDY.findall(data)) >= _WORDY_SHARE * len(data) else ""


def _as_text(data: bytes) -> str | None:
    is_wide = len(data) > 3 and data[1::2] == bytes(len(data) // 2)
    try:
        # A run that was cut may end within a character.
        return codecs.getincrementaldecoder("utf-16-le" if is_wide else "utf-8")().decode(data)
    except UnicodeDecodeError:
        return None


def _decompress(data: bytes) -> bytes:
    if data[:2] != b"\x1f\x8b" and data[:1] != b"x":
        return data
    try:
        return zlib.decompressobj(_PACKED_LIKE_GZIP).decompress(data, MOST_DECODED)
    except zlib.error:
        return data


def _from_base64(run: str) -> bytes | None:
    body = run.rstrip("=").encode("ascii").translate(_URL_SAFE)
    # A run that was cut loses its last few bits, not all of it.
    body = body[:-1] if len(body) % 4 == 1 else body
    try:
        return binascii.a2b_base64(body + b"=" * (-len(body) % 4))
    except binascii.Error:
        return None


def _from_pieces(run: str) -> bytes | None:
    body = re.sub(r"[^A-Za-z0-9+/]", "", re.sub(_QUOTED_JOINT, "", run))
    return _from_base64(body) if len(body) < len(run.strip()) else None


def _from_base32(run: str) -> bytes | None:
    body = run.rstrip("=")
    try:
        return base64.b32decode(body + "=" * (-len(body) % 8), casefold=True)
    except binascii.Error:
        return None


def _from_ascii85(run: str) -> bytes | None:
    return _decode_aligned(run.removesuffix("~").removesuffix("<"), base64.a85decode)


def _decode_aligned(run: str, decode: Callable[[str], bytes]) -> bytes | None:
    """Decode a run of groups of five; text before it may look like a part of it."""
    for skipped in range(5):
        try:
            if readable(decode(run[skipped : skipped + 10])):
                return decode(run[skipped:])
        except ValueError:
            continue
    return None


def _from_hex(run: str) -> bytes | None:
    try:
        return bytes.fromhex(re.sub(r"0x|[ :,;-]", "", run))
    except ValueError:
        return None


def _from_numbers(run: str) -> str | None:
    codes = re.findall(r"\d+", run)
    for base in (10, 8):
        try:
            numbers = [int(code, base) for code in codes]
        except ValueError:
            return None
        if all(9 <= number < 127 for number in numbers):
            return "".join(map(chr, numbers))
    return None


def _from_bits(run: str) -> bytes:
    digits = re.sub("[ ,]", "", run)
    return bytes(int(digits[at : at + 8], 2) for at in range(0, len(digits), 8))


def _from_escapes(run: str) -> str:
    return unquote(_ESCAPE.sub(_plain, run))


def _plain(match: re.Match[str]) -> str:
    """A byte in percent encoding, or a character."""
    kind, digits = match.lastindex or 0, match[match.lastindex or 0]
    if kind in _HEX_BYTE:
        return "%" + digits
    code = int(digits, 16 if kind in _HEX_CODE else 10 if kind == _DECIMAL else 8)
    return f"%{code:02x}" if code < 128 else chr(code) if code < 0x110000 else match[0]


def _has(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


def _may_be_in_pieces(text: str) -> bool:
    """Return whether the mix of letters, digits and capitals allows base64 in pieces."""
    if text.encode("ascii", "replace").translate(_SHAPE).count(b"aA") < 2:
        return False
    return any(map(text.__contains__, _PACKED)) or _FIRST_GROUPS.search(text) is not None


def _may_be_hex(text: str) -> bool:
    """Whether so many hexadecimal digits follow each other, apart from what may stand between them."""
    return _DIGITS in text.encode("ascii", "replace").translate(_HEX_DIGITS, b" ,:;-x")


def _may_be_numbers(text: str) -> bool:
    return sum(map(text.count, string.digits)) >= _LEAST_DIGITS or not text.isascii()


def _may_be_bits(text: str) -> bool:
    return "00" in text or "11" in text or "0101" in text


def _escapes(name: str, mark: str, escape: str) -> Encoding:
    pattern = re.compile(rf"(?:{escape})(?:{_NEAR}(?:{escape}))*+{_NEAR}")
    return Encoding(name, lambda text: mark in text, pattern, _from_escapes, True, re.compile(escape))


def _encodings() -> Iterator[Encoding]:
    yield Encoding("base64", _has(r"[A-Za-z0-9+/_-]{12}"), re.compile(_BASE64), _from_base64)
    yield Encoding("base64 in pieces", _may_be_in_pieces, re.compile(_PIECES), _from_pieces, True)
    yield Encoding("base32", _has(r"[A-Z2-7]{16}|[a-z2-7]{16}"), re.compile(_BASE32), _from_base32)
    yield Encoding("base85", _has(r"\S{20}"), re.compile(_BASE85), partial(_decode_aligned, decode=base64.b85decode))
    yield Encoding("ascii85", _has(r"\S{20}"), re.compile(_ASCII85), _from_ascii85)
    yield Encoding("hexadecimal", _may_be_hex, re.compile(_HEX), _from_hex, True)
    yield _escapes(
        "escapes",
        "\\",
        r"\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\u\{[0-9a-fA-F]{1,6}\}|\\U[0-9a-fA-F]{8}|"
        r"\\[0-3][0-7]{2}",
    )
    yield _escapes("character references", "&#", r"&#x[0-9a-fA-F]{1,6};?|&#\d{1,7};?")
    yield _escapes("percent encoding", "%", r"%[0-9a-fA-F]{2}|%u[0-9a-fA-F]{4}")
    yield _escapes("quoted-printable", "=", r"=[0-9A-F]{2}")
    yield _escapes("code points", "U+", r"U\+[0-9a-fA-F]{4,6}[ ,]{0,2}")
    yield Encoding("character codes", _may_be_numbers, re.compile(_NUMBERS), _from_numbers, True)
    yield Encoding("bits", _may_be_bits, re.compile(_BITS), _from_bits, True)


ENCODINGS = tuple(_encodings())


def find_ciphers(text: str) -> list[tuple[str, Decode]]:
    """Name and decoder of each cipher in which some words of the text say something."""
    words = text.lower().split()
    if _WORDS.isdisjoint(words):
        return []
    found = Counter[str]()
    for word in _WORDS.intersection(words):
        for name, weight in _BETRAYING[word]:
            found[name] += weight
    return [(name, decode) for name, decode in _CIPHERS if found[name] >= _TOGETHER]


def _build_substitution(alphabet: str) -> Decode:
    table = str.maketrans(string.ascii_letters, alphabet + alphabet.upper())
    return lambda text: text.translate(table)


def _ciphers() -> Iterator[tuple[str, Decode]]:
    for by in range(1, len(string.ascii_lowercase)):
        moved = _build_substitution(string.ascii_lowercase[by:] + string.ascii_lowercase[:by])
        yield "rot13" if by == 13 else f"letters moved by {by}", moved
    yield "a mirrored alphabet", _build_substitution(string.ascii_lowercase[::-1])
    yield "reversed writing", lambda text: text[::-1]
    yield "reversed words", lambda text: " ".join(word[::-1] for word in text.split())


_CIPHERS = tuple(_ciphers())


def _index_cipher_words() -> dict[str, list[tuple[str, int]]]:
    """Words that betray a cipher, with the cipher and how surely."""
    words: dict[str, list[tuple[str, int]]] = {}
    for place, (name, _) in enumerate(_CIPHERS):
        moves = len(string.ascii_lowercase) - 1
        write = _CIPHERS[moves - 1 - place][1] if place < moves else _CIPHERS[place][1]
        for word in (*_COMMON, *_TELLING):
            words.setdefault(write(word), []).append((name, _TOGETHER if word in _TELLING else 1))
    return words


_BETRAYING = _index_cipher_words()
_WORDS = frozenset(_BETRAYING)
