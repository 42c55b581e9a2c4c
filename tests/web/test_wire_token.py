"""The progress token of a call as the fast path reads it: wherever it stands, and whatever looks like it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.web.fast_path.messages import WireCall, WireInitialized, parse_wire

LOOKALIKES = ['"progressToken":5', ',"progressToken":5}', '{"progressToken":5,', "progressToken", '"', "\\", ","]
texts = st.text(max_size=4) | st.sampled_from(LOOKALIKES)
values = st.recursive(
    st.integers(-9, 9) | texts,
    lambda deeper: st.lists(deeper, max_size=2) | st.dictionaries(texts | st.just("progressToken"), deeper, max_size=2),
    max_leaves=4,
)
SDKS = ("progressToken", "progress_token", "ui")
"""Members that do not go with the rest: the token itself, and what the SDK reads."""
others = st.dictionaries(texts.filter(lambda name: name not in SDKS), values, max_size=3)
tokens = st.integers(-(2**70), 2**70) | texts | st.text(min_size=100, max_size=1_200)


@pytest.mark.long  # a third of a second of processor time
@given(others, tokens, st.integers(0, 3), st.booleans(), st.booleans())
def test_a_token_is_read_wherever_it_stands(
    rest: dict[str, Any], token: int | str, place: int, is_compact: bool, is_ascii: bool
) -> None:
    """What goes with it is the same as without it, and what only looks like a token is none."""
    members = list(rest.items())
    members.insert(place, ("progressToken", token))
    for meta, expected in ((dict(members), token), (rest, None)):
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "paint", "_meta": meta}}
        text = json.dumps(message, ensure_ascii=is_ascii, separators=(",", ":") if is_compact else None)
        call = parse_wire(text.encode())
        assert isinstance(call, WireCall)
        assert (call.token, call.meta.rest) == (expected, rest)
        assert type(call.token) is type(expected)


def test_a_token_that_stands_twice_is_the_sdks_to_refuse() -> None:
    """Readers differ in which of the two they take."""
    for meta in ('{"progressToken":1,"progressToken":2}', '{"progressToken":1,"a":1,"progressToken":2}'):
        text = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"paint","_meta":{meta}}}}}'
        assert parse_wire(text.encode()) is None


def test_a_client_says_that_it_is_initialized_with_nothing_else_in_it() -> None:
    """What else it may say, and what stands twice, is the SDK's to judge."""
    plain = '"jsonrpc":"2.0","method":"notifications/initialized"'
    for text in (f"{{{plain}}}", f'{{{plain},"params":{{}}}}', f'{{"params": {{ }},\n {plain} }}'):
        assert isinstance(parse_wire(text.encode()), WireInitialized)
    for more in (
        '"params":{"_meta":{}}',
        '"params":null',
        '"params":[]',
        '"id":1',
        '"x":1',
        '"jsonrpc":"2.0"',
        '"params":{},"params":{}',
        '"method":"notifications/initialized"',
    ):
        assert parse_wire(f"{{{plain},{more}}}".encode()) is None, more
