"""Hashes are equal exactly when definitions say the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.catalog import approval_digest, canonical_json, change_hash

any_text = st.text(st.characters(exclude_categories=[]), max_size=8)  # lone surrogates too
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3), max_leaves=8
)
definitions = st.dictionaries(
    st.sampled_from(["name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta"]),
    values,
)


def is_same(one: Any, other: Any) -> bool:
    """JSON equality, spelled out: like Python's, but 1, 1.0 and true differ, and so do 0.0 and -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return repr(one) == repr(other)


def reordered(value: Any) -> Any:
    """The same value with the keys of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@pytest.mark.long  # a third of a second of processor time
@given(values, values)
def test_canonical_json_is_equal_if_and_only_if_the_values_are(one: Any, other: Any) -> None:
    """Two values share their bytes exactly when they are the same JSON."""
    assert (canonical_json(one) == canonical_json(other)) == is_same(one, other)


@pytest.mark.long  # a third of a second of processor time
@given(values)
def test_canonical_json_is_valid_json_for_every_value(value: Any) -> None:
    """The bytes are UTF-8 and read back as JSON, lone surrogates included."""
    json.loads(canonical_json(value).decode())


@pytest.mark.long  # a third of a second of processor time
@given(definitions)
def test_key_order_never_changes_the_hash(definition: dict[str, Any]) -> None:
    """A server that sends the same fields in another order has changed nothing."""
    assert change_hash("s", definition) == change_hash("s", reordered(definition))


@pytest.mark.long  # a third of a second of processor time
@given(definitions, st.data())
def test_a_change_of_any_field_changes_the_hash(definition: dict[str, Any], data: st.DataObject) -> None:
    """Whatever field takes another value, appears or goes: the hash moves."""
    field = data.draw(st.sampled_from([*definition, "inputSchema", "x-new"]))
    before = definition.get(field, ...)
    other = data.draw(values.filter(lambda value: not is_same(value, before)))
    assert change_hash("s", definition | {field: other}) != change_hash("s", definition)


@pytest.mark.long  # a third of a second of processor time
@given(definitions, definitions, any_text, any_text)
def test_the_server_is_part_of_the_hash(one: dict[str, Any], two: dict[str, Any], here: str, there: str) -> None:
    """Hashes agree exactly when server and definition do."""
    assert (change_hash(here, one) == change_hash(there, two)) == (here == there and is_same(one, two))


def test_text_cannot_move_between_fields_unnoticed() -> None:
    """Name and description that concatenate alike hash differently."""
    assert change_hash("s", {"name": "ab", "description": "c"}) != change_hash("s", {"name": "a", "description": "bc"})


def test_the_digest_is_a_short_form_of_the_hash() -> None:
    """`sha256:` and 16 hex characters."""
    full = change_hash("s", {"name": "a"})
    assert approval_digest(full) == f"sha256:{full[:16]}"
    assert len(full) == 64


def test_a_number_that_json_has_no_word_for_is_refused() -> None:
    """Infinity would make every list it is part of unreadable."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"maximum": float("inf")})
