"""Answers of the sign-in's pages as the standards have them, where the library's own differ."""

from typing import Final

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["StandardAnswers"]

PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; base-uri 'none'; frame-ancestors 'none'"
)
"""As the library has it in the pages themselves, and no frame around them, which only a header can say.

Not `form-action`: browsers apply it to the redirects after the form that consents, which end at the client's address.
"""


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


def _refuses_grant(body: bytes) -> bool:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    return isinstance(answer, dict) and answer.get("error") == "invalid_grant"
