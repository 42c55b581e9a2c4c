"""Reads what callers send to the broker: one JSON-RPC message, with what may be left out filled in."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from smart_mcp_proxy.errors import RequestError

_ASSIGNED_ID: Final = 1
"""Of a request that names none. Source: docs/design/broker.md#ids"""
_ID_BITS: Final = 63
_EXAMPLE: Final = 'Send {"method": "tools/list", "params": {}}.'
_METHOD_CHARS: Final = 200


class BrokerMessage(NamedTuple):
    """A checked message.

    Attributes:
        method: As it was sent.
        params: Empty where none were sent.
        id: For the answer; None for a notification, which gets none.
    """

    method: str
    params: Mapping[str, Any]
    id: int | str | None


def parse_message(body: bytes) -> BrokerMessage:
    """The message in a request's body.

    Raises:
        RequestError: It is no JSON-RPC request or notification; batches have a code of their own.
    """
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise RequestError(f"The body is not JSON: {exc}.", hint=_EXAMPLE, code="not_json") from exc
    if isinstance(message, list):
        raise RequestError("A batch of messages is not taken.", hint="Send them one by one.", code="batch_unsupported")
    if not isinstance(message, dict):
        raise RequestError("The body is no JSON object.", hint=_EXAMPLE)
    if message.get("jsonrpc", "2.0") != "2.0":
        raise RequestError("The member 'jsonrpc' is not \"2.0\".", hint="Leave it out, or correct it.")
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str) or not 0 < len(method) <= _METHOD_CHARS:
        raise RequestError("The message has no method.", hint=_EXAMPLE)
    if not isinstance(params, dict):
        raise RequestError("The member 'params' is no JSON object.", hint=_EXAMPLE)
    return BrokerMessage(method, params, _id(message, method))


def _id(message: Mapping[str, Any], method: str) -> int | str | None:
    is_notification = method.startswith("notifications/")
    if "id" not in message:
        return None if is_notification else _ASSIGNED_ID
    if is_notification:
        raise RequestError(f"{method!r} is a notification and has an id.", hint="Leave the id out.", code="invalid_id")
    given = message["id"]
    is_integer = type(given) is int and given.bit_length() <= _ID_BITS  # a boolean is no integer here
    if not is_integer and not isinstance(given, str):
        raise RequestError(
            "The id is neither an integer nor text.", hint="Send one of those, or leave the id out.", code="invalid_id"
        )
    return given  # type: ignore[no-any-return]  # checked above
