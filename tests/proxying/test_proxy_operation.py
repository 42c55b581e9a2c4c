"""What a request to a `proxy` tool must look like, row by row."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.proxying.operation import PARAMETERS, Batch, Filter, Operation, parse_operation, validate_operation

MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({}, "proxy: action is missing. Use one of: list, info, call, batch."),
    ({"type": "tool"}, "proxy: action is missing. Use one of: list, info, call, batch."),
    ({"action": "delete", "type": "tool"}, "proxy: action is 'delete'. Use one of: list, info, call, batch."),
    ({"action": "delete"}, "proxy: action is 'delete'. Use one of: list, info, call, batch."),
    ({"action": 3, "type": "tool"}, "proxy: action is 3. Send a string."),
    ({"action": "list"}, "proxy: type is missing. Use one of: tool, resource, prompt."),
    ({"action": "list", "type": "tools"}, "proxy: type is 'tools'. Use one of: tool, resource, prompt."),
    (
        {"action": "info", "type": "tool"},
        "proxy: path is missing. Action 'info' needs the name of one tool; action 'list' shows them.",
    ),
    (
        {"action": "info", "type": "resource"},
        "proxy: path is missing. Action 'info' needs the name or URI of one resource; action 'list' shows them.",
    ),
    (
        {"action": "call", "type": "prompt", "path": ""},
        "proxy: path is missing. Action 'call' needs the name of one prompt; action 'list' shows them.",
    ),
    (
        {"action": "list", "type": "tool", "path": "x"},
        "proxy: path is given, and action 'list' takes none. It takes: type, filter, limit, cursor.",
    ),
    (
        {"action": "list", "type": "tool", "args": {}},
        "proxy: args is given, and action 'list' takes none. It takes: type, filter, limit, cursor.",
    ),
    (
        {"action": "info", "type": "tool", "path": "x", "args": {"a": 1}},
        "proxy: args is given, and action 'info' takes none. It takes: type, path.",
    ),
    (
        {"action": "call", "type": "tool", "path": "x", "limit": 3},
        "proxy: limit is given, and action 'call' takes none. It takes: type, path, args.",
    ),
    (
        {"action": "info", "type": "tool", "path": "x", "filter": {}},
        "proxy: filter is given, and action 'info' takes none. It takes: type, path.",
    ),
    ({"action": "call", "type": "tool", "path": "x", "args": "[]"}, "proxy: args is '[]'. Send an object."),
    ({"action": "call", "type": "tool", "path": ["x"]}, 'proxy: path is ["x"]. Send a string.'),
    (
        {"action": "call", "type": "resource", "path": "a://b", "args": {"c": 1}},
        "proxy: args are given, and a resource takes none. Write them into the URI, as its template says.",
    ),
    (
        {"action": "call", "type": "resource", "path": "a" * 10_240},
        f"proxy: path has 10240 characters and begins with '{'a' * 77}...'. "
        "At most 4096 are looked at: send a shorter one.",
    ),
    (
        {"action": "list", "type": "tool", "limit": 0},
        "proxy: limit is 0. Send an integer from 1 to 1000, or none for all.",
    ),
    (
        {"action": "list", "type": "tool", "limit": 1001},
        "proxy: limit is 1001. Send an integer from 1 to 1000, or none for all.",
    ),
    ({"action": "list", "type": "tool", "limit": True}, "proxy: limit is true. Send an integer."),
    (
        {"action": "list", "type": "tool", "filter": {"name": "x"}},
        "proxy: filter.name is not known. A filter holds prefix, server, tags or all_tags.",
    ),
    ({"action": "list", "type": "tool", "filter": {"prefix": 1}}, "proxy: filter.prefix is 1. Send a string."),
    ({"action": "list", "type": "tool", "filter": {"tags": 5}}, "proxy: filter.tags is 5. Send a list of strings."),
    ({"action": "list", "type": "tool", "filter": {"tags": [1]}}, "proxy: filter.tags is [1]. Send a list of strings."),
    (
        {"action": "list", "type": "tool", "filter": {"all_tags": [None]}},
        "proxy: filter.all_tags is [null]. Send a list of strings.",
    ),
    (
        {"action": "list", "type": "tool", "filter": {"prefix": "p" * 10_000}},
        f"proxy: filter.prefix has 10000 characters and begins with '{'p' * 77}...'. "
        "At most 4096 are looked at: send a shorter one.",
    ),
    (
        {"action": "list", "type": "tool", "filter": {"tags": ["x", "t" * 5_000]}},
        f"proxy: filter.tags has 5000 characters and begins with '{'t' * 77}...'. "
        "At most 4096 are looked at: send a shorter one.",
    ),
    (
        {"action": "list", "type": "tool", "filter": {"tags": {"of": "x" * 200}}},
        f'proxy: filter.tags is {{"of":"{"x" * 70}.... Send a list of strings.',
    ),
    (
        {"action": "list", "type": "tool", "a_type": "tool"},
        "proxy: a_type is not a parameter. Parameters: action, type, path, args, filter, limit, cursor, operations.",
    ),
    (
        {"action": "batch"},
        'proxy: operations is missing. Send a list of objects like {"action": "info", "type": "tool", ...}.',
    ),
    (
        {"action": "batch", "type": "tool", "operations": [{}]},
        "proxy: type is given, and action 'batch' takes none. It takes: operations.",
    ),
    ({"action": "batch", "operations": [{}] * 21}, "proxy: operations holds 21. Send at most 20 at once."),
    (
        {"action": "list", "type": "tool", "operations": [{}]},
        "proxy: operations is given, and action 'list' takes none. It takes: type, filter, limit, cursor.",
    ),
]


@pytest.mark.seed("parameters-checked")
@pytest.mark.seed("path-rules")
@pytest.mark.seed("args-rules")
@pytest.mark.parametrize(("arguments", "message"), MESSAGES, ids=[str(row) for row in range(len(MESSAGES))])
def test_what_does_not_fit_is_told_with_the_way_out(arguments: dict[str, Any], message: str) -> None:
    """What is wrong, with the value, and what to send instead."""
    with pytest.raises(RequestError) as caught:
        parse_operation(arguments)
    assert str(caught.value) == message
    assert caught.value.error_code == "invalid_arguments"


@pytest.mark.seed("parameters-accepted")
def test_what_fits_becomes_a_request() -> None:
    """All four actions, with all that they take."""
    assert parse_operation({"action": "list", "type": "tool"}) == Operation("list", "tool")
    assert parse_operation(
        {
            "action": "list",
            "type": "prompt",
            "filter": {"prefix": "a_", "server": "s", "tags": ["x"]},
            "limit": 2,
            "cursor": "b",
        }
    ) == Operation("list", "prompt", filter=Filter("a_", "s", frozenset({"x"})), limit=2, cursor="b")
    assert parse_operation({"action": "info", "type": "resource", "path": "a://b"}) == Operation(
        "info", "resource", "a://b"
    )
    called = parse_operation({"action": "call", "type": "tool", "path": "t", "args": {"a": None}})
    assert called == Operation("call", "tool", "t", {"a": None})
    assert parse_operation({"action": "batch", "operations": [1]}) == Batch([1])


@pytest.mark.seed("core-parameters")
def test_what_was_added_leaves_the_first_four_parameters_as_they_were() -> None:
    """One who knows only those sees them in the schema, and asks as before; the schema tells what else there is."""
    properties = PARAMETERS["properties"]
    assert list(properties)[:4] == ["action", "type", "path", "args"]
    assert properties["action"]["enum"] == ["list", "info", "call", "batch"]
    assert properties["type"]["enum"] == ["tool", "resource", "prompt"]
    assert PARAMETERS["required"] == ["action"]
    assert set(properties) == {"action", "type", "path", "args", "filter", "limit", "cursor", "operations"}


def test_null_counts_as_not_given() -> None:
    """Clients in some languages send every parameter they know."""
    sent = dict.fromkeys(PARAMETERS["properties"]) | {"action": "list", "type": "tool"}
    assert parse_operation(sent) == Operation("list", "tool")


def test_a_batch_holds_no_batch() -> None:
    """Otherwise its bound would be none."""
    with pytest.raises(RequestError, match="a batch holds another batch"):
        parse_operation({"action": "batch", "operations": [{}]}, is_in_batch=True)


@pytest.mark.seed("validate-operation")
def test_action_and_type_can_be_checked_alone() -> None:
    """As clients do before they build a request."""
    validate_operation("call", "prompt")
    with pytest.raises(RequestError, match="action is 'remove'"):
        validate_operation("remove", "tool")
    with pytest.raises(RequestError, match="type is 'root'"):
        validate_operation("list", "root")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.long  # a third of a second of processor time
@given(st.dictionaries(st.sampled_from([*PARAMETERS["properties"], "other"]), _json))
def test_whatever_is_sent_is_taken_or_refused_in_words(arguments: dict[str, Any]) -> None:
    """Never any other error, and never a message without a way out."""
    try:
        parse_operation(arguments)
    except RequestError as error:
        assert error.message.startswith("proxy: ") and error.hint


@given(action=st.sampled_from(["list", "info", "call"]), type=st.sampled_from(["tool", "resource", "prompt"]))
def test_path_and_args_go_only_where_they_belong(action: str, type: str) -> None:
    """For every action and type: list takes neither, info takes the path, call takes both."""

    def takes(**more: Any) -> bool:
        try:
            parse_operation({"action": action, "type": type, **more})
        except RequestError:
            return False
        return True

    assert takes() is (action == "list")
    assert takes(path="p") is (action != "list")
    assert takes(path="p", args={}) is (action == "call")
    assert not takes(args={})
