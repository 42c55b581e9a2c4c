"""A tool's arguments as a person types them: `key=value`, each value read as its schema asks for."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit, urlunsplit

from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.desktop.http.address import split_header

_OF_ADDRESSES = "!\"$%&'()*+,/:;<=>?@[\\]^`{|}~"
"""Stand for themselves, as everything printable in ASCII does."""
_REFERENCES_DEEP = 8
"""A chain of references longer than this is a circle."""
_EXPECTED = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "a JSON array",
    "object": "a JSON object",
}


def parse_pairs(words: Iterable[str]) -> dict[str, str]:
    """`key=value` words as a mapping; the value begins after the first `=`.

    Raises:
        UsageError: A word is not of that form, or a key comes twice.
    """
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"{word!r} is not an argument.", hint="Write arguments as key=value, or use --input-json.")
        if key in pairs:
            raise UsageError(
                f"The argument {key!r} is given twice.", hint="""Write several values as JSON: key='["a", "b"]'."""
            )
        pairs[key] = value
    return pairs


def parse_headers(written: Iterable[str]) -> dict[str, str]:
    """`NAME: VALUE` words as a mapping.

    Raises:
        UsageError: A word is not of that form; it may be a token alone and is not repeated.
    """
    headers: dict[str, str] = {}
    for number, word in enumerate(written, 1):
        if (header := split_header(word)) is None:
            raise UsageError(f"--header number {number} is not a header.", hint="Write it as 'NAME: VALUE'.")
        headers[header[0]] = header[1]
    return headers


def parse_address(url: str) -> str:
    """A gateway's address in ASCII, as a request names it.

    Raises:
        UsageError: It is no http or https address, or holds a password, and is not repeated then.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port  # both are checked only when they are asked for
        name = (host or "").encode("idna").decode()
    except ValueError:
        host = None
    if "@" in url.partition("?")[0]:
        raise UsageError("The address holds a user name or password.", hint="Leave it out, and give a header instead.")
    if not host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise UsageError(f"{url.partition('?')[0]!r} is not an address.", hint="Write it as http://HOST:PORT/mcp.")
    place = f"[{name}]" if ":" in name else name
    path, query = (quote(text, safe=_OF_ADDRESSES) for text in (parts.path, parts.query))
    return urlunsplit((parts.scheme, place if port is None else f"{place}:{port}", path, query, ""))


def parse_json_object(text: str) -> dict[str, Any]:
    """The JSON object in `text`.

    Raises:
        UsageError: It is something else.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise UsageError(f"--input-json is not JSON: {exc}.", hint="""Write it as '{"key": "value"}'.""") from exc
    if not isinstance(value, dict):
        raise UsageError("--input-json is not a JSON object.", hint="""Write it as '{"key": "value"}'.""")
    return value


def coerce(pairs: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the types that the input schema asks for; what it says nothing about stays text.

    Raises:
        UsageError: A value cannot be read as any of the types its parameter takes.
    """
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return {key: _read(key, text, _types(known.get(key), schema)) for key, text in pairs.items()}


def _read(key: str, text: str, types: frozenset[str]) -> Any:
    if not types or types == {"string"}:
        return text
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        value = text
    if not isinstance(value, str) and _fits(value, types):
        return value
    if text.lower() in ("true", "false") and "boolean" in types:
        return text.lower() == "true"
    if "string" in types:
        return text
    expected = " or ".join(_EXPECTED[name] for name in sorted(types) if name in _EXPECTED)
    raise UsageError(f"{key} is {text[:80]!r}.", hint=f"Expected {expected}.")


def _fits(value: Any, types: frozenset[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, int):
        return bool(types & {"integer", "number"})
    if isinstance(value, float):
        return "number" in types or ("integer" in types and value.is_integer())
    if value is None:
        return "null" in types
    return ("array" if isinstance(value, list) else "object") in types


def _types(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """Every JSON type that the schema lets through, as far as it says so."""
    if not isinstance(schema, Mapping) or depth > _REFERENCES_DEEP:
        return frozenset()
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(one for one in kind if isinstance(one, str))
    if isinstance(reference := schema.get("$ref"), str):
        return _types(_resolve_reference(reference, root), root, depth + 1)
    choices: list[Any] = next(
        (schema[key] for key in ("anyOf", "oneOf", "allOf") if isinstance(schema.get(key), list)), []
    )
    found: frozenset[str] = frozenset()
    for choice in choices:
        found |= _types(choice, root, depth + 1)
    return found


def _resolve_reference(reference: str, root: Mapping[str, Any]) -> Any:
    """Resolve a reference within the document; None if it leads elsewhere."""
    place: Any = root
    if not reference.startswith("#/"):
        return None
    for step in reference[2:].split("/"):
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, Mapping) else None
    return place


def _refuse_constant(constant: str) -> NoReturn:
    """NaN and Infinity are no JSON, although the standard library reads them."""
    raise ValueError(f"{constant} is not JSON")
