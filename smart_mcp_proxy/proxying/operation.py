"""Request to a `proxy` tool: its parameters, and the checks that a request has to pass."""

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import msgspec

from smart_mcp_proxy.proxying.failures import InvalidOperationError
from smart_mcp_proxy.proxying.metadata import ProxyAction, ProxyType
from smart_mcp_proxy.proxying.spellings import SHOWN_CHARS, Kind, Spellings, abbreviate_value

ACTIONS: tuple[ProxyAction, ...] = get_args(ProxyAction)
TYPES: tuple[ProxyType, ...] = get_args(ProxyType)

BATCH_LIMIT = 20
"""Operations in one batch: about what an agent has in mind at once; each of them is a whole call."""
PAGE_LIMIT = 1_000
"""Entries that one page may be asked to hold."""
TEXT_CHARS = 4_096
"""Limit on a path and each text in a filter: longer than any name, and than the addresses that browsers agree on."""

DESCRIPTION = f"""\
List, describe and call the tools, resources and prompts of all servers through this one tool.
list shows them (limit, cursor: the last name of the page before); info needs path, and call takes args too.
batch runs up to {BATCH_LIMIT} operations in order and answers each by itself."""

PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": list(ACTIONS), "description": "What to do"},
        "type": {"type": "string", "enum": list(TYPES), "description": "Of what; all but batch need it"},
        "path": {"type": "string", "description": "info, call: its name or URI"},
        "args": {"type": "object", "description": "call: arguments of the tool or prompt"},
        "filter": {"type": "object", "description": "list: {prefix, server, tags (any), all_tags}"},
        "limit": {"type": "integer", "minimum": 1, "maximum": PAGE_LIMIT, "description": "list: entries per page"},
        "cursor": {"type": "string", "description": "list: go on behind this name"},
        "operations": {"type": "array", "items": {"type": "object"}, "description": "batch: [{action, type, ...}]"},
    },
    "required": ["action"],
}
"""The input schema of a `proxy` tool."""

_ALSO_READ: Mapping[str, Any] = {"offset": {"type": "integer"}, "filter_server": {"type": "string"}}
"""Magg's parameters of a list, read and not advertised. Source: docs/design/proxy-extension.md#which-go-together"""
_TAKES: Mapping[ProxyAction, frozenset[str]] = {
    "list": frozenset({"type", "filter", "limit", "cursor", "offset", "filter_server"}),
    "info": frozenset({"type", "path"}),
    "call": frozenset({"type", "path", "args"}),
    "batch": frozenset({"operations"}),
}
_TAGS = ("tags", "all_tags")
_FILTER = ("prefix", "server", *_TAGS)
_JSON_TYPES: Mapping[str, type] = {"string": str, "object": Mapping, "integer": int, "array": list}
_KINDS: Mapping[str, Kind] = {"object": "object", "array": "objects"}
_SPELLINGS = Spellings(
    {name: _KINDS.get(schema["type"], "value") for name, schema in PARAMETERS["properties"].items()},
    {"filter": Spellings({"prefix": "value", "server": "value", "tags": "texts", "all_tags": "texts"})},
)


class Filter(msgspec.Struct, frozen=True):
    """Filter of a list's entries; empty parts narrow nothing.

    Attributes:
        prefix: Beginning of their name or URI: of their own, of `server:name`, or of the one they are listed under.
        server: The server that they are from.
        tags: They carry at least one of these.
        all_tags: They carry each of these.
    """

    prefix: str = ""
    server: str = ""
    tags: frozenset[str] = frozenset()
    all_tags: frozenset[str] = frozenset()


class Operation(msgspec.Struct, frozen=True):
    """A request that is complete and free of contradictions.

    Attributes:
        action: list, info or call.
        type: Of what.
        path: Name or URI; empty for list.
        args: For call.
        filter: For list.
        limit: Entries per page; None for all that fit.
        cursor: The name behind which a page begins; empty for the first page.
        offset: Entries to leave out at the beginning, besides those before `cursor`.
    """

    action: ProxyAction
    type: ProxyType
    path: str = ""
    args: Mapping[str, Any] = msgspec.field(default_factory=dict)
    filter: Filter = Filter()
    limit: int | None = None
    cursor: str = ""
    offset: int = 0


class Batch(msgspec.Struct, frozen=True):
    """Several requests in one, each still to be looked at by itself."""

    operations: Sequence[Any]


def validate_operation(action: str, type: str) -> None:
    """Passes if action and type are ones that a `proxy` tool knows.

    Raises:
        InvalidOperationError: One is not; the hint lists those that are.
    """
    for name, value, known in (("action", action, ACTIONS), ("type", type, TYPES)):
        if value not in known:
            raise _invalid(f"{name} is {abbreviate_value(value)}", f"Use one of: {', '.join(known)}.")


def parse_operation(arguments: Any, *, is_in_batch: bool = False) -> Operation | Batch:
    """The request that a `proxy` tool's arguments make, whichever way they are spelt; see `Spellings`.

    Args:
        arguments: By parameter name.
        is_in_batch: Whether it is part of a batch, which may not hold another one.

    Raises:
        InvalidOperationError: Something is missing, unknown, of the wrong type, or does not go together.
    """
    if not isinstance(arguments, Mapping):
        hint = 'Send objects like {"action": "info", "type": "tool", "path": "..."}.'
        raise _invalid(f"an operation is {abbreviate_value(arguments)}", hint)
    given = _SPELLINGS.read(arguments)
    _check_types(given)
    if "action" not in given:
        raise _invalid("action is missing", f"Use one of: {', '.join(ACTIONS)}.")
    if given["action"] != "batch" and "type" not in given:
        validate_operation(given["action"], TYPES[0])
        raise _invalid("type is missing", f"Use one of: {', '.join(TYPES)}.")
    validate_operation(given["action"], given.get("type", TYPES[0]))
    action = cast("ProxyAction", given["action"])
    for name in given.keys() - _TAKES[action] - {"action"}:
        raise _invalid(f"{name} is given, and action '{action}' takes none", _describe_parameters(action))
    if action == "batch":
        return _batch(given, is_in_batch=is_in_batch)
    server = given.pop("filter_server", "")
    operation = Operation(**{**given, "filter": _filter({"server": server} | given.get("filter", {}))})
    if action != "list":
        _check_path(operation)
    return operation


def _check_types(given: Mapping[str, Any]) -> None:
    """Passes if every argument is a parameter and of its type."""
    known = PARAMETERS["properties"]
    for name, value in given.items():
        if name not in known and name not in _ALSO_READ:
            raise _invalid(f"{name[:SHOWN_CHARS]} is not a parameter", f"Parameters: {', '.join(known)}.")
        schema = known.get(name) or _ALSO_READ[name]
        # To Python a boolean is an integer.
        if not isinstance(value, _JSON_TYPES[schema["type"]]) or isinstance(value, bool):
            raise _invalid(f"{name} is {abbreviate_value(value)}", f"Send {_article(schema['type'])}.")
    if given.get("offset", 0) < 0:
        raise _invalid(f"offset is {given['offset']}", "Send an integer of at least 0.")
    limit = given.get("limit", 1)
    if not 1 <= limit <= PAGE_LIMIT:
        raise _invalid(f"limit is {limit}", f"Send an integer from 1 to {PAGE_LIMIT}, or none for all.")


def _batch(given: Mapping[str, Any], *, is_in_batch: bool) -> Batch:
    operations = given.get("operations", [])
    if is_in_batch:
        raise _invalid("a batch holds another batch", "Put all operations into one list.")
    if not operations:
        raise _invalid("operations is missing", 'Send a list of objects like {"action": "info", "type": "tool", ...}.')
    if len(operations) > BATCH_LIMIT:
        raise _invalid(f"operations holds {len(operations)}", f"Send at most {BATCH_LIMIT} at once.")
    return Batch(operations)


def _filter(given: Mapping[str, Any]) -> Filter:
    for name, value in given.items():
        if name not in _FILTER:
            known = f"{', '.join(_FILTER[:-1])} or {_FILTER[-1]}"
            raise _invalid(f"filter.{name[:SHOWN_CHARS]} is not known", f"A filter holds {known}.")
        is_list = isinstance(value, list) and all(isinstance(tag, str) for tag in value)
        if not (is_list if name in _TAGS else isinstance(value, str)):
            wanted = "a list of strings" if name in _TAGS else "a string"
            raise _invalid(f"filter.{name} is {abbreviate_value(value)}", f"Send {wanted}.")
        for text in value if is_list else [value]:
            _check_length(f"filter.{name}", text)
    tags = {name: frozenset(given.get(name, ())) for name in _TAGS}
    return Filter(given.get("prefix", ""), given.get("server", ""), **tags)


def _check_length(name: str, text: str) -> None:
    if len(text) > TEXT_CHARS:
        raise _invalid(
            f"{name} has {len(text)} characters and begins with {abbreviate_value(text)}",
            f"At most {TEXT_CHARS} are looked at: send a shorter one.",
        )


def _check_path(operation: Operation) -> None:
    action, type_ = operation.action, operation.type
    if not operation.path:
        what = "name or URI of one resource" if type_ == "resource" else f"name of one {type_}"
        raise _invalid("path is missing", f"Action '{action}' needs the {what}; action 'list' shows them.")
    _check_length("path", operation.path)
    if type_ == "resource" and operation.args:
        raise _invalid("args are given, and a resource takes none", "Write them into the URI, as its template says.")


def _describe_parameters(action: ProxyAction) -> str:
    return f"It takes: {', '.join(name for name in PARAMETERS['properties'] if name in _TAKES[action])}."


def _article(json_type: str) -> str:
    return f"an {json_type}" if json_type[0] in "aio" else f"a {json_type}"


def _invalid(what: str, hint: str) -> InvalidOperationError:
    return InvalidOperationError(f"proxy: {what}.", hint=hint, code="invalid_arguments")
