"""Redirect target of a sign-in: one page on 127.0.0.1 while a person is waited for."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import AuthorizationCodeResult

from smart_mcp_proxy.errors import ConfigError, UpstreamAuthError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.telemetry import printable

LOGIN_TIMEOUT_S: Final = 300.0
"""Seconds that a person has, for passwords and second factors: the default of FastMCP's client."""
_HOST: Final = "127.0.0.1"
"""Not `localhost`, which may be resolved to something else. Source: RFC 8252, section 8.3"""
_PATH: Final = "/callback"
_HEAD_LIMIT: Final = 16 * 1024
_HEAD_S: Final = 5.0
_REASON_CHARS: Final = 200
_PAGE: Final = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {size}\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\n"
    "Connection: close\r\n\r\n{body}"
)


class CallbackServer:
    """Shows a person an address and waits for the redirect with the same `state`; see `Browser`.

    Anything else that comes to the port, a forged or repeated answer too, is turned away and changes nothing.

    Args:
        server: Configured name of the server, for messages.
        port: On 127.0.0.1; None for any free one.
        show: Shows the person the address.
        timeout_s: How long the person is waited for.
    """

    def __init__(
        self, server: str, port: int | None, show: Callable[[str], None], timeout_s: float = LOGIN_TIMEOUT_S
    ) -> None:
        self.redirect_uri = ""
        self._server = server
        self._port = port
        self._show = show
        self._timeout_s = timeout_s
        self._state = ""
        self._answer: asyncio.Future[dict[str, str]] | None = None
        self._listener: asyncio.Server | None = None
        self._silent: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        try:
            self._listener = await asyncio.start_server(self._serve, _HOST, self._port or 0, limit=_HEAD_LIMIT)
        except OSError as exc:
            raise ConfigError(
                f"Port {self._port} on {_HOST}, where the browser is to come back to, cannot be used: {exc.strerror}.",
                hint="Choose another 'redirect_port' under 'oauth', or leave it out.",
            ) from exc
        port = self._listener.sockets[0].getsockname()[1]
        self.redirect_uri = f"http://{_HOST}:{port}{_PATH}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._listener is not None:
            self._listener.close()
            for writer in self._silent:  # browsers open connections in advance, and Python 3.12 waits for them
                writer.transport.abort()
            await self._listener.wait_closed()

    async def ask(self, url: str, state: str) -> AuthorizationCodeResult:
        """Show `url` to the person and return the redirect with `state`.

        Raises:
            UpstreamAuthError: It was refused, or nobody came in time.
        """
        self._state = state
        self._answer = asyncio.get_running_loop().create_future()
        self._show(url)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._answer
        except TimeoutError:
            raise UpstreamAuthError(
                f"Nobody signed in to server '{self._server}' within {self._timeout_s:g} s.",
                hint=f"Try again: mcpproxy server login {shell_word(self._server)}",
            ) from None
        if "error" in answer:
            said, code = answer.get("error_description"), answer["error"]
            reason = printable(f"{said} ({code})" if said else code)[:_REASON_CHARS]
            raise UpstreamAuthError(
                f"The sign-in to server '{self._server}' was refused: {reason}", hint="Nothing was stored."
            )
        return AuthorizationCodeResult(code=answer.get("code", ""), state=state, iss=answer.get("iss"))

    def take(self, address: str) -> bool:
        """Take the address that a browser on another machine was sent to; False if it is not this sign-in's."""
        try:
            parts = urlsplit(address)
        except ValueError:
            return False
        return parts.path == _PATH and self._take(parts.query)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._silent.add(writer)
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            self._silent.discard(writer)
            writer.write(self._reply(head))
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
            pass  # whoever that was, it was not the browser
        finally:
            self._silent.discard(writer)
            writer.close()

    def _reply(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("ascii", "replace").split(" ")
        parts = urlsplit(words[1] if len(words) == 3 else "")
        if words[0] != "GET" or parts.path != _PATH:
            return _page("404 Not Found", "There is nothing here.")
        if not self._take(parts.query):
            return _page("400 Bad Request", "This answer does not belong to a sign-in that is waited for.")
        return _page("200 OK", "Thank you. Go on in the terminal; this window can be closed.")

    def _take(self, query: str) -> bool:
        given = {name: values[0] for name, values in parse_qs(query).items()}
        is_ours = secrets.compare_digest(given.get("state", "").encode(), self._state.encode())
        if self._answer is None or self._answer.done() or not is_ours or not given.keys() & {"code", "error"}:
            return False
        self._answer.set_result(given)
        return True


class PageCallback(CallbackServer):
    """The same for a person at another machine: the browser comes back to a page of the gateway.

    Args:
        server: Configured name of the server, for messages.
        redirect_uri: Address of that page.
        show: Shows the person the address.
    """

    def __init__(self, server: str, redirect_uri: str, show: Callable[[str], None]) -> None:
        super().__init__(server, None, show)
        self.redirect_uri = redirect_uri

    async def __aenter__(self) -> Self:
        return self

    def take(self, address: str) -> bool:
        """Take the address that the browser came back to; False if it is not this sign-in's."""
        return address.startswith(f"{self.redirect_uri}?") and self._take(urlsplit(address).query)


def _page(status: str, text: str) -> bytes:
    body = f"<!doctype html><title>smart-mcp-proxy</title><p>{text}</p>"
    return _PAGE.format(status=status, size=len(body.encode()), body=body).encode()
