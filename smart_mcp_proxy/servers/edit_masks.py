"""Masks for the secrets of a server's entry, and their restoration after an edit."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.servers.edit import is_same

MASK = "***"

_REFERENCE = r"\$\{[^}]*\}"
_REFERENCES = rf"(?i)(?:(?:Bearer|Basic|Token)\s+)?(?:{_REFERENCE})+"
"""A value that only refers to secrets shows none."""
_DEFAULT = r"(\$\{[^}]*?:-)[^}]+\}"
_HIDDEN_OBJECTS = frozenset({"env", "headers"})
_PLAIN_VARIABLES = frozenset(
    {
        *("TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "TERM"),
        *("PATH", "NODE_ENV", "LOG_LEVEL", "LOGLEVEL", "NO_COLOR", "FORCE_COLOR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
        *("XDG_DATA_HOME", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONIOENCODING", "UV_CACHE_DIR", "UV_PYTHON"),
        *("npm_config_cache", "PORT", "HOST", "DEBUG"),
    }
)
_PLAIN_VALUE = r"[\w.,:+@~/ -]*"
_PLAIN_CHARS = 4_096
_PLACE_VARIABLE = r"(?i)(?:^|_)(?:PATH|DIR|DIRECTORY|FOLDER|ROOT|FILE)\Z"
_PLACE = r"(?:~?/|[A-Za-z]:[\\/])[\w.,:+@~/\\ -]*"
_SECRET_WORDS = (
    r"(?i)token|secret|passw|pwd|credential|auth|cookie|signature|(?:^|[-_.])(?:api|access|private)?[-_]?key"
)
"""In the name of a key or of a program's option."""
_PUBLIC_NAMES = frozenset(
    {"oauth", "authorization_endpoint", "token_endpoint", "token_endpoint_auth_method", "idp_token_endpoint"}
    | {"token_url", "issuer_token_url", "subject_token_type"}
)
"""They sound like secrets and are none; what is inside the first is looked at by itself."""
_OPTION = r"(?s)(-{1,2}[^=\s]+|[A-Za-z_][A-Za-z0-9_]*)=(.*)"
_HEADER_OPTIONS = frozenset({"-H", "--header"})
_USER_OPTIONS = frozenset({"-u", "--user"})
"""Followed by `NAME:PASSWORD`; without a colon it is a user's name, or the script after Python's `-u`."""
_SECRET_NAME = (
    r"(?<![\w.-])(?=[\w.-]*?(?:token|secret|passw|pwd|credential|auth|cookie|signature)|[\w.-]*key(?![\w.-]))[\w.-]++"
)
"""Never tried twice at the same place: texts may be long, and made to be slow."""
_NEXT_NAME = r"""[;,]\s*["']?[\w.-]+(?: [\w.-]+){0,2}["']?\s?[=:]"""
_NAMED_VALUE = rf"""(?is)({_SECRET_NAME}["']?\s?(?:=|:(?!//))\s?["']?)(.*?)(?={_NEXT_NAME}|\Z)"""
"""`NAME: value` or `NAME=value` inside a text, as in headers and connection strings, up to the next name."""
_NAMED_IN_URL = rf"(?i)([;,]{_SECRET_NAME}=)([^;?#]+)"
_SCHEMED_VALUE = r"(?i)\b((?:Bearer|Basic)\s+)(\S+)"
_HEADER = r"(?s)([^:]*:\s*)(.*)"
_BARE_SECRET = r"(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[a-z]|AKIA|AIza|eyJ)[-_A-Za-z0-9.]{12,}"
"""Beginnings of the tokens of well-known services."""
_URL = r"[A-Za-z][A-Za-z0-9+.-]{0,30}://\S+"  # bounded, so that its time grows with the text alone
_OPAQUE_CHARS = 20
"""A part of an address that is as long and mixes letters with digits is taken for a token: some services hand out
addresses that are their own password."""


def mask_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with `***` in the place of every secret.

    Secrets are values of env and headers, credentials in addresses and arguments, and whatever has the name of one.
    References such as `${TOKEN}` stay readable.
    """
    return {key: _mask_member(key, value) for key, value in entry.items()}


def unmask_entry(new: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with the stored secrets where it carries their masks.

    Raises:
        RequestError: It carries a mask where nothing is stored that looks like it, or where the value would be shown.
    """
    filled: dict[str, Any] = _fill(new, stored, mask_entry(stored), "")
    _require_hidden(new, mask_entry(filled), "")
    return filled


def extract_masked_secrets(value: Any, shown: Any) -> Iterator[str]:
    """The secrets of an entry, or of a part of it: what stands where `mask_entry` shows masks."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from extract_masked_secrets(inner, shown[key])
    elif isinstance(value, list):
        for inner, seen in zip(value, shown, strict=True):
            yield from extract_masked_secrets(inner, seen)
    elif isinstance(value, str) and MASK in shown:
        pattern = "(.*?)".join(map(re.escape, shown.split(MASK)))
        found = re.fullmatch(pattern, value, re.DOTALL)
        yield from (value,) if found is None else found.groups()


def _mask_member(key: str, value: Any, *, is_secret: bool = False) -> Any:
    is_secret = (
        is_secret or key in _HIDDEN_OBJECTS or (key not in _PUBLIC_NAMES and bool(re.search(_SECRET_WORDS, key)))
    )
    if isinstance(value, Mapping):
        return {
            name: inner if key == "env" and is_plain(name, inner) else _mask_member(name, inner, is_secret=is_secret)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return _mask_words(value) if not is_secret else [_mask_member(key, one, is_secret=True) for one in value]
    if isinstance(value, str):
        return _mask_value(value) if is_secret else _mask_text(value)
    return MASK if is_secret and value is not None and not isinstance(value, bool) else value


def is_plain(name: str, value: Any) -> bool:
    """Whether a variable's value is shown: that of a time zone, a folder or a log level is no secret.

    Args:
        name: Of the variable.
        value: Its value; one that looks like a secret, or holds one, is none.
    """
    if not isinstance(value, str) or len(value) > _PLAIN_CHARS or "${" in value or _mask_text(value) != value:
        return False
    if name in _PLAIN_VARIABLES:
        return re.fullmatch(_PLAIN_VALUE, value) is not None
    is_place = re.search(_PLACE_VARIABLE, name) is not None and not re.search(_SECRET_WORDS, name)
    return is_place and re.fullmatch(_PLACE, value) is not None and not any(map(_is_opaque, value.split("/")))


def _mask_value(value: str) -> str:
    if not value or re.fullmatch(_REFERENCES, value):
        return re.sub(_DEFAULT, rf"\1{MASK}}}", value)
    return MASK


def _mask_words(words: Sequence[Any]) -> list[Any]:
    """A program's arguments: the value of an option that takes a secret is hidden, in either spelling."""
    found: list[Any] = []
    option = ""
    for word in words:
        if isinstance(word, Mapping):
            found.append(mask_entry(word))
        elif not isinstance(word, str):
            found.append(MASK if re.search(_SECRET_WORDS, option) else word)
        else:
            found.append(_mask_word(option, word))
        option = word if _is_option(word) else ""
    return found


def _mask_word(option: str, word: str) -> str:
    """An argument that comes behind an option, or behind none."""
    if option and not word.startswith("-") and (hidden := _mask_option(option, word)) is not None:
        return hidden
    both = re.fullmatch(_OPTION, word)
    if both is None:
        return _mask_text(word)
    hidden = _mask_option(both[1], both[2])
    return f"{both[1]}={_mask_text(both[2]) if hidden is None else hidden}"


def _mask_option(option: str, value: str) -> str | None:
    """The value of a program's option; None if that option takes no secret."""
    if option in _HEADER_OPTIONS:
        header = re.fullmatch(_HEADER, value)
        return _mask_value(value) if header is None else header[1] + _mask_value(header[2])
    is_secret = re.search(_SECRET_WORDS, option) or (option in _USER_OPTIONS and ":" in value)
    return _mask_value(value) if is_secret else None


def _mask_text(text: str) -> str:
    """Mask the secrets that a text carries: by their names, in addresses, or by their look."""
    pieces, at = [], 0
    for found in re.finditer(_URL, text):
        address = re.sub(_NAMED_IN_URL, _mask_second, _mask_url(found[0]))
        pieces += [_mask_named(text[at : found.start()]), address]
        at = found.end()
    whole = "".join([*pieces, _mask_named(text[at:])])
    return re.sub(_DEFAULT, rf"\1{MASK}}}", re.sub(_BARE_SECRET, MASK, whole))


def _mask_named(text: str) -> str:
    return re.sub(_SCHEMED_VALUE, _mask_second, re.sub(_NAMED_VALUE, _mask_second, text))


def _mask_second(found: re.Match[str]) -> str:
    return found[1] + _mask_value(found[2])


def _mask_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    _, at, host = parts.netloc.rpartition("@")
    path = "/".join(MASK if _is_opaque(part) else part for part in parts.path.split("/"))
    query = "&".join(_mask_query(pair) for pair in parts.query.split("&")) if parts.query else ""
    shown = urlunsplit((parts.scheme, f"{MASK}@{host}" if at else host, path, query, _mask_value(parts.fragment)))
    return shown if MASK in shown else url  # not in other words either: what is sent back must be what is stored


def _mask_query(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{name}={_mask_value(value)}" if equals else _mask_value(pair)


def _is_opaque(part: str) -> bool:
    has_both = any(char.isdigit() for char in part) and any(char.isalpha() for char in part)
    return len(part) >= _OPAQUE_CHARS and has_both and "${" not in part


def _fill(new: Any, stored: Any, shown: Any, name: str) -> Any:
    """`new` with what `stored` holds wherever it equals what was `shown` of it."""
    if isinstance(new, Mapping):
        old = stored if isinstance(stored, Mapping) else {}
        seen = shown if isinstance(shown, Mapping) else {}
        return {
            key: _fill(value, old.get(key), seen.get(key), f"{name}.{key}".lstrip(".")) for key, value in new.items()
        }
    if isinstance(new, list):
        return _fill_list(new, stored, shown, name)
    if not isinstance(new, str) or MASK not in new:
        return new
    if new == shown:
        return stored
    raise RequestError(
        f"{name} holds the mask {MASK}, and nothing is stored there that it stands for.",
        hint="Send the whole value, or leave the field out to keep what is stored.",
    )


class _Slot(NamedTuple):
    """A stored element of an array: the option it stands behind, how it is shown, and what it is."""

    option: str
    shown: Any
    stored: Any


def _fill_list(new: Sequence[Any], stored: Any, shown: Any, name: str) -> list[Any]:
    """Replace each mask in an array by the stored element that is shown like it behind the same option.

    Its place does not count. Of several that are shown alike, all or none are there: nobody could tell which one was
    left out.
    """
    is_known = isinstance(stored, list) and isinstance(shown, list)
    slots = [*map(_Slot, _options(shown), shown, stored)] if is_known else []
    groups = [_alike(slots, option, value) for option, value in zip(_options(new), new, strict=True)]
    filled: list[Any] = []
    for place, (value, group) in enumerate(zip(new, groups, strict=True)):
        where = f"{name}[{place}]"
        if not _has_mask(value):
            filled.append(value)
        elif not group:
            slot = _counterpart(slots, new, place)
            filled.append(_fill(value, slot.stored, slot.shown, where))
        elif groups.count(group) == len(group) or all(is_same(group[0].stored, slot.stored) for slot in group):
            filled.append(group[groups[:place].count(group) % len(group)].stored)
        else:
            raise RequestError(
                f"{where} holds the mask {MASK}, and {len(group)} stored values are shown like that.",
                hint="Send the whole value, or all of them in the order in which they are stored.",
            )
    return filled


def _counterpart(slots: Sequence[_Slot], new: Sequence[Any], place: int) -> _Slot:
    """The stored element that the one at `place` was changed from; none if that is unclear."""
    slot = slots[place] if len(slots) == len(new) else None
    if slot is None or any(is_same(slot.shown, other) for other in new):
        return _Slot("", None, None)
    return slot


def _options(words: Sequence[Any]) -> list[str]:
    """The option whose value each element of an array is; empty for what says by itself what it is."""
    before = ["", *(word if _is_option(word) else "" for word in words[:-1])]
    return ["" if str(word).startswith("-") else option for option, word in zip(before, words, strict=False)]


def _is_option(word: Any) -> bool:
    return isinstance(word, str) and word.startswith("-") and "=" not in word


def _alike(slots: Sequence[_Slot], option: str, value: Any) -> list[_Slot]:
    """The stored elements that `value` may stand for: behind its option, or, if none is there, behind any."""
    same = [slot for slot in slots if is_same(slot.shown, value)]
    return [slot for slot in same if slot.option == option] or same


def _has_mask(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_mask, value.values()))
    return any(map(_has_mask, value)) if isinstance(value, list) else isinstance(value, str) and MASK in value


def _require_hidden(sent: Any, shown: Any, name: str) -> None:
    """Require every sent mask in its own place: none was moved to where its value is read."""
    if isinstance(sent, Mapping) and isinstance(shown, Mapping):
        for key, value in sent.items():
            _require_hidden(value, shown[key], f"{name}.{key}".lstrip("."))
    elif isinstance(sent, list) and isinstance(shown, list):
        for place, (value, seen) in enumerate(zip(sent, shown, strict=True)):
            _require_hidden(value, seen, f"{name}[{place}]")
    elif isinstance(sent, str) and MASK in sent and sent != shown:
        raise RequestError(
            f"{name} holds the mask {MASK}, and what it stands for would not be hidden there.",
            hint="Leave it behind the option that it belongs to, or send the whole value.",
        )
