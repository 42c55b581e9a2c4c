"""Requests to an ASGI app of this process."""

from starlette.types import ASGIApp, Message, Scope


async def call_asgi_app(app: ASGIApp, scope: Scope, body: bytes) -> tuple[int, bytes]:
    """Status and body of an app's answer to a request.

    Args:
        app: Answers.
        scope: The request's head.
        body: The rest of it.
    """
    status, parts = 500, list[bytes]()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(parts)
