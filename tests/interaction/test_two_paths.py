"""One message, two ways through the gateway: the fast path and the SDK give the same answer, whatever it says.

A member that JSON-RPC does not know makes the fast path hand a message on, and means nothing to the SDK.
"""

import json
from itertools import pairwise
from typing import Any

import pytest
from agents import META
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from wires import ENVELOPE, SILENCE, Answer, HttpWire, StdioWire, Wire, call_text

from smart_mcp_proxy.web.fast_path.messages import WireCall, parse_wire

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("two-paths")]

ABSENT = "absent"
PARSE_ERROR = -32700
words = st.text(max_size=6)
numbers = st.integers() | st.floats() | st.sampled_from([2**63, 2**64, -(2**80), 1e308, -0.0])
scalars = st.none() | st.booleans() | numbers | words
values = st.recursive(
    scalars, lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(words, deeper, max_size=3), max_leaves=8
)
tools = st.sampled_from(
    ["old:echo", "new:echo", "old__echo", "old:paint", "old:look", "old:erase", "old:none", "", ":"]
)
arguments = st.fixed_dictionaries(
    {"name": st.one_of(tools, tools, tools, values)},
    optional={
        "args": st.dictionaries(words, values, max_size=3) | values,
        "args_json": st.builds(json.dumps, values) | values,
        "intent": st.fixed_dictionaries({"operation_type": st.sampled_from(["read", "write"])}) | values,
        "digest": values,
        "unknown": values,
    },
)
listed = st.sampled_from(
    ["call_tool_write"] * 4 + ["call_tool_read", "call_tool_destructive", "read_output", "fly", ""]
)
meta = st.dictionaries(
    st.sampled_from(["progressToken", "progress_token", "traceparent", "example.org/a", META + "logLevel"]) | words,
    values,
    max_size=2,
)
ENVELOPE_CHANGES = [
    {},
    {META + "clientInfo": ABSENT},
    {META + "clientInfo": None},
    {META + "clientInfo": {}},
    {META + "clientInfo": {"name": 7}},
    {META + "clientCapabilities": ABSENT},
    {META + "clientCapabilities": []},
    {META + "clientCapabilities": ["roots"]},
    {META + "clientCapabilities": "roots"},
    {META + "clientCapabilities": 5},
    {META + "clientCapabilities": {"roots": 5}},
    {META + "protocolVersion": ABSENT},
    {META + "protocolVersion": "2025-11-25"},
    {META + "protocolVersion": 2026},
]
HEADER_CHANGES = [
    {},
    {"mcp-method": None},
    {"mcp-method": "tools/list"},
    {"mcp-name": None},
    {"mcp-name": "call_tool_read"},
    {"mcp-name": "=?base64?Y2FsbF90b29sX3dyaXRl?="},
    {"mcp-protocol-version": None},
    {"mcp-protocol-version": "2025-11-25"},
    {"mcp-protocol-version": "1999-01-01"},
    {"mcp-session-id": "unknown"},
    {"mcp-session-id": None},
    {"mcp-param-name": "x"},
    {"content-type": "application/json; charset=utf-8"},
    {"content-type": "application/jsonx"},
    {"content-type": "Application/JSON"},
    {"content-type": "text/plain"},
    {"content-type": None},
    {"accept": "application/json"},
    {"accept": "application/json;q=0, text/event-stream"},
    {"accept": "application/jsonx, text/event-stream"},
    {"accept": "*/*"},
    {"accept": "text/event-stream"},
    {"accept": None},
    {"origin": "http://evil.example"},
    {"host": "evil.example"},
]
mostly_good = st.fixed_dictionaries(
    {
        "jsonrpc": st.sampled_from(["2.0"] * 9 + ["1.0"]),
        "id": st.one_of(st.integers(1), st.integers(1), words, scalars),
        "method": st.sampled_from(["tools/call"] * 9 + ["tools/Call"]),
        "params": st.fixed_dictionaries(
            {"name": st.one_of(listed, listed, listed, values)},
            optional={"arguments": st.one_of(arguments, arguments, arguments, values), "_meta": meta, "task": values},
        ),
    }
)


def with_envelope(era: str, message: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The message with the envelope of its era, changed."""
    if era == "handshake":
        return message
    own = {key: value for key, value in (ENVELOPE | change).items() if value != ABSENT}
    return message | {"params": message["params"] | {"_meta": message["params"].get("_meta", {}) | own}}


async def answers(wire: Wire, text: bytes, headers: dict[str, Any] | None = None) -> list[tuple[int, Answer]]:
    """What both ways answer, and with which status."""
    found = []
    for message in (text, text.removesuffix(b"}") + b',"unknown":0}'):
        answer = await wire.tell(message, headers)
        found.append((wire.statuses[-1] if wire.statuses else 0, answer))
    return found


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(message=mostly_good, change=st.sampled_from(ENVELOPE_CHANGES), is_ascii=st.booleans(), is_compact=st.booleans())
@pytest.mark.long  # many generated examples
async def test_generated_calls_have_one_answer(
    wire: Wire, message: dict[str, Any], change: dict[str, Any], is_ascii: bool, is_compact: bool
) -> None:
    """Good ones, bad ones and odd ones."""
    separators = (",", ":") if is_compact else None
    document = with_envelope(wire.era, message, change)
    try:
        text = json.dumps(document, ensure_ascii=is_ascii, separators=separators).encode()
    except UnicodeEncodeError:
        text = json.dumps(document, separators=separators).encode()
    fast, sdk = await answers(wire, text)
    assert fast == sdk


literals = st.sampled_from(
    [
        *("0", "-0", "-0.0", "1.0", "1E5", "1e400", "1e-400", "18446744073709551616", "9" * 4_300, "9" * 4_301, "01"),
        *(
            "NaN",
            "Infinity",
            "null",
            "true",
            '""',
            '"\\ud800"',
            '"\\ud83d\\ude00"',
            '"\\u0000"',
            '"\u2028\x7f"',
            '"\t"',
        ),
        *("[]", "{}", '{"a":1,"a":2}', '{"a":1,"\\u0061":2}', "[" * 120 + "]" * 120, "[" * 130 + "]" * 130, " [ 1 ] "),
        *("'x'", "[1,]", "", "[" * 3_000),
    ]
)
"""Values at the edge of what JSON, Python or this gateway take, as text."""
ids = st.sampled_from(["7", '"7"', "-1", "9223372036854775808", '"\\u2028"', f'"{"x" * 10_000}"']) | literals
methods = st.sampled_from(
    ["tools/call"] * 6 + ["tools/list", "ping", "no/such", "tools\\/call", "t\\u006fols/call", ""]
)
places = st.sampled_from(["args", "arguments", "meta", "params", "message", "name"])


def without_place(found: tuple[int, Answer]) -> tuple[int, Any]:
    """The answer, but not at which byte the text is no JSON: the two texts are not equally long."""
    status, answer = found
    code = (answer or {}).get("error", {}).get("code")
    return status, answer if code != PARSE_ERROR else code


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(request_id=ids, method=methods, place=places, literal=literals, is_twice=st.booleans())
@pytest.mark.long  # many generated examples
async def test_texts_that_a_generator_of_values_never_writes_have_one_answer(
    wire: Wire, request_id: str, method: str, place: str, literal: str, is_twice: bool
) -> None:
    """Numbers and depths at the edges, members that are there twice, odd ids, text that is no JSON."""
    assume(place != "name" or "u0000" not in literal)  # the header that repeats the name cannot hold it
    extra = dict.fromkeys(("args", "arguments", "meta", "params", "message"), "")
    if place != "name":
        extra[place] = f'"x":{literal}' + (',"x":1' if is_twice else "")
    name = literal if place == "name" else '"call_tool_write"'
    envelope = json.dumps(ENVELOPE)[1:-1] if wire.era == "modern" else ""
    meta, args = (f"{{{','.join(filter(None, parts))}}}" for parts in ((envelope, extra["meta"]), (extra["args"],)))
    arguments = ",".join(filter(None, ('"name":"old:echo"', f'"args":{args}', extra["arguments"])))
    params = ",".join(
        filter(None, (f'"name":{name}', f'"arguments":{{{arguments}}}', f'"_meta":{meta}', extra["params"]))
    )
    parts = (
        '"jsonrpc":"2.0"',
        f'"id":{request_id}',
        f'"method":"{method}"',
        f'"params":{{{params}}}',
        extra["message"],
    )
    fast, sdk = await answers(wire, f"{{{','.join(filter(None, parts))}}}".encode())
    assert without_place(fast) == without_place(sdk)


@pytest.mark.parametrize("change", HEADER_CHANGES, ids=str)
async def test_headers_have_one_answer(wire: Wire, change: dict[str, Any]) -> None:
    """The fast path reads as few of them as the SDK does, and in the same way."""
    if not isinstance(wire, HttpWire):
        pytest.skip("a pipe has no headers")
    session = wire.session
    fast, sdk = await answers(wire, call_text(wire.era, wire.next_id(), "old:echo", {"text": "x"}), change)
    wire.session = session
    assert fast == sdk


@pytest.mark.parametrize("change", ENVELOPE_CHANGES, ids=str)
async def test_metadata_that_looks_like_an_envelope_has_one_answer(wire: Wire, change: dict[str, Any]) -> None:
    """Whatever it holds, in whichever era; and the connection serves the next call."""
    message = json.loads(call_text(wire.era, wire.next_id(), "old:echo", {}))
    text = json.dumps(with_envelope("modern", message, change)).encode()
    session = getattr(wire, "session", None)
    fast, sdk = await answers(wire, text)
    assert fast == sdk
    if session is not None:
        wire.session = session
    assert await wire.tell(call_text(wire.era, wire.next_id(), "old:echo", {})) is not SILENCE


@pytest.mark.parametrize("depth", [100, *range(122, 132)])
async def test_depth_has_one_answer(wire: Wire, depth: int) -> None:
    """Both ways end at the same level."""
    message = json.loads(call_text(wire.era, wire.next_id(), "old:echo", {}))
    message["params"]["arguments"]["args"] = {"text": []}
    text = json.dumps(message).replace("[]", "[" * depth + "]" * depth).encode()
    fast, sdk = await answers(wire, text)
    assert fast == sdk


@pytest.mark.parametrize("change", ENVELOPE_CHANGES, ids=str)
async def test_envelopes_have_one_answer(wire: Wire, change: dict[str, Any]) -> None:
    """In the modern era; in the handshake era they are metadata like any other."""
    message = json.loads(call_text("handshake", wire.next_id(), "old:echo", {}))
    text = json.dumps(with_envelope("modern", message, change)).encode()
    fast, sdk = await answers(wire, text)
    assert fast == sdk


async def test_the_first_answer_on_a_connection_is_the_same_as_later_ones(wire: Wire) -> None:
    """Calls without arguments, with null, and with metadata that belongs to nobody."""
    for tool in ("old:echo", "old:paint", "old:none"):
        for more in ({}, {"x": None}, {"colour": "red", "coats": 2}):
            text = call_text(wire.era, wire.next_id(), tool, more)
            fast, sdk = await answers(wire, text)
            assert fast == sdk
            assert fast[1] is not SILENCE


@pytest.mark.parametrize("wire", [("stdio", "handshake"), ("stdio", "modern")], ids="-".join, indirect=True)
@settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(
    ways=st.lists(st.sampled_from([b"{", b'{"unknown":1,']), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
    end=st.sampled_from([b"\n", b"\r\n"]),
)
async def test_every_call_is_answered_however_its_bytes_arrive(
    wire: StdioWire, ways: list[bytes], cuts: list[int], end: bytes
) -> None:
    """Alone in a write, with others of both ways, or in pieces."""
    ids = [wire.next_id() for _ in ways]
    calls = [way + call_text(wire.era, id_, "old:echo", {"text": "x"})[1:] for way, id_ in zip(ways, ids, strict=True)]
    text = b"".join(call + end for call in calls)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, stop in pairwise(places):
        await wire.write(text[start:stop])
    assert sorted([(await wire.read())["id"] for _ in ids]) == ids


def test_what_is_compared_really_goes_two_ways() -> None:
    """Else the comparison would prove nothing."""
    good = call_text("modern", 1, "old:echo", {"text": 'a"b: c'})
    assert isinstance(parse_wire(good), WireCall)
    assert parse_wire(good[:-1] + b',"unknown":0}') is None
