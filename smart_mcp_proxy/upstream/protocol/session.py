"""Session with a server, whatever the transport: the interface of the supervisor."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY, PARSE_ERROR

from smart_mcp_proxy import __version__
from smart_mcp_proxy.errors import Delivery, RpcAnswer, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.telemetry import redact

_LONGEST_SETTING: Final = "'limits.call_max_s' (seconds) in its entry."

STOPPED: Final = "was stopped"
"""Words for the end of a session that the gateway closed."""
STOPPED_HINT: Final = (
    "The gateway ended the connection: its entry, its switch or its sign-in changed, or the gateway stops. "
    "Calls go through again once the server is ready."
)

CLIENT_INFO: Final = {"name": "smart-mcp-proxy", "version": __version__}

_NOT_DEALT_WITH: Final = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS})
_NEEDS_INPUT: Final = (
    'It wants to ask the client something. Its user can allow it, with "input_requests": true in the server\'s entry; '
    "and the client must be one that can be asked."
)


_LIST_SETTING: Final = "'limits.list_s' (seconds) in its entry."
_CALL_SETTING: Final = (
    "'timeout' (milliseconds) or 'limits.call_s' (seconds) in its entry; "
    "progress that it reports renews the limit up to 'limits.call_max_s'."
)


class ToolsChanged(msgspec.Struct, frozen=True):
    """The server sent `notifications/tools/list_changed`."""


class LogLine(msgspec.Struct, frozen=True):
    """Something the server wrote for people: a line of its stderr, or a log message of the protocol."""

    text: str


class ContentsChanged(msgspec.Struct, frozen=True):
    """The server's list of prompts or resources changed."""


class ResourceUpdated(msgspec.Struct, frozen=True):
    """The server sent `notifications/resources/updated`.

    Attributes:
        uri: As the server knows it.
    """

    uri: str


class UpdatesMissed(msgspec.Struct, frozen=True):
    """Updates were missed while no stream was open: any resource may have changed."""


class Acknowledged(msgspec.Struct, frozen=True):
    """The server has confirmed a stream of changed resources, or of tasks.

    Attributes:
        uris: Resources that it agreed to tell of.
        tasks: Ids of tasks that it agreed to tell of.
    """

    uris: frozenset[str]
    tasks: frozenset[str] = frozenset()


class TaskTold(msgspec.Struct, frozen=True):
    """The server sent `notifications/tasks`.

    Attributes:
        task: The task's id, as the server knows it.
        state: The params: what `tasks/get` would have answered.
    """

    task: str
    state: bytes


class Revived(msgspec.Struct, frozen=True):
    """The server says something again, after a silence in which calls had timed out."""


class Retry(msgspec.Struct, frozen=True):
    """A new try to connect is due: what refused or ended the last one has changed."""


SessionEvent = (
    ToolsChanged
    | ContentsChanged
    | LogLine
    | ResourceUpdated
    | UpdatesMissed
    | Acknowledged
    | TaskTold
    | Revived
    | Retry
)
_CHANGES: Final[Mapping[str, SessionEvent]] = {
    "notifications/tools/list_changed": ToolsChanged(),
    "notifications/prompts/list_changed": ContentsChanged(),
    "notifications/resources/list_changed": ContentsChanged(),
}
"""Events for what a server announces of its lists, by method."""
OnEvent = Callable[[SessionEvent], None]
"""Told synchronously, from the session's reader: must be quick."""


def after_gap(capabilities: Mapping[str, Any]) -> tuple[SessionEvent, ...]:
    """Events that may have been missed from a server with these capabilities."""
    has_contents = not {"prompts", "resources"}.isdisjoint(capabilities)
    contents = (ContentsChanged(),) if has_contents else ()
    return (ToolsChanged(), *contents, *((UpdatesMissed(),) if has_updates(capabilities) else ()))


def has_updates(capabilities: Mapping[str, Any]) -> bool:
    """Whether a server that declares these tells of single resources."""
    resources = capabilities.get("resources")
    return isinstance(resources, Mapping) and resources.get("subscribe") is True


def parse_change_event(method: str, params: bytes) -> SessionEvent | None:
    """Convert a notification on lists, resources and tasks into an event; None for others."""
    if method in _CHANGES:
        return _CHANGES[method]
    try:
        if method == "notifications/resources/updated":
            return ResourceUpdated(_updated.decode(params).uri)
        if method == "notifications/tasks":
            return TaskTold(_task_told.decode(params).taskId, params)
        if method == "notifications/subscriptions/acknowledged":
            agreed = _acknowledged.decode(params).notifications
            # The stream that tells of changed lists is confirmed too, in the same words.
            if agreed.resourceSubscriptions or agreed.taskIds or agreed == _Agreed():
                return Acknowledged(frozenset(agreed.resourceSubscriptions), frozenset(agreed.taskIds))
    except (msgspec.DecodeError, RecursionError):
        return None
    return None


class _UpdatedParams(msgspec.Struct):
    uri: str


class _Agreed(msgspec.Struct):
    """Notifications that a server agreed to send, in the protocol's names."""

    toolsListChanged: bool = False  # noqa: N815
    promptsListChanged: bool = False  # noqa: N815
    resourcesListChanged: bool = False  # noqa: N815
    resourceSubscriptions: tuple[str, ...] = ()  # noqa: N815
    taskIds: tuple[str, ...] = ()  # noqa: N815


class _TaskParams(msgspec.Struct):
    taskId: str  # noqa: N815


class _AcknowledgedParams(msgspec.Struct):
    notifications: _Agreed


_updated = msgspec.json.Decoder(_UpdatedParams)
_task_told = msgspec.json.Decoder(_TaskParams)
_acknowledged = msgspec.json.Decoder(_AcknowledgedParams)


_MOST_LEVELS: Final = 100
"""Most levels of an error's data: whoever handles it later, deeper in the stack, has to descend as far."""


def rpc_error(server: str, method: str, code: int, message: str, data: Any = None) -> UpstreamError:
    """The error for a server that answered with a JSON-RPC error: it saw the request and dealt with it.

    Where the code says that the request was none it could deal with, it may not have been carried out.

    A server that repeats what it was trusted with there is not repeated, and what it says twice is said once: its
    words end the message, and `data` holds what it said besides. Data nested too deep to be looked through is left out.
    """
    message, data = redact(message), _redact_data(data)
    facts = {"rpc_code": code}
    if (besides := _without(message, data)) not in (None, {}, []):
        facts["rpc_data"] = besides
    if code == MISSING_REQUIRED_CLIENT_CAPABILITY:
        hint = _NEEDS_INPUT
    elif code in _NOT_DEALT_WITH:
        hint = "Compare the request with what the server lists before sending it again."
    else:
        hint = see_log(server)
    told = f"Server '{server}' answered '{method}' with error {code}:"
    delivery: Delivery = "unknown" if code in _NOT_DEALT_WITH else "executed"
    error = UpstreamError(told, hint=hint, delivery=delivery, data=facts, said=message)
    error.answer = RpcAnswer(code, message, data)
    return error


def _without(message: str, data: Any) -> Any:
    """JSON data without the values that only repeat `message`; None where nothing is left.

    What was empty before says something: a capability is named by an empty object.
    """
    if isinstance(data, dict):
        kept = {key: _without(message, value) for key, value in data.items() if value != message}
        left = {key: value for key, value in kept.items() if value is not None or data[key] is None}
        return left if left or not data else None
    if isinstance(data, list):
        left_items = [_without(message, value) for value in data if value != message]
        return left_items if left_items or not data else None
    return None if data == message else data


def _redact_data(data: Any) -> Any:
    """JSON data without the secrets in use; None for what is nested too deep."""
    try:
        return _redact_nested(data, _MOST_LEVELS)
    except RecursionError:
        return None


def _redact_nested(data: Any, levels: int) -> Any:
    if not levels:
        raise RecursionError
    if isinstance(data, dict):
        return {redact(key): _redact_nested(value, levels - 1) for key, value in data.items()}
    if isinstance(data, list):
        return [_redact_nested(value, levels - 1) for value in data]
    return redact(data) if isinstance(data, str) else data


def timeout_error(
    server: str, method: str, timeout_s: float, *, was_sent: bool, since: str = "", setting: str = ""
) -> UpstreamTimeoutError:
    """The error for a server that did not answer in time.

    Args:
        server: Configured name.
        method: Of the request.
        timeout_s: Its limit.
        was_sent: Whether the server may have it.
        since: Where the limit counts from, if not from the request.
        setting: How the limit is raised; the one of such a request where it is left out.
    """
    setting = setting or (_LIST_SETTING if method.endswith("/list") else _CALL_SETTING)
    return UpstreamTimeoutError(
        f"Server '{server}' did not answer '{method}' within {timeout_s:g} s{since}.",
        hint=f"It may still be working on it: check before repeating. If it needs longer, raise {setting}"
        if was_sent
        else "It does not read its input; restart it.",
        delivery="unknown" if was_sent else "not_sent",
    )


def start_error(config: ServerConfig) -> UpstreamTimeoutError:
    """The error for a server that did not agree on an era in time."""
    name, limit_s = config.name, config.limits.init_s
    happened = "Its program ran all that time and was ended" if config.transport == "stdio" else "It was waited for"
    return UpstreamTimeoutError(
        f"Server '{name}' did not answer 'initialize' within {limit_s:g} s.",
        hint=f"{happened}. If it needs longer to start: mcpproxy server patch {shell_word(name)} "
        f"limits.init_s={2 * limit_s:g}",
    )


def build_lost_error(server: str, reason: str, *, was_sent: bool) -> UpstreamError:
    """The error for a session that ended, before or while a request was under way."""
    delivery: Delivery = "unknown" if was_sent else "not_sent"
    hint = STOPPED_HINT if reason == STOPPED else see_log(server)
    error = UpstreamError(f"Server '{server}' {reason}.", hint=hint, delivery=delivery)
    error.is_lost = True
    return error


def see_log(server: str) -> str:
    """The hint of an error of which the server itself may have said more."""
    return f"See what it printed: mcpproxy server logs {shell_word(server)}"


def ends_at_s(limits: ServerLimits, began_s: float, timeout_s: float, heard_s: float) -> float:
    """When a request without an answer ends.

    Args:
        limits: Of the server.
        began_s: When the request began.
        timeout_s: Its limit without progress.
        heard_s: When its progress was reported last; 0 for never.
    """
    end_s = began_s + timeout_s
    if not heard_s:
        return end_s
    return max(end_s, min(heard_s + limits.call_s, began_s + limits.longest_call_s))


def late_error(
    server: str,
    method: str,
    limits: ServerLimits,
    began_s: float,
    timeout_s: float,
    heard_s: float = 0.0,
    *,
    was_sent: bool = True,
) -> UpstreamTimeoutError:
    """The error for a request that ended so; arguments as of `ends_at_s`."""
    if not heard_s or ends_at_s(limits, began_s, timeout_s, heard_s) <= began_s + timeout_s:
        return timeout_error(server, method, timeout_s, was_sent=was_sent)
    if heard_s + limits.call_s < began_s + limits.longest_call_s:
        return timeout_error(server, method, limits.call_s, was_sent=was_sent, since=" of its last progress report")
    longest_s, since = limits.longest_call_s, ", although it reported progress"
    return timeout_error(server, method, longest_s, was_sent=was_sent, since=since, setting=_LONGEST_SETTING)
