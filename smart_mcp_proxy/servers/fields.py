"""Typed reading of an entry; errors name server and field and never repeat a value."""

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from smart_mcp_proxy.errors import ConfigError

_Kind = TypeVar("_Kind")
_KINDS: Mapping[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token. Source: RFC 9110, section 5.6.2"""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NOT_IN_URL = re.compile(r"[\x00-\x20\x7f]")


def name_type(value: object) -> str:
    """Name the type of a value of JSON, YAML or TOML for a message."""
    return _KINDS.get(type(value), "an object")


class EntryReader(msgspec.Struct, frozen=True):
    """Reader of an object of a server entry, key by key; null and absent are the same.

    Args:
        server: Whose entry it is.
        values: The object.
        prefix: Where in the entry it is, for messages: `limits.` for example.
    """

    server: str
    values: Mapping[str, Any]
    prefix: str = ""

    def text(self, key: str) -> str:
        """The text under `key`, empty if there is none."""
        return check_text(self.server, self.prefix + key, self._typed(key, str, "text") or "")

    def texts(self, key: str) -> tuple[str, ...]:
        """The list of texts under `key`; numbers and booleans in it are written out."""
        listed = self._typed(key, list, "a list of texts") or ()
        return tuple(self._render_scalar(f"{key}[{position}]", item) for position, item in enumerate(listed))

    def text_map(self, key: str) -> dict[str, str]:
        """The object of texts under `key`; numbers and booleans in it are written out."""
        return {name: self._render_scalar(f"{key}.{name}", value) for name, value in self.read_object(key).items()}

    def read_object(self, key: str) -> Mapping[str, Any]:
        """The object under `key`, empty if there is none."""
        return self._typed(key, dict, "an object") or {}

    def flag(self, key: str, *, default: bool) -> bool:
        """The boolean under `key`."""
        value = self._typed(key, bool, "true or false")
        return default if value is None else value

    def number(self, key: str) -> float | None:
        """The positive number under `key`, None if there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not (0 < value < math.inf):
            raise self.wrong(key, value, "a number above 0")
        return float(value)

    def integer(self, key: str, *, at_least: int) -> int | None:
        """The integer under `key`, None if there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
            raise self.wrong(key, value, f"an integer of at least {at_least}")
        return value

    def _typed(self, key: str, kind: type[_Kind], expected: str) -> _Kind | None:
        """The value under `key`, None if there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, kind):
            raise self.wrong(key, value, expected)
        return value

    def wrong(self, key: str, value: object, expected: str) -> ConfigError:
        """Build the error about the value under `key`; only a number is repeated."""
        shown = value if type(value) in (int, float) else name_type(value)
        return ConfigError(f"Server {self.server!r}: '{self.prefix}{key}' is {shown}.", hint=f"Expected {expected}.")

    def _render_scalar(self, key: str, value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float):
            return str(value)
        if not isinstance(value, str):
            raise self.wrong(key, value, "text")
        return check_text(self.server, self.prefix + key, value)


def check_text(server: str, where: str, text: str) -> str:
    """`text`, if a program or a request can be given it.

    Raises:
        ConfigError: It holds a NUL character or is not Unicode.
    """
    if "\0" in text:
        raise ConfigError(f"Server {server!r}: '{where}' holds a NUL character.", hint="Remove it.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"Server {server!r}: '{where}' holds half a surrogate pair.", hint="Remove it.") from None
    return text


def check_url(server: str, url: str) -> None:
    """Accepts an http or https address that holds no credentials.

    Raises:
        ConfigError: It is another one. The message does not repeat it.
    """
    if _NOT_IN_URL.search(url):
        raise ConfigError(f"Server {server!r} has a url with a space or a control character.", hint="Remove it.")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # both are checked only when they are asked for
    except ValueError:
        raise ConfigError(f"Server {server!r} has a url that cannot be read.", hint="Check host and port.") from None
    if "@" in parts.netloc:
        raise ConfigError(
            f"Server {server!r} has a user name or password in its url.",
            hint='Put it into headers, for example "Authorization": "Bearer ${env:TOKEN}".',
        )
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(
            f"Server {server!r} has a url that is not an http or https address.",
            hint='Write it like "http://localhost:8080/mcp".',
        )


def check_headers(server: str, headers: Mapping[str, str]) -> None:
    """Accepts headers that one request can carry.

    Raises:
        ConfigError: A name is not a header name, or a value holds a line break or another control character.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"Server {server!r}: {name!r} is not a header name.", hint="Correct it under headers.")
        if _CONTROL.search(value):
            raise ConfigError(f"Server {server!r}: 'headers.{name}' holds a control character.", hint="Remove it.")
