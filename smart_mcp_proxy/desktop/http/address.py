"""Address of a gateway, and what every request to it begins with."""

import binascii
import os
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from smart_mcp_proxy.desktop.lines import get_param
from smart_mcp_proxy.desktop.places import PREFIX

_URL: Final = re.compile(
    r"(https?)://((\[[0-9a-f:.]+\]|[\w.-]+)(?::([0-9]{1,5}))?)(/[^?#\s]*)?(\?[^#\s]*)?(?:#.*)?",
    re.ASCII | re.IGNORECASE,
)
"""Without a user and its password; the path has neither query nor fragment."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
"""In `_meta` of every request of the modern era."""
_NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class HttpAddress(NamedTuple):
    """Place of a gateway.

    Attributes:
        is_tls: Whether it is spoken to through TLS.
        host: Name or number.
        port: Of TCP.
        target: Path and query, as a request names them.
        shown: What people are told; a query may be a key.
        headers: Sent with every request, names in lower case.
        place: Host and port that are connected to: its own, or a proxy's.
        tunnel: Sent there before anything else; empty without a proxy that is asked for one.
    """

    is_tls: bool
    host: str
    port: int
    target: str
    shown: str
    headers: dict[str, str]
    place: tuple[str, int]
    tunnel: bytes = b""

    @property
    def is_on_this_machine(self) -> bool:
        """Whether no proxy is asked for it, and the gateway's token may be sent to it."""
        return self.host in _LOOPBACK

    def go_through(self, host: str, port: int, authorization: str) -> "HttpAddress":
        """The same by way of an HTTP proxy, which may ask for authorization."""
        secret = {"proxy-authorization": authorization} if authorization else {}
        origin = f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"
        if not self.is_tls:
            target = f"http://{origin}{self.target}"
            return self._replace(place=(host, port), target=target, headers=self.headers | secret)
        asked = self._replace(target=origin, headers={"host": origin} | secret)
        return self._replace(place=(host, port), tunnel=asked.build_head("CONNECT", {}, None))

    def build_head(self, verb: str, headers: Mapping[str, str], length: int | None) -> bytes:
        """Everything of a request before its body."""
        fields = {**self.headers, **headers}
        if length is not None:
            fields |= {"content-type": "application/json", "content-length": str(length)}
        lines = [f"{verb} {self.target} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items()), "", ""]
        return "\r\n".join(lines).encode(errors="surrogateescape")


def read_address(url: str, headers: Mapping[str, str]) -> HttpAddress:
    """The address in a URL of http or https, in ASCII.

    Raises:
        ValueError: It is none.
    """
    if (parts := _URL.fullmatch(url)) is None:
        raise ValueError("It is no address of a gateway.")
    scheme, netloc, host, port, path, query = parts.groups()
    fixed = {"host": netloc, "user-agent": "mcpproxy"} | {name.lower(): text for name, text in headers.items()}
    fixed["accept"] = "application/json, text/event-stream"
    is_tls = scheme.lower() == "https"
    target = (path or "/") + (query or "")
    number = int(port) if port else 443 if is_tls else 80
    name = host.strip("[]").lower()
    return HttpAddress(is_tls, name, number, target, url.partition("?")[0], fixed, (name, number))


def split_header(word: str) -> tuple[str, str] | None:
    """Name and value of `NAME: VALUE`; None where it is not of that form."""
    name, colon, text = word.partition(":")
    return (name.strip(), text.strip()) if colon and name.strip() else None


def takes_token(address: HttpAddress) -> bool:
    """Whether the gateway's token is for this address: on its own machine, and where no other is given."""
    return address.is_on_this_machine and "authorization" not in address.headers


def read_token(environ: Mapping[str, str]) -> str | None:
    """The gateway's token as the settings read it; None without one.

    Raises:
        ValueError: The settings do not accept it, and say why.
        OSError: Its file cannot be read.
    """
    token, file = environ.get(f"{PREFIX}AUTH_TOKEN"), environ.get(f"{PREFIX}AUTH_TOKEN_FILE")
    if token and file:
        raise ValueError("Both are set.")
    if file:
        with open(os.path.expanduser(file), encoding="utf-8") as text:
            token = text.read().strip()
    if token and (" " in token or not token.isascii() or not token.isprintable()):
        raise ValueError("It is no token.")
    return token or None


def build_modern_headers(message: dict[str, Any]) -> dict[str, str]:
    """The headers that a message of the modern era must carry; none for one of a session."""
    meta, method = get_param(message, "_meta"), message.get("method")
    version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
    if not isinstance(version, str) or not isinstance(method, str):
        return {}
    headers = {"mcp-protocol-version": _encode(version), "mcp-method": _encode(method)}
    name = get_param(message, _NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = _encode(name)
    return headers


def _encode(text: str) -> str:
    """Encode what is no plain word as the protocol has it.

    Source: https://modelcontextprotocol.io/specification/draft/basic/transports
    """
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?"):
        return text
    return f"=?base64?{binascii.b2a_base64(text.encode(errors='surrogatepass'), newline=False).decode()}?="
