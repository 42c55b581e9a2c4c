"""Which first messages are answered without the SDK, with what, and what is left for it."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.greeting.answers import Answers
from smart_mcp_proxy.greeting.eras import EVERY_ERA, StdioEras, stdio_eras
from smart_mcp_proxy.greeting.record import default_answers

KNOWN, NAME = default_answers()
META = "io.modelcontextprotocol/"
CLIENT = {"name": "test", "version": "1"}
ENVELOPE = {META + "protocolVersion": "2026-07-28", META + "clientInfo": CLIENT, META + "clientCapabilities": {}}


def line(method: str, request_id: Any = 1, **params: Any) -> bytes:
    """One request."""
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode() + b"\n"


def hello(request_id: Any = 1, version: str = "2025-11-25", **more: Any) -> bytes:
    """A handshake's first message."""
    said = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
    return line("initialize", request_id, **(said | more))


def modern(method: str, request_id: Any = 1, **more: Any) -> bytes:
    """A request of the modern era."""
    return line(method, request_id, _meta=ENVELOPE | more.pop("_meta", {}), **more)


INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
CALL = line("tools/call", 7, name="retrieve_tools", arguments={"query": "x"})


@pytest.fixture
def answers() -> Answers:
    """Of the first start ever."""
    return Answers(KNOWN, NAME, EVERY_ERA)


def said(answers: Answers, *lines: bytes) -> list[Any]:
    """The ids that are answered."""
    return [json.loads(each)["id"] for each in answers.feed(b"".join(lines)).splitlines()]


def left(answers: Answers) -> list[str]:
    """What the gateway is handed, each with whether it was answered already."""
    return [f"{json.loads(each.line).get('method')}{' said' if each.said is not None else ''}" for each in answers.kept]


@pytest.mark.parametrize("version", sorted(KNOWN["initialize"]))
def test_a_handshake_of_every_version_is_answered_with_its_own(answers: Answers, version: str) -> None:
    """With the recorded bytes, and the list after it; the gateway is handed both, with what was said."""
    out = answers.feed(hello("a-1", version) + INITIALIZED + line("tools/list", 2) + line("ping", 3))
    first, listed, pong = out.splitlines()
    assert first == b'{"jsonrpc":"2.0","id":"a-1","result":%b}' % KNOWN["initialize"][version].encode()
    assert listed == b'{"jsonrpc":"2.0","id":2,"result":%b}' % KNOWN["tools/list"][version].encode()
    assert pong == b'{"jsonrpc":"2.0","id":3,"result":{}}'
    assert left(answers) == ["initialize said", "notifications/initialized", "tools/list said"]
    assert [each.said for each in answers.kept] == [first, None, listed]


def test_a_modern_client_is_answered(answers: Answers) -> None:
    """Its probe leaves nothing behind; its list says which era it is."""
    first, listed = answers.feed(modern("server/discover") + modern("tools/list", 2)).splitlines()
    assert first == b'{"jsonrpc":"2.0","id":1,"result":%b}' % KNOWN["server/discover"]["2026-07-28"].encode()
    assert json.loads(listed)["result"]["tools"]
    assert left(answers) == ["tools/list said"]
    assert said(answers, hello(3), modern("server/discover", 4)) == [4]
    assert left(answers) == ["tools/list said", "initialize"]


def test_a_probe_and_garbage_choose_no_era(answers: Answers) -> None:
    """A client may begin with a handshake after them; the gateway refuses the garbage."""
    garbage = b"\xff\xfe{not json\n[]\n{}\n\n"
    assert said(answers, modern("server/discover"), line("ping", 2), garbage, hello(3)) == [1, 2, 3]
    assert [each.line for each in answers.kept[:3]] == [b"\xff\xfe{not json", b"[]", b"{}"]
    assert len(answers.kept) == 4


def test_what_needs_the_gateway_is_kept_in_order(answers: Answers) -> None:
    """And what is fixed is answered meanwhile, except under an id that still waits."""
    lines = hello(), CALL, line("ping", "7"), line("ping", 8), line("prompts/list", 9), line("tools/list", 10)
    assert said(answers, *lines) == [1, 8, 10]
    assert left(answers) == ["initialize said", "tools/call", "ping", "prompts/list", "tools/list said"]
    assert [each.key for each in answers.list_unanswered()] == ["7", "7", "9"]


def test_one_session_is_opened_once(answers: Answers) -> None:
    """The SDK refuses the second handshake, and what is asked before the first one."""
    assert said(answers, line("tools/list"), hello(2)) == []
    assert said(Answers(KNOWN, NAME, EVERY_ERA), hello(), hello(2)) == [1]
    assert said(Answers(KNOWN, NAME, EVERY_ERA), hello(), modern("server/discover", 2), modern("tools/list", 3)) == [1]


def test_what_is_not_recorded_is_left_to_the_gateway() -> None:
    """A list that needs the catalog, say, or a version that nobody knows."""
    few = Answers({"initialize": KNOWN["initialize"]}, NAME, EVERY_ERA)
    assert said(few, hello(1, "2199-01-01")) == []
    few = Answers({"initialize": KNOWN["initialize"]}, NAME, EVERY_ERA)
    assert said(few, hello(), line("tools/list", 2), line("ping", 3)) == [1, 3]


UNUSUAL = [
    hello(clientInfo={"name": "test"}),
    hello(clientInfo={"name": NAME, "version": "1"}),
    hello(clientInfo={"name": 1, "version": "1"}),
    hello(clientInfo=CLIENT | {"icons": [{"src": 1}]}),
    hello(capabilities={"roots": {"listChanged": 1}}),
    hello(capabilities=[]),
    hello(capabilities={"sampling": True}),
    hello(capabilities={"unheard": {}}),
    hello(unheard=1),
    hello(_meta=[]),
    hello(version=7),  # type: ignore[arg-type]
    hello(1.5),
    hello(None),
    hello(True),
    hello(2**60),
    hello("\u00e9"),
    hello("a" * 300),
    hello().replace(b'"2.0"', b'"1.0"'),
    hello().replace(b'{"jsonrpc"', b'{"id": 1, "jsonrpc"'),
    hello().replace(b'{"jsonrpc"', b'{"extra": 1, "jsonrpc"'),
    hello(clientInfo={"name": "x" * 20_000, "version": "1"}),
    hello(clientInfo={"name": "\ud800", "version": "1"}),
    hello().replace(b'"1"}', b"NaN}"),
    hello(capabilities={"experimental": {"a": json.loads("[" * 120 + "]" * 120)}}),
    modern("server/discover", _meta={META + "protocolVersion": "2199-01-01"}),
    modern("server/discover", _meta={META + "clientInfo": {"name": "test"}}),
    modern("server/discover", _meta={META + "logLevel": "info"}),
    modern("server/discover", unheard=1),
    modern("tools/list", cursor="x"),
    modern("ping"),
    line("ping", params=1),
    line("ping").replace(b"{}}", b"[]}"),
]


@pytest.mark.parametrize("unusual", UNUSUAL, ids=range(len(UNUSUAL)))
def test_anything_unusual_is_left_to_the_sdk(answers: Answers, unusual: bytes) -> None:
    """It knows what is wrong with it."""
    assert answers.feed(unusual) == b""
    assert [each.line + b"\n" for each in answers.kept] == [unusual]


def test_what_real_clients_say_of_themselves_is_not_unusual() -> None:
    """Titles, icons, capabilities of both eras, progress tokens."""
    rich = CLIENT | {"title": "T", "websiteUrl": "https://x", "icons": [{"src": "a", "sizes": ["1x1"]}]}
    can = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}, "url": {}}, "experimental": {}}
    assert said(Answers(KNOWN, NAME, EVERY_ERA), hello(clientInfo=rich, capabilities=can), line("tools/list", 2)) == [
        1,
        2,
    ]
    with_token = {"progressToken": 3, "traceparent": "00-x"}
    assert said(
        Answers(KNOWN, NAME, EVERY_ERA), hello(0, _meta=with_token), line("tools/list", 0, _meta=with_token)
    ) == [0, 0]
    assert said(Answers(KNOWN, NAME, EVERY_ERA), modern("server/discover", _meta=with_token)) == [1]
    without = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert said(Answers(KNOWN, NAME, EVERY_ERA), json.dumps(without).encode() + b"\r\n") == [1]


STREAM = b"".join(
    [modern("server/discover"), b"x\n", hello(2), INITIALIZED, CALL, line("tools/list", 3), line("ping", 4), b'{"half']
)


@pytest.mark.long  # a third of a second of processor time
@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_the_same_bytes_have_the_same_answers_however_they_come(cuts: list[int]) -> None:
    """So that another process finds out what was answered."""
    whole, parts = Answers(KNOWN, NAME, EVERY_ERA), Answers(KNOWN, NAME, EVERY_ERA)
    edges = [0, *sorted(cuts), len(STREAM)]
    out = b"".join(parts.feed(STREAM[start:end]) for start, end in itertools.pairwise(edges))
    assert out == whole.feed(STREAM)
    assert (parts.kept, parts.rest) == (whole.kept, whole.rest)
    assert parts.rest == b'{"half'


HEEDING = stdio_eras("auto", "AUTO")
NOT_OFFERED = [
    (stdio_eras("auto", "DYNAMIC"), "test", "MCPPROXY_ROUTING_TYPE=DYNAMIC"),
    (stdio_eras("handshake", "CALL_TOOL"), "test", "MCPPROXY_STDIO_ERA=handshake"),
    (HEEDING, "claude-code", "MCPPROXY_ROUTING_TYPE=AUTO"),
]


def named(method: str, request_id: Any, client: str) -> bytes:
    """A request of the modern era from a client of this name."""
    return modern(method, request_id, _meta={META + "clientInfo": {"name": client, "version": "1"}})


@pytest.mark.parametrize(("eras", "client", "cause"), NOT_OFFERED)
def test_an_era_that_is_not_offered_is_refused_and_chooses_nothing(eras: StdioEras, client: str, cause: str) -> None:
    """A probe as a server of the handshake era refuses it, twice; a client that does not probe is told the setting."""
    answers = Answers(KNOWN, NAME, eras)
    lines = [named("server/discover", 1, client), named("server/discover", 2, client), b"{ garbage\n"]
    replies = [
        json.loads(each) for each in answers.feed(b"".join([*lines, named("tools/list", 3, client)])).splitlines()
    ]
    assert [(reply["id"], reply["error"]["code"]) for reply in replies] == [(1, -32601), (2, -32601), (3, -32022)]
    assert all(cause in reply["error"]["message"] for reply in replies)
    assert all("MCPPROXY_STDIO_ERA=both" in reply["error"]["message"] for reply in replies)
    assert replies[2]["error"]["data"] == {
        "supported": sorted(KNOWN["initialize"], reverse=True),
        "requested": "2026-07-28",
    }
    assert said(answers, hello(4), line("tools/list", 5)) == [4, 5]
    garbage, *others = answers.kept
    assert garbage.line == b"{ garbage"
    assert [each.said is not None for each in others] == [True, True]


@pytest.mark.parametrize("routing", ["CALL_TOOL", "DYNAMIC", "AUTO"])
def test_both_eras_are_offered_where_the_setting_says_so(routing: str) -> None:
    """Whatever the routing, and to a client that is known to heed changes."""
    assert said(Answers(KNOWN, NAME, stdio_eras("both", routing)), named("server/discover", 1, "claude-code")) == [1]
    assert stdio_eras("both", routing).offers_modern("claude-code")


def test_a_client_that_nobody_has_seen_keeps_its_choice_under_auto() -> None:
    """As does one that was seen not to heed changes, and one without a name."""
    for client in ("my agent", "codex-mcp-client", ""):
        assert HEEDING.offers_modern(client)
    assert said(Answers(KNOWN, NAME, HEEDING), named("server/discover", 1, "my agent")) == [1]


def test_a_session_that_is_open_is_left_to_the_sdk() -> None:
    """What a client of the handshake era sends in the other one is not answered here."""
    answers = Answers(KNOWN, NAME, stdio_eras("auto", "DYNAMIC"))
    assert said(answers, hello(1), named("server/discover", 2, "test"), named("tools/list", 3, "test")) == [1]
    assert left(answers) == ["initialize said", "server/discover", "tools/list"]
