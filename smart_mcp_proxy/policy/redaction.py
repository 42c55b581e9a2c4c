"""Redaction for records: shapes instead of values, and no known or likely secrets."""

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2s
from typing import Any, Final, Literal

from smart_mcp_proxy.telemetry import redact

ArgumentsKept = Literal["none", "shape", "redacted", "full"]
"""none: nothing; shape: names, types and sizes; redacted: values without what looks like a secret; full: all but the
secrets that the gateway knows."""

HIDDEN: Final = "[hidden]"
NAME_LIMIT_CHARS: Final = 64
PLAIN_NAME_CHARS: Final = 18
"""A parameter's name is cut like other text; a short one cannot look like a secret and is taken as it is."""
PLAIN_ARGUMENTS: Final = 20
"""Nearly every call has fewer; of more, only some may be kept."""
TEXT_LIMIT_CHARS: Final = {"redacted": 1_000, "full": 65_536}
"""Limit on one text; a longer one is a document, and its beginning tells which."""
NODES_LIMIT: Final = {"shape": 100, "redacted": 1_000, "full": 10_000}
"""Names and values of one call; it bounds what a call may cost the log, and how long writing it down takes."""
DEPTH_LIMIT: Final = {"shape": 3, "redacted": 20, "full": 100}
INTEGER_BITS: Final = 63
"""Longer integers are kept as text: few readers of JSON take them."""
LOOKED_AT: Final = 4
"""A text is searched for secrets up to so many times the length that is kept of it."""

_SECRET_NAME: Final = re.compile(
    r"pass(?:word|wd|phrase|code)?$|^pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential|cookie"
    r"|authori[sz]ation|^auth$|bearer|signature|^otp$|^pin$",
    re.IGNORECASE,
)
_SECRET_TEXT: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^\s/@]+(?=@)"  # user name and password in an address
    r"|(?i:(?<=bearer )|(?<=basic ))[\w.+/=~-]{8,}"
    r"|(?i:pass(?:word|wd)?|secret|token|api[-_]?key)\s*[:=]\s*\S+"
    r"|\b(?:sk|pk|rk)[-_][\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bxox[abprse]-[\w-]{10,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bmcpp_[\w-]{16,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|(?<![\w+/=-])(?=[\w+/-]*\d)(?=[\w+/-]*[A-Za-z])[\w+/-]{24,}={0,2}",  # long, letters and digits
    re.DOTALL,
)
"""Forms of secrets by their issuers' prefixes, and what looks random. It hides too much rather than too little."""

_UNSUSPECTED_CHARS: Final = 200
"""In a longer text there is a long word nearly always, and looking for one first gains nothing."""
_UNSUSPECTED_WORD_CHARS: Final = 14
"""The shortest secret that is one word and needs no sign has 15 characters: `xoxb-` and ten more."""
_SIGNS: Final = ("=", ":", "-----", "bearer ", "basic ")
"""Each form of a secret has one of these, in whatever case, or a long word."""


def mask_text(text: str, limit_chars: int) -> str:
    """The beginning of `text` without the secrets that the gateway knows, and without what looks like one."""
    text = redact(text)
    looked_at = limit_chars * LOOKED_AT
    if len(text) > looked_at:
        # Without its last word: what would give it away as a secret may be cut off.
        text = re.sub(r"\S{1,256}\Z", "", text[:looked_at])
    if not _is_unsuspected(text):
        text = _SECRET_TEXT.sub(HIDDEN, text)
    return _writable(text[:limit_chars])


def _is_unsuspected(text: str) -> bool:
    """Return whether a short text certainly has no secret's form, to skip the search for each."""
    if len(text) > _UNSUSPECTED_CHARS or not text.isascii():  # other letters may be the same in another case
        return False
    lowered = text.lower()
    for sign in _SIGNS:  # not any(): the generator would cost as much as all the looks
        if sign in lowered:
            return False
    return max(map(len, text.split()), default=0) <= _UNSUSPECTED_WORD_CHARS


def redact_arguments(arguments: Mapping[str, Any], kept: ArgumentsKept) -> Any:
    """The part of a call's arguments that the policy keeps, as JSON values; None for nothing.

    Args:
        arguments: By parameter name, of whatever size and depth.
        kept: The policy.
    """
    if kept == "none":
        return None
    plain = _plain_shapes(arguments) if kept == "shape" else None
    return plain if plain is not None else _Keeper(kept).value(dict(arguments), DEPTH_LIMIT[kept])


@lru_cache(1024)
def short_digest(text: str) -> str:
    """8 hex digits that tell sessions apart; who reads them cannot use the session."""
    return blake2s(text.encode("utf-8", "replace"), digest_size=4).hexdigest()


def _plain_shapes(arguments: Mapping[str, Any]) -> dict[str, str] | None:
    """Shapes of a few arguments without objects, the usual case; None for others."""
    if len(arguments) > PLAIN_ARGUMENTS:
        return None
    shapes = {}
    for name, value in arguments.items():
        if type(value) is dict or len(name) > PLAIN_NAME_CHARS or not name.isascii():
            return None
        shapes[name] = _shape(value)
    names = "\n".join(shapes)
    return shapes if redact(names) == names else None


class _Keeper:
    """Walks through the arguments of one call.

    Args:
        kept: The policy, not none.
    """

    def __init__(self, kept: ArgumentsKept) -> None:
        self._kept = kept
        self._nodes_left = NODES_LIMIT[kept]

    def value(self, value: Any, depth: int) -> Any:
        """The kept form of one value."""
        if isinstance(value, dict) and depth:
            return self._redact_mapping(value, depth)
        if self._kept == "shape" or (not depth and isinstance(value, dict | list)):
            return _shape(value)
        if isinstance(value, list):
            return self._list(value, depth)
        if isinstance(value, str):
            return self._text(value)
        text = str(value)
        if redact(text) != text:
            return HIDDEN
        return text if isinstance(value, int) and value.bit_length() > INTEGER_BITS else value

    def _redact_mapping(self, mapping: dict[str, Any], depth: int) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        names = "\n".join(mapping)
        has_secrets = redact(names) != names  # once for all of them: this is on the path of every call
        for name, value in mapping.items():
            if not self._nodes_left:
                kept["..."] = f"{len(mapping) - len(kept)} more"
                break
            self._nodes_left -= 1
            is_hidden = self._kept == "redacted" and _SECRET_NAME.search(name) is not None
            is_plain = not has_secrets and len(name) <= PLAIN_NAME_CHARS and name.isascii()
            shown = name if is_plain else mask_text(name, NAME_LIMIT_CHARS)
            kept[shown] = HIDDEN if is_hidden else self.value(value, depth - 1)
        return kept

    def _list(self, values: list[Any], depth: int) -> list[Any]:
        kept: list[Any] = []
        for value in values:
            if not self._nodes_left:
                kept.append(f"... {len(values) - len(kept)} more")
                break
            self._nodes_left -= 1
            kept.append(self.value(value, depth - 1))
        return kept

    def _text(self, text: str) -> str:
        limit = TEXT_LIMIT_CHARS[self._kept]
        kept = mask_text(text, limit) if self._kept == "redacted" else _writable(redact(text)[:limit])
        return kept if len(text) <= limit else f"{kept}... ({len(text)} characters)"


def _writable(text: str) -> str:
    """`text` with a question mark for what UTF-8 cannot hold: callers choose it freely."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _shape(value: Any) -> str:
    """`string(12)`, `array(3)`, `integer`: type and size in JSON's words."""
    word = _WORDS.get(type(value), "string")
    return f"{word}({len(value)})" if isinstance(value, _SIZED) else word


_SIZED: Final = (str, list, dict)
_WORDS: Final = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
