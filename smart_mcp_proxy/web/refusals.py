"""What a client that is not let in is told: in JSON, why, and what to do about it."""

import msgspec
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_mcp_proxy.errors import ProxyError, RefusedError

__all__ = ["Refusals"]

INVALID_REQUEST = -32600
"""Source: JSON-RPC 2.0; a refusal has no request id, as the MCP specification has it for a forbidden Origin."""
SHOWN_CHARS = 100
"""Of a header's value."""


class Refusals:
    """An ASGI app whose 401, 403 and 421 say what is wrong; the library's own answers are a word or two.

    Args:
        app: Answers, and refuses with an empty or a bare body.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        is_refused = False

        async def word(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and (error := _refusal(scope, message["status"])) is not None:
                is_refused = True
                await _refuse(error, message["status"], _challenge(scope, message["status"]), send)
            elif not is_refused:
                await send(message)

        await self._app(scope, receive, word)


def _refusal(scope: Scope, status: int) -> ProxyError | None:
    """Why a request is answered with this status; None if the status is no refusal of the door."""
    if status not in (401, 403, 421):
        return None
    headers = Headers(scope=scope)
    if status == 421:
        return RefusedError(
            f"This gateway does not answer to the Host {headers.get('host', '')[:SHOWN_CHARS]!r}.",
            hint="Use 127.0.0.1 or localhost, or have the name added to MCPPROXY_ALLOWED_HOSTS.",
            code="host_not_allowed",
        )
    if status == 403:
        return RefusedError(
            f"Requests from pages of the Origin {headers.get('origin', '')[:SHOWN_CHARS]!r} are not let in.",
            hint="A page may come from 127.0.0.1, localhost, or the name in its request's Host header that "
            "MCPPROXY_ALLOWED_HOSTS has.",
            code="origin_not_allowed",
        )
    has_sent = "authorization" in headers
    return RefusedError(
        "The token sent is not this gateway's." if has_sent else "This gateway asks for a token, and none was sent.",
        hint="Send the header 'Authorization: Bearer TOKEN' with the value of the gateway's MCPPROXY_AUTH_TOKEN.",
        code="unauthorized",
    )


def _challenge(scope: Scope, status: int) -> list[tuple[bytes, bytes]]:
    """The header that belongs to a 401.

    Not with the library's own words: they send clients to look for a sign-in that there is not.
    Source: RFC 6750, section 3.
    """
    if status != 401:
        return []
    words = b'Bearer error="invalid_token"' if "authorization" in Headers(scope=scope) else b"Bearer"
    return [(b"www-authenticate", words)]


async def _refuse(error: ProxyError, status: int, challenge: list[tuple[bytes, bytes]], send: Send) -> None:
    failure = {"code": INVALID_REQUEST, "message": str(error), "data": error.to_dict()}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": failure})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *challenge]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
