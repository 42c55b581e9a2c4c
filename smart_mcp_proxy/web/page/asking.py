"""Requests to an ASGI app of this process."""

from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message, Scope


def build_scope(
    method: str, path: str, address: str, body: bytes, kind: str = "application/json", query: str = ""
) -> Scope:
    """The head of a request.

    Args:
        method: Of HTTP.
        path: As it is written in an address, without a query.
        address: Under which the app is asked.
        body: The rest of the request.
        kind: Content type of the body.
        query: As it is written in an address.
    """
    server = urlsplit(address)
    headers = [(b"host", server.netloc.encode())]
    if body:
        headers += [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": server.scheme,
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": headers,
        "client": None,
        "server": (server.hostname, 80),
    }


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
