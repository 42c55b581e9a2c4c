"""Answers of the sign-in's pages as the standards have them, where the library's own differ."""

import math
from typing import Final

import msgspec
from fastmcp.server.auth.oauth_proxy.ui import create_error_html
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_mcp_proxy.errors import ProxyError, UnverifiedError
from smart_mcp_proxy.web.auth.signed_tokens import AGAIN_S

PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; base-uri 'none'; frame-ancestors 'none'"
)
"""As the library has it in the pages themselves, and no frame around them, which only a header can say.

Not `form-action`: browsers apply it to the redirects after the form that consents, which end at the client's address.
"""
_FOR_PROGRAMS: Final = frozenset({"/register", "/token", "/revoke"})
"""Paths that programs ask; the others are opened in a browser."""


class StandardAnswers:
    """ASGI app that adds a content security policy, and refuses bad grants with 400.

    The library answers `invalid_grant` with 401, which is for a client that could not be authenticated.

    Args:
        app: Serves the pages.

    Source: RFC 6749, section 5.2; RFC 7636, section 4.6.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        held: Message | None = None

        async def correct(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("content-type", "").startswith("text/html"):
                    headers["content-security-policy"] = PAGE_POLICY
                if scope["path"] == "/token" and message["status"] == 401:
                    held = message
                    return
            elif held is not None:
                # The answer of the token endpoint is one message.
                start, held = held, None
                await send({**start, "status": 400} if _refuses_grant(message["body"]) else start)
            await send(message)

        await self._app(scope, receive, correct)


async def answer_unavailable(request: Request, exc: Exception) -> Response:
    """The answer while the store fails: a client that takes it for a refusal would throw its sign-in away.

    Source: RFC 6749, section 4.1.2.1; RFC 9110, section 15.6.4.
    """
    known_s = exc.retry_after_s if isinstance(exc, ProxyError) else None
    wait_s = math.ceil(known_s or AGAIN_S)
    headers = {"retry-after": str(wait_s), "cache-control": "no-store"}
    if request.scope["path"] in _FOR_PROGRAMS:
        reason = exc.message if isinstance(exc, UnverifiedError) else "The gateway's database does not answer."
        told = f"{reason} Try again in {wait_s} s: a new sign-in would not be kept."
        return JSONResponse({"error": "temporarily_unavailable", "error_description": told}, 503, headers)
    page = create_error_html(
        error_title="No sign-in at the moment",
        error_message=f"The gateway's database does not answer. Wait {wait_s} seconds and reload this page; "
        "if that does not help, begin the sign-in again.",
    )
    return HTMLResponse(page, 503, headers)


def _refuses_grant(body: bytes) -> bool:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    return isinstance(answer, dict) and answer.get("error") == "invalid_grant"
