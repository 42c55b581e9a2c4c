"""Bad messages of an agent: each has an answer of its own, nothing is sent on, and the connection lives.

The ids are those of the project's list of bad inputs.
"""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx2
import pytest
from agents import MODERN_VERSION, Era
from plain_http import plain_client
from transports import in_memory, opened_gateway, spawned
from wires import ENVELOPE, LINE_LIMIT_BYTES, SILENCE, HttpWire, StdioWire, Wire, call_text, http_wire

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("bad-input")]

PARSE, REQUEST, METHOD, PARAMS, HEADER, VERSION = -32700, -32600, -32601, -32602, -32020, -32022
BODY_LIMIT_BYTES = 4 * 1024 * 1024
ID = "the id"
"""Stands for the id of the bad request, where the answer repeats it."""

ANSWER_S = 60
"""The tool that the bad messages name hangs: an answer within this time does not come from it."""


class Row(NamedTuple):
    """One way to spoil a good call.

    Attributes:
        name: Its id in the list of bad inputs, and what is wrong.
        old: What is replaced in the good message; empty replaces all of it.
        new: What stands there instead.
        code: Of the JSON-RPC error.
        id: Of the JSON-RPC error.
        words: Part of its message.
    """

    name: str
    old: bytes
    new: bytes
    code: int
    id: Any = None
    words: str = ""


NO_JSON = [
    Row("B02 no json", b"", b"{not json", PARSE, words="not valid JSON"),
    Row("B02 cut off", b"}}}", b"", PARSE),
    Row("B02 two values", b'"jsonrpc":"2.0"', b'"jsonrpc":"2.0"} {"a":1', PARSE),
    Row("B15 NaN", b'"ARGS"', b'{"a":NaN}', PARSE),
    Row("B15 Infinity", b'"ARGS"', b'{"a":-Infinity}', PARSE),
    Row("B15 1e999", b'"ARGS"', b'{"a":1e999}', PARSE),
    Row("B16 5,000 digits", b'"ARGS"', b'{"a":' + b"9" * 5_000 + b"}", PARSE),
    Row("B16 an id of 5,000 digits", b'"id":ID', b'"id":' + b"9" * 5_000, PARSE),
    Row("B17 130 levels", b'"ARGS"', b"[" * 130 + b"]" * 130, PARSE, words="deeper than 128 levels"),
    Row("B17 500 levels", b'"ARGS"', b"[" * 500 + b"]" * 500, PARSE),
    Row("B17 20,000 levels", b'"ARGS"', b'{"a":' * 20_000 + b"1" + b"}" * 20_000, PARSE),
    Row("B19 lone surrogate", b'"ARGS"', rb'{"a":"\ud800"}', PARSE),
    Row("B19 swapped surrogates", b'"ARGS"', rb'{"a":"\udc00\ud800"}', PARSE),
    Row("B21 byte order mark", b'{"jsonrpc"', b'\xef\xbb\xbf{"jsonrpc"', PARSE),
    Row("B21 invalid UTF-8", b'"ARGS"', b'{"a":"\xff"}', PARSE),
    Row("B21 invalid UTF-8 in a name", b'"call_tool_write"', b'"call_tool_\xc3"', PARSE),
    Row("B21 UTF-16", b"", '{"jsonrpc":"2.0"}'.encode("utf-16"), PARSE),
]
NO_REQUEST = [
    Row("B03 empty batch", b"", b"[]", REQUEST, words="Batches"),
    Row("B03 batch", b"", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', REQUEST, words="Batches"),
    Row("B03 text", b"", b'"tools/call"', REQUEST),
    Row("B03 null", b"", b"null", REQUEST),
    Row("B04 no jsonrpc", b'"jsonrpc":"2.0",', b"", REQUEST, ID, "'jsonrpc'"),
    Row("B04 jsonrpc 1.0", b'"jsonrpc":"2.0"', b'"jsonrpc":"1.0"', REQUEST, ID),
    Row("B04 jsonrpc as number", b'"jsonrpc":"2.0"', b'"jsonrpc":2.0', REQUEST, ID),
    Row("B05 id null", b'"id":ID', b'"id":null', REQUEST, words="'id'"),
    Row("B05 id 1.5", b'"id":ID', b'"id":1.5', REQUEST),
    Row("B05 id 1.0", b'"id":ID', b'"id":1.0', REQUEST),
    Row("B05 id true", b'"id":ID', b'"id":true', REQUEST),
    Row("B05 id object", b'"id":ID', b'"id":{}', REQUEST),
    Row("B05 id array", b'"id":ID', b'"id":[]', REQUEST),
    Row("B05 no method", b'"method":"tools/call",', b"", REQUEST, ID, "'method'"),
    Row("B05 method null", b'"tools/call"', b"null", REQUEST, ID),
    Row("B09 unknown method", b'"tools/call"', b'"tools/fly"', METHOD, ID),
    Row("B09 empty method", b'"tools/call"', b'""', METHOD, ID),
    Row("B18 name twice", b'"name":"old:hang"', b'"name":"old:echo","name":"old:hang"', REQUEST, ID, "twice"),
    Row("B18 params twice", b'"params":{', b'"params":{},"params":{', REQUEST, ID),
    Row("B18 tool twice, spaced", b'"name":"call', b'"name" :"retrieve_tools","name":"call', REQUEST, ID),
    Row("B18 escaped key", b'"name":"call', rb'"na\u006de":"x","name":"call', REQUEST, ID),
    Row("B18 twice in the arguments", b'"ARGS"', b'{"a":1,"a":2}', REQUEST, ID),
]
NO_PARAMS = [
    Row(
        "B10 params array", b"", b'{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":[]}', PARAMS, ID, "'params'"
    ),
    Row("B10 params text", b"", b'{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":"x"}', PARAMS, ID),
    Row("B10 params number", b"", b'{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":0}', PARAMS, ID),
    Row("B10 no params", b"", b'{"jsonrpc":"2.0","id":ID,"method":"tools/call"}', PARAMS, ID),
    Row("B10 no name", b'"name":"call_tool_write",', b"", PARAMS, ID),
    Row("B10 name null", b'"name":"call_tool_write"', b'"name":null', PARAMS, ID),
    Row("B10 name number", b'"name":"call_tool_write"', b'"name":7', PARAMS, ID),
    Row("B10 arguments text", b'"arguments":{', b'"arguments":"x","other":{', PARAMS, ID),
    Row("B10 arguments array", b'"arguments":{', b'"arguments":[],"other":{', PARAMS, ID),
    Row("B10 unlisted tool", b'"name":"call_tool_write"', b'"name":"old:hang"', PARAMS, ID, "Unknown tool"),
]


def spoiled(wire: Wire, row: Row) -> tuple[bytes, Any]:
    """The bad message, and the id that its answer has."""
    request_id = wire.next_id()
    good = call_text(wire.era, "ID", "old:hang", "ARGS").replace(b'"id":"ID"', b'"id":ID')
    assert row.old in good
    bad = good.replace(row.old, row.new, 1) if row.old else row.new
    bad = bad.replace(b'"id":ID', b'"id":%d' % request_id).replace(b'"ARGS"', b'{"label":"unwanted"}')
    return bad, request_id if row.id is ID else row.id


@pytest.mark.parametrize("row", NO_JSON + NO_REQUEST + NO_PARAMS, ids=lambda row: row.name)
async def test_a_bad_message_has_its_own_answer(wire: Wire, ledger: Path, row: Row) -> None:
    """With the code and the id that JSON-RPC asks for, at once, and no upstream hears of it."""
    bad, answer_id = spoiled(wire, row)
    with anyio.fail_after(ANSWER_S):
        answer = await wire.tell(bad)
    assert answer is not SILENCE
    # What a header of modern HTTP has to repeat is compared with it first.
    is_in_header = wire.era == "modern" and bool(wire.statuses) and b'"name"' in row.old and row.code == PARAMS
    codes = (row.code, HEADER) if is_in_header else (row.code,)
    assert answer["error"]["code"] in codes, answer
    assert answer["id"] == answer_id
    assert row.words in answer["error"]["message"]
    assert "pydantic" not in json.dumps(answer)
    await wire.assert_well()
    assert "unwanted" not in ledger.read_text("utf-8")
    if wire.statuses:
        assert 400 in wire.statuses[-3:-2] or row.code in (METHOD, PARAMS), wire.statuses[-3:]


NOBODY = {"off": {"command": "none", "disabled": True}}
PROMPT, FOR = {"type": "ref/prompt", "name": "x"}, {"name": "a", "value": ""}


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("tools/list", {"cursor": 5}, "'params.cursor' is not what the method takes"),
        ("prompts/get", {}, "'params.name' is missing"),
        ("completion/complete", {"argument": FOR}, "'params.ref' is missing"),
        ("completion/complete", {"ref": PROMPT}, "'params.argument' is missing"),
        ("completion/complete", {"ref": {"type": "ref/prompt"}, "argument": FOR}, "'params.ref.name' is missing"),
        ("completion/complete", {"ref": {"type": "ref/resource"}, "argument": FOR}, "'params.ref.uri' is missing"),
        ("completion/complete", {"ref": {"type": "x"}, "argument": FOR}, "none of 'ref/prompt', 'ref/resource'"),
        ("completion/complete", {"ref": "x", "argument": FOR}, "'params.ref' is not what the method takes"),
    ],
)
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_parameters_of_the_wrong_shape_are_named(
    tmp_path: Path, era: Era, method: str, params: dict[str, Any], words: str
) -> None:
    """B10: which one it is by the protocol's names, and whether it is missing or something else."""
    async with opened_gateway(tmp_path, NOBODY) as gateway, in_memory(gateway, era) as agent:
        error = (await agent.request(method, **params))["error"]
        assert error["code"] == PARAMS
        assert error["message"].startswith("Invalid request parameters: ") and words in error["message"]


async def test_a_list_of_one_page_has_no_other(wire: Wire) -> None:
    """A made-up cursor is an error, and says how to begin; an empty one is none."""
    pages = {}
    for cursor in ("made up", ""):
        params = json.dumps({"cursor": cursor, "_meta": ENVELOPE if wire.era == "modern" else {}})
        text = f'{{"jsonrpc":"2.0","id":{wire.next_id()},"method":"tools/list","params":{params}}}'
        pages[cursor] = await wire.tell(text.encode(), {"mcp-method": "tools/list", "mcp-name": None})
    assert pages["made up"]["error"]["code"] == PARAMS
    assert "Leave it out" in pages["made up"]["error"]["message"]
    assert pages[""]["result"]["tools"]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b'{"jsonrpc":"2.0","method":"notifications/unheard-of"}', id="B11"),
        pytest.param(b'{"jsonrpc":"2.0","method":"notifications/unheard-of","params":{"a":1}}', id="B11 params"),
        pytest.param(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}', id="B12"),
        pytest.param(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}', id="B12 []"),
        pytest.param(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}', id="B12 none"),
        pytest.param(b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"call_tool_write"}}', id="B11 call"),
    ],
)
async def test_a_notification_is_never_answered(wire: Wire, message: bytes) -> None:
    """Not even a bad one: nobody waits for it."""
    assert await wire.hear(message) is SILENCE
    await wire.assert_well()


@pytest.mark.parametrize(
    "message",
    [b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}'],
    ids=["B14 result", "B14 error"],
)
async def test_an_answer_that_nobody_asked_for_is_ignored(wire: Wire, message: bytes) -> None:
    """Modern HTTP has no way for one at all, and says so."""
    answer = await wire.hear(message)
    if wire.statuses and wire.era == "modern":
        assert answer is not None
        assert answer["error"]["code"] == REQUEST
    else:
        assert answer is SILENCE
    await wire.assert_well()


@pytest.mark.parametrize("request_id", [0, -1, "", 2**63, 2**70, "7", "x" * 10_000, "\u2028\U0001f600\x00"])
async def test_any_string_or_integer_is_an_id(wire: Wire, request_id: Any) -> None:
    """B06: it comes back as it was sent."""
    for member in (b"{", b'{"unknown":1,'):
        answer = await wire.tell(member + call_text(wire.era, request_id, "old:echo", {})[1:])
        assert answer is not None
        assert answer["id"] == request_id
        assert type(answer["id"]) is type(request_id)
        assert "result" in answer


@pytest.mark.parametrize(
    "text", ["\x00\x1f", "\u202eabc\u202c", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "e\u0301"]
)
async def test_characters_reach_the_upstream_as_they_are(wire: Wire, text: str) -> None:
    """B20: controls, right-to-left marks, joined emoji, combining marks."""
    for member in (b"{", b'{"unknown":1,'):
        arguments = {"spell": text}  # in the answer, what commands a terminal would be taken out
        answer = await wire.tell(member + call_text(wire.era, wire.next_id(), "old:echo", arguments)[1:])
        assert answer is not None
        assert json.loads(answer["result"]["content"][0]["text"]) == [ord(character) for character in text]


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, -(2**63) - 1, 10**4_000, 0.1, 1e308, -0.0])
async def test_numbers_reach_the_upstream_as_they_are(wire: Wire, number: float) -> None:
    """B16: however large, where they can be written."""
    for member in (b"{", b'{"unknown":1,'):
        answer = await wire.tell(member + call_text(wire.era, wire.next_id(), "old:echo", {"n": number})[1:])
        assert answer is not None
        assert json.loads(answer["result"]["content"][0]["text"]) == {"n": number}


async def call_in_flight(wire: Wire, ledger: Path, member: bytes, request_id: Any) -> "asyncio.Task[Any]":
    """A call that hangs, and that the upstream has got."""
    label = f"flight-{id(wire)}-{wire.next_id()}"
    message = member + call_text(wire.era, request_id, "old:hang", {"label": label})[1:]
    task = asyncio.create_task(wire.tell(message) if isinstance(wire, HttpWire) else wire.send(message))
    async with asyncio.timeout(10):
        while f"started {label}" not in ledger.read_text("utf-8"):
            await asyncio.sleep(0.01)
    return task


@pytest.mark.parametrize("first", [b"{", b'{"unknown":1,'], ids=["fast", "sdk"])
@pytest.mark.parametrize("second", [b"{", b'{"unknown":1,'], ids=["fast", "sdk"])
@pytest.mark.parametrize("used", [lambda key: key, str], ids=["B07", "B08 as text"])
async def test_an_id_in_use_is_refused(wire: Wire, ledger: Path, first: bytes, second: bytes, used: Any) -> None:
    """The first request goes on, and can be cancelled; 7 and "7" are one id, as the SDK has it."""
    if wire.statuses and wire.era == "modern":
        pytest.skip("every request of modern HTTP is a world of its own")
    request_id = wire.next_id()
    flying = await call_in_flight(wire, ledger, first, request_id)
    answer = await wire.tell(second + call_text(wire.era, used(request_id), "old:echo", {})[1:])
    assert answer is not None
    assert answer["error"]["code"] == REQUEST
    assert answer["id"] == used(request_id)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    await wire.send(json.dumps(cancel).encode())
    if wire.statuses:
        assert (await asyncio.wait_for(flying, 10))["id"] == request_id
    answer = await wire.tell(second + call_text(wire.era, request_id, "old:echo", {})[1:])
    assert answer is not None
    assert "result" in answer, "free again"


@pytest.mark.parametrize("member", [b"{", b'{"unknown":1,'], ids=["fast", "sdk"])
async def test_a_call_that_is_cancelled_at_once_is_not_left_behind(wire: Wire, ledger: Path, member: bytes) -> None:
    """B13: both lines come in one piece; a call that has not begun is never sent, the SDK begins it at once."""
    if not isinstance(wire, StdioWire):
        pytest.skip("on HTTP the cancellation is another request")
    request_id = wire.next_id()
    label = f"at-once-{id(wire)}-{request_id}"
    call = member + call_text(wire.era, request_id, "old:hang", {"label": label})[1:]
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    assert await wire.hear(call + b"\n" + json.dumps(cancel).encode()) is SILENCE
    await wire.assert_well()
    notes = ledger.read_text("utf-8").splitlines()
    assert f"started {label}" not in notes or (member != b"{" and f"cancelled {label}" in notes)


async def test_blank_lines_and_carriage_returns_are_fine(wire: Wire) -> None:
    """B01, B22."""
    call = call_text(wire.era, wire.next_id(), "old:echo", {})
    if isinstance(wire, StdioWire):
        assert await wire.hear(b"\n   \n\t\r\n") is SILENCE
    for line_end in (b"\r", b"  \r", b"\t"):
        answer = await wire.tell(b" " + call + line_end)
        assert answer is not None
        assert "result" in answer


async def test_a_message_over_the_limit_is_refused_and_the_next_one_is_served(wire: Wire, ledger: Path) -> None:
    """B23: by status 413 on HTTP; on a pipe with the id, where that stands at an end of the message."""
    if isinstance(wire, HttpWire):
        call = call_text(wire.era, wire.next_id(), "old:hang", {"label": "unwanted", "x": "x" * BODY_LIMIT_BYTES})
        assert await wire.tell(call) is not SILENCE
        assert wire.statuses[-1] == 413
    else:
        for member in (b'{"unknown":1,', b"{"):
            request_id = wire.next_id()
            arguments = {"label": "unwanted", "x": "x" * LINE_LIMIT_BYTES}
            answer = await wire.tell(member + call_text(wire.era, request_id, "old:hang", arguments)[1:])
            assert answer is not None
            assert answer["error"]["code"] == REQUEST
            assert f"{LINE_LIMIT_BYTES} are allowed" in answer["error"]["message"]
            assert answer["id"] == (request_id if member == b"{" else None)
    await wire.assert_well()
    assert "unwanted" not in ledger.read_text("utf-8")


async def test_a_second_initialize_is_refused(wire: Wire) -> None:
    """B34: and the session stays what it was."""
    params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": wire.next_id(), "method": "initialize", "params": params}
    answer = await wire.tell(json.dumps(message).encode())
    assert answer is not None
    assert answer["error"]["code"] in (REQUEST, METHOD, PARAMS, VERSION)
    await wire.assert_well()


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
async def test_an_envelope_without_its_keys_is_refused(wire: Wire, ledger: Path, missing: str) -> None:
    """B26: in the era that has one."""
    if wire.era == "handshake":
        pytest.skip("no envelope")
    call = json.loads(call_text(wire.era, wire.next_id(), "old:hang", {"label": "unwanted"}))
    call["params"]["_meta"] = {key: value for key, value in ENVELOPE.items() if not key.endswith(missing)}
    answer = await wire.tell(json.dumps(call).encode())
    assert answer is not None
    assert (answer["error"]["code"], answer["id"]) == (PARAMS, call["id"])
    await wire.assert_well()
    assert "unwanted" not in ledger.read_text("utf-8")


@pytest.mark.parametrize("version", ["1999-01-01", "2099-01-01", "", "x"])
async def test_an_unknown_version_is_answered_with_those_that_are_served(wire: Wire, version: str) -> None:
    """B25: in the modern era."""
    if wire.era == "handshake":
        pytest.skip("the handshake negotiates")
    call = json.loads(call_text(wire.era, wire.next_id(), "old:echo", {}))
    call["params"]["_meta"] = {
        key: version if key.endswith("protocolVersion") else value for key, value in ENVELOPE.items()
    }
    answer = await wire.tell(json.dumps(call).encode(), {"mcp-protocol-version": version})
    assert answer is not None
    if version:
        assert answer["error"]["code"] == VERSION
        assert MODERN_VERSION in answer["error"]["data"]["supported"]
    assert "error" in answer
    await wire.assert_well()


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp-method": "tools/list"}, HEADER),
        ({"mcp-method": ""}, HEADER),
        ({"mcp-method": "TOOLS/CALL"}, HEADER),
        ({"mcp-name": "retrieve_tools"}, HEADER),
        ({"mcp-name": ""}, HEADER),
        ({"mcp-name": "=?base64?Y2FsbF90b29sX3dyaXRl?="}, None),
        ({"mcp-name": "=?base64?Y2FsbF90b29sX3JlYWQ=?="}, HEADER),
        ({"mcp-name": "=?base64?%%%?="}, HEADER),
    ],
    ids=str,
)
async def test_headers_have_to_agree_with_the_message(
    wire: Wire, ledger: Path, headers: dict[str, str], code: int | None
) -> None:
    """B27: what a proxy in between reads is what is done."""
    if not isinstance(wire, HttpWire) or wire.era == "handshake":
        pytest.skip("no such headers")
    call = call_text(wire.era, wire.next_id(), "old:echo", {"text": "by-header"})
    answer = await wire.tell(call, headers)
    assert answer is not None
    assert answer.get("error", {}).get("code") == code, answer
    assert wire.statuses[-1] == (200 if code is None else 400)
    await wire.assert_well()


@pytest.mark.parametrize("name", ["mcp-name", "mcp-method", "mcp-protocol-version"])
async def test_a_header_that_comes_twice_is_refused(inner: dict[str, Any], name: str) -> None:
    """B27: even where both are the same, nobody knows which one a proxy has read."""
    async with http_wire(inner["whole"][1], "modern") as wire, plain_client() as client:
        call = call_text("modern", 1, "old:echo", {})
        headers = list(wire.headers(call).items())
        reply = await client.post(
            f"{inner['whole'][1]}/mcp", content=call, headers=[*headers, (name, dict(headers)[name])]
        )
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == HEADER


@pytest.mark.long  # starts programs, a second of it
async def test_a_call_before_initialize_is_told_so(tmp_path: Path, inner: dict[str, Any]) -> None:
    """B24: and the handshake can still be made."""
    async with spawned(tmp_path, {}) as process:
        wire = StdioWire("handshake", process)
        answer = await wire.tell(call_text("handshake", 1, "old:echo", {}))
        assert answer is not None
        assert answer["error"]["code"] == PARAMS
        assert "initialize" in answer["error"]["message"]
    async with plain_client() as client:
        wire = HttpWire("handshake", f"{inner['whole'][1]}/mcp", client)
        answer = await wire.tell(call_text("handshake", 1, "old:echo", {}))
        assert wire.statuses == [400]
        assert answer is not None
        assert "error" in answer
        await wire.greet()


@pytest.mark.parametrize("session", ["unknown", "x" * 50_000, "\x7f", "0" * 32, "_GET_stream"], ids=range(5))
async def test_a_session_that_is_not_open_is_not_found(inner: dict[str, Any], session: str) -> None:
    """B31: whatever its id looks like."""
    async with http_wire(inner["whole"][1], "handshake") as wire:
        own, wire.session = wire.session, session
        for member in (b"{", b'{"unknown":1,'):
            try:
                await wire.tell(member + call_text("handshake", 1, "old:echo", {})[1:])
            except httpx2.HTTPError:
                continue  # the connection was closed on a head of that size
            assert wire.statuses[-1] in (400, 404, 431)
        wire.session = own
        await wire.assert_well()


@pytest.mark.parametrize("version", ["1999-01-01", "2099-01-01", "x"])
async def test_the_handshake_negotiates_a_version(inner: dict[str, Any], version: str) -> None:
    """B25: an unknown one is answered with one that is served."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with plain_client() as client:
        wire = HttpWire("handshake", f"{inner['whole'][1]}/mcp", client)
        answer = await wire.tell(json.dumps(message).encode())
        assert answer is not None
        assert answer["result"]["protocolVersion"] == "2025-11-25"


async def test_what_an_era_has_not_is_no_way_around_it(inner: dict[str, Any]) -> None:
    """A session of the handshake era does not let a modern call past the header checks."""
    era: Era = "modern"
    async with http_wire(inner["whole"][1], "handshake") as wire:
        call = call_text(era, wire.next_id(), "old:echo", {})
        answer = await wire.tell(call, {"mcp-protocol-version": MODERN_VERSION})
        assert answer is not None
        assert answer["error"]["code"] == HEADER
