"""What the broker takes for a message, and what it makes of what is left out."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.web.broker.app import parse_message

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def test_a_request_without_an_id_is_number_one_and_a_notification_has_none() -> None:
    """Source: docs/design/broker.md#ids"""
    assert parse_message(b'{"method":"ping"}') == ("ping", {}, 1)
    assert parse_message(b'{"method":"ping","id":0}').id == 0
    assert parse_message(b'{"method":"notifications/initialized"}').id is None


def test_members_of_others_are_not_taken_over() -> None:
    """A `result`, say, or a second version of the protocol: only method, params and id count."""
    body = b'{"jsonrpc":"2.0","method":"ping","params":{"a":1},"id":"x","result":{},"extra":1}'
    assert parse_message(body) == ("ping", {"a": 1}, "x")


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first text waits for a table of all characters
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("jsonrpc", "method", "params", "id"), ANYTHING)))
@pytest.mark.long  # many generated examples
def test_whatever_is_sent_is_a_message_or_is_refused(message: dict[str, Any]) -> None:
    """And what is taken has the types that the rest counts on, and an id that can be written again."""
    try:
        taken = parse_message(json.dumps(message).encode())
    except RequestError as error:
        assert error.http_status == 400 and error.hint
        return
    assert isinstance(taken.method, str) and isinstance(taken.params, dict)
    assert taken.id is None or type(taken.id) in (int, str)
    msgspec.json.encode(taken.id)


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_a_message_or_are_refused(body: bytes) -> None:
    """Nothing else escapes."""
    with pytest.raises(RequestError):
        parse_message(b"\x00" + body)
