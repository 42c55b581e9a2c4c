"""Every error the gateway raises, with what the wire needs to know about it.

ProxyError                        code             HTTP  JSON-RPC  whose fault
├─ ConfigError                    config_invalid   500   -32603    operator
│   └─ MissingExtraError          missing_extra    500   -32603    operator
├─ RequestError                   invalid_request  400   -32602    caller
│   ├─ ServerNotFoundError        server_not_found 404   -32602    caller
│   ├─ ToolNotFoundError          tool_not_found   404   -32602    caller
│   └─ ConflictError              conflict         409   -32602    caller
├─ RefusedError                   refused          403   -32602    policy
│   ├─ QuarantinedError           quarantined      403   -32602    policy
│   ├─ ShuttingDownError          shutting_down    503   -32603    us
│   └─ RateLimitedError           rate_limited     429   -32603    policy
├─ UpstreamError                  upstream_failed  502   -32603    upstream
│   ├─ UpstreamAuthError          upstream_auth    401   -32603    upstream
│   ├─ UpstreamBusyError          rate_limited     429   -32603    upstream
│   └─ UpstreamTimeoutError       upstream_timeout 504   -32603    upstream
├─ CatalogError                   catalog_failed   500   -32603    us
│   └─ UnverifiedError            catalog_failed   503   -32603    us
└─ SearchError                    search_failed    500   -32603    us
    └─ EmbeddingError             embedding_failed 502   -32603    the embedding backend
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import msgspec

Delivery = Literal["not_sent", "unknown", "executed"]
"""State of the upstream as the caller may assume it: it never saw the call, it may have run it, or it answered it."""


class ProxyError(Exception):
    """Base of all errors of the gateway.

    Args:
        message: What went wrong, with the value at fault. One sentence, no secrets.
        hint: What to do next, as a sentence.
        delivery: Whether an upstream may have executed the call.
        data: Facts a program can act on; goes to the wire as it is.
        code: A more precise code than the class's own, from the same vocabulary.
        retry_after_s: Seconds after which trying again makes sense, if known.
        said: Words of a server, or of a script, that the message ends with. They may say anything: where an agent gets
            them, they are cleaned and fenced like a result.
    """

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    jsonrpc_code: ClassVar[int] = -32603

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        delivery: Delivery = "not_sent",
        data: Mapping[str, Any] | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        said: str = "",
    ) -> None:
        super().__init__(message)
        self.message = f"{message} {said}".lstrip() if said else message
        self.said = said
        self.hint = hint
        self.delivery: Delivery = delivery
        self.data = dict(data) if data else None
        self.error_code = code or type(self).code
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """The `error` object: code, message, hint, delivery, and retry_after_s and data if known."""
        error: dict[str, Any] = {
            "code": self.error_code,
            "message": self.message,
            "hint": self.hint,
            "delivery": self.delivery,
        }
        if self.retry_after_s is not None:
            error["retry_after_s"] = self.retry_after_s
        if self.data is not None:
            error["data"] = self.data
        return error

    @classmethod
    def from_dict(cls, error: Mapping[str, Any], **own: Any) -> Self:
        """The error that `to_dict` described, with its code.

        Args:
            error: The `error` object.
            own: Arguments that the class adds to these.

        Raises:
            KeyError: A member is missing.
        """
        return cls(
            error["message"],
            hint=error["hint"],
            delivery=error["delivery"],
            data=error.get("data"),
            code=error["code"],
            retry_after_s=error.get("retry_after_s"),
            **own,
        )


class ConfigError(ProxyError):
    """Settings, config file, port or data directory do not allow a start; exit code 2."""

    code = "config_invalid"


class MissingExtraError(ConfigError):
    """A setting asks for packages that are not installed."""

    code = "missing_extra"


class RequestError(ProxyError):
    """The caller's request cannot be carried out as it stands."""

    code = "invalid_request"
    http_status = 400
    jsonrpc_code = -32602


class ServerNotFoundError(RequestError):
    """No server of that name is configured."""

    code = "server_not_found"
    http_status = 404


class ToolNotFoundError(RequestError):
    """No tool of that name is known."""

    code = "tool_not_found"
    http_status = 404


class ConflictError(RequestError):
    """The state that the request was based on has changed, or its name is taken."""

    code = "conflict"
    http_status = 409


class RefusedError(ProxyError):
    """Policy does not allow the call."""

    code = "refused"
    http_status = 403
    jsonrpc_code = -32602


class QuarantinedError(RefusedError):
    """A tool or server waits for the approval of its user; nothing of what it says is repeated."""

    code = "quarantined"


class ShuttingDownError(RefusedError):
    """The gateway is ending: nothing is begun any more, and what takes too long is given up."""

    code = "shutting_down"
    http_status = 503
    jsonrpc_code = -32603


class RateLimitedError(RefusedError):
    """Too many calls of a server or caller at once or in a time; see `retry_after_s`."""

    code = "rate_limited"
    http_status = 429
    jsonrpc_code = -32603


class RpcAnswer(msgspec.Struct, frozen=True):
    """The JSON-RPC error that a server answered with.

    Attributes:
        code: Of the error.
        message: In the server's words.
        data: What it says besides.
        has_id: It carries the request's id; else it came alone on the request's own exchange.
    """

    code: int
    message: str
    data: Any = None
    has_id: bool = True


class UpstreamError(ProxyError):
    """A server failed, is not there, or answered with an error.

    Attributes:
        answer: The JSON-RPC error, for those who pass it on as one; None where there was none.
        is_lost: The connection broke, or could not be made: nothing was heard of the server.
    """

    code = "upstream_failed"
    http_status = 502
    answer: RpcAnswer | None = None
    is_lost = False

    @property
    def was_answered(self) -> bool:
        """Whether the server itself answered, if only to say no."""
        return self.delivery == "executed" or self.answer is not None


class UpstreamAuthError(UpstreamError):
    """A server asks for a sign-in or refuses the one it was given."""

    code = "upstream_auth"
    http_status = 401


class UpstreamBusyError(UpstreamError):
    """A server wants fewer requests (HTTP 429); `retry_after_s` says when the next one, if it said so."""

    code = "rate_limited"
    http_status = 429


class UpstreamTimeoutError(UpstreamError):
    """A server did not answer within its deadline."""

    code = "upstream_timeout"
    http_status = 504


class CatalogError(ProxyError):
    """The catalog cannot be read or written."""

    code = "catalog_failed"


class UnverifiedError(CatalogError):
    """A token or an address cannot be looked up at present: it may well be good."""

    code = "catalog_failed"
    http_status = 503


class SearchError(ProxyError):
    """The search index cannot answer."""

    code = "search_failed"


class EmbeddingError(SearchError):
    """The model or service that turns text into vectors failed."""

    code = "embedding_failed"
    http_status = 502
