"""Who may ask the REST interface for what: the owner of a private socket everything, the network with a token."""

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from starlette.requests import Request

from smart_mcp_proxy.errors import ConfigError, RefusedError, RequestError
from smart_mcp_proxy.servers import Author
from smart_mcp_proxy.web.rest.route import Need

__all__ = ["NetworkDoor", "PrivateDoor", "operator_token"]

TOKEN_FILE = "operator.token"
TOKEN_BYTES = 32
_JSON = "application/json"
_GROUP_OR_OTHERS = 0o077


class UnauthorizedError(RefusedError):
    """The request does not carry the token that it needs."""

    code = "unauthorized"
    http_status = 401


class UnsupportedTypeError(RequestError):
    """The body is not declared to be JSON: a page in a browser can send anything else without being asked."""

    code = "unsupported_media_type"
    http_status = 415


class PrivateDoor:
    """A socket that only the owner of the gateway can open, or this process itself."""

    def admit(self, request: Request, need: Need) -> Author | None:
        """The user."""
        return "operator"


class NetworkDoor:
    """An address that every program of this machine can connect to, agents and pages in a browser included.

    Args:
        operator: The operator's token.
    """

    def __init__(self, operator: str) -> None:
        self._operator = operator.encode()

    def admit(self, request: Request, need: Need) -> Author | None:
        """Whoever has the operator's token; else somebody unknown, where the route lets them in.

        Raises:
            ProxyError: The token is missing or wrong, or a body is no JSON.
        """
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        token = sent.strip().encode() if scheme.lower() == "bearer" else b""
        is_operator = hmac.compare_digest(token, self._operator)
        if not is_operator and need == "operator":
            raise UnauthorizedError(
                "The token sent is not the operator's." if token else "This needs the operator's token.",
                hint=f"Send 'Authorization: Bearer TOKEN' with what the data directory's {TOKEN_FILE} holds.",
            )
        _require_json(request)
        return "web" if is_operator else None


def _require_json(request: Request) -> None:
    """Passes if the request has no body, or one that says it is JSON."""
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if kind != _JSON and (kind or has_body):
        raise UnsupportedTypeError(f"The body is {kind[:40] or 'of no type'!r}.", hint=f"Send it as {_JSON}.")


def operator_token(data_dir: Path) -> str:
    """The token that proves to a gateway over HTTP who runs it; made at the first use, for the owner's eyes only.

    Source: contract.md, Processes.

    Raises:
        ConfigError: The file cannot be read or made.
    """
    path = data_dir / TOKEN_FILE
    try:
        return _kept(path) or _made(path)
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise ConfigError(f"{path} cannot be used: {reason}.", hint="Remove it, or check who may read it.") from exc


def _kept(path: Path) -> str:
    """The token in the file; empty if there is none, or if others could have read it."""
    try:
        with path.open("r", encoding="ascii") as file:
            is_exposed = bool(os.fstat(file.fileno()).st_mode & _GROUP_OR_OTHERS)
            token = file.read().strip()
    except FileNotFoundError:
        return ""
    if token and not is_exposed:
        return token
    path.unlink(missing_ok=True)
    return ""


def _made(path: Path) -> str:
    """A new token; where another process was quicker, its token."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    temporary = path.with_name(f".{TOKEN_FILE}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        os.link(temporary, path)  # whole, and only where there is none
    except FileExistsError:
        token = path.read_text("ascii").strip()
    finally:
        with suppress(OSError):
            os.unlink(temporary)
    return token
