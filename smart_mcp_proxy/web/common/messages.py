"""HTTP messages of broker and REST: reading of bodies, sending of answers and errors."""

import math
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from smart_mcp_proxy.errors import ProxyError, RefusedError, RequestError

JSON_TYPE: Final = "application/json"
BODY_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Limit that the SDK has at /mcp; the broker is no way around it."""
_SHOWN_CHARS: Final = 100


class TooLargeError(RequestError):
    """A body is longer than a message may be."""

    code = "too_large"
    http_status = 413


class UnsupportedTypeError(RequestError):
    """The body is not declared to be JSON: a page in a browser can send anything else without being asked."""

    code = "unsupported_media_type"
    http_status = 415


class UnauthorizedError(RefusedError):
    """The request does not carry the token that it needs."""

    code = "unauthorized"
    http_status = 401


class NotServedError(RequestError):
    """Nothing is served at this path."""

    code = "not_found"
    http_status = 404


class BadMethodError(RequestError):
    """The path does not take this HTTP method."""

    code = "http_method_not_allowed"
    http_status = 405


def not_served(request: Request, exc: HTTPException) -> ProxyError:
    """Why a path, or an HTTP method at a path, is not answered."""
    kind = NotServedError if exc.status_code == 404 else BadMethodError
    path = request.url.path
    # Not redirected: on its way to another address a request may lose its body or its token.
    hint = "Leave out the slash at its end." if path.endswith("/") else "See /openapi.json."
    if path == "/":
        hint = "MCP is served at /mcp."
    return kind(f"{request.method} {path[:_SHOWN_CHARS]} is not served.", hint=hint)


def require_json(request: Request) -> None:
    """Passes if the body is declared to be JSON.

    Raises:
        UnsupportedTypeError: It is not.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise UnsupportedTypeError(f"The body is {kind[:40] or 'of no type'!r}.", hint=f"Send it as {JSON_TYPE}.")


async def read_body(request: Request, limit_bytes: int, hint: str) -> bytes:
    """The whole body.

    Args:
        request: Its body has not been read yet.
        limit_bytes: Longest body that is taken.
        hint: What to do about a longer one.

    Raises:
        TooLargeError: It is longer.
        ClientDisconnect: The client left before it was whole.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit_bytes:
            raise TooLargeError(f"The body is longer than {limit_bytes:,} bytes.", hint=hint)
    return bytes(body)


def json_response(value: Any, error: ProxyError | None = None, *, status: int | None = None) -> Response:
    """An answer that is stored nowhere on its way.

    Args:
        value: JSON text as it is, everything else to be encoded.
        error: What went wrong, for status and headers.
        status: Where it is not the error's own; without an error 200.
    """
    headers = {"cache-control": "no-store"}
    if error is not None and error.error_code == "unauthorized":
        # The caller's own token. What a server behind the gateway asks for is not for the caller to send.
        headers["www-authenticate"] = "Bearer"
    if error is not None and error.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    return Response(
        value if isinstance(value, bytes) else msgspec.json.encode(value),
        status_code=status or (200 if error is None else error.http_status),
        headers=headers,
        media_type=JSON_TYPE,
    )


def json_content(schema: Any) -> dict[str, Any]:
    """The content of a request or an answer in JSON, for an OpenAPI document."""
    return {JSON_TYPE: {"schema": schema}}
