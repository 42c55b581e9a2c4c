"""Tool results on the wire: ours, an upstream's, and what an era makes of them."""

import json
from itertools import pairwise
from threading import get_ident
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy import __version__
from smart_mcp_proxy.errors import UpstreamTimeoutError
from smart_mcp_proxy.gateway.results.cleaning import fence
from smart_mcp_proxy.gateway.results.repair import repair_result
from smart_mcp_proxy.gateway.results.results import (
    OFF_LOOP_BYTES,
    SERVER_NAME,
    SHORT_BYTES,
    build_structured_result,
    error_result,
    fit_to_era,
    is_said,
    may_need_cleaning,
    read_facts,
    rewrite_result,
)
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.raw_result import RawResult

ERAS: tuple[Era, ...] = ("handshake", "modern")
INFO = {"io.modelcontextprotocol/serverInfo": {"name": SERVER_NAME, "version": __version__}}


def fitted(raw: bytes, era: Era) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(fit_to_era(RawResult(raw), era).text)
    return value


def test_an_error_is_a_result_that_says_all_there_is_to_know() -> None:
    """Code, message, hint and delivery always; when to try again and facts where known."""
    error = UpstreamTimeoutError("Too slow.", hint="Wait.", delivery="unknown", retry_after_s=2.5, data={"a": 1})
    result = json.loads(error_result(error).text)
    assert result["isError"] is True
    assert result["structuredContent"] == {
        "error": {
            "code": "upstream_timeout",
            "message": "Too slow.",
            "hint": "Wait.",
            "delivery": "unknown",
            "retry_after_s": 2.5,
            "data": {"a": 1},
        }
    }
    assert [json.loads(block["text"]) for block in result["content"]] == [result["structuredContent"]]
    bare = json.loads(error_result(UpstreamTimeoutError("Too slow.")).text)["structuredContent"]["error"]
    assert set(bare) == {"code", "message", "hint", "delivery"}


@pytest.mark.parametrize("value", [{}, {"tools": [{"name": 'é\n"x" ' * 40}]}, {"isError": {"_meta": None}}])
@pytest.mark.parametrize("is_error", [False, True])
def test_an_own_result_knows_what_a_reader_would_find_in_it(value: dict[str, Any], is_error: bool) -> None:
    """It is not read again to be fitted to an era."""
    result = build_structured_result(value, is_error=is_error)
    assert result.outline == RawResult(result.text).outline
    assert set(fitted(result.text, "modern")) == {"content", "structuredContent", "isError", "resultType", "_meta"}
    assert fit_to_era(result, "handshake") is result


def test_structured_content_stands_in_the_one_text_block_too() -> None:
    """For clients that read only text."""
    result = json.loads(build_structured_result({"é": [1]}).text)
    assert result == {
        "content": [{"type": "text", "text": '{"é":[1]}'}],
        "structuredContent": {"é": [1]},
        "isError": False,
    }


@pytest.mark.parametrize(
    ("raw", "is_error", "kind"),
    [
        (b'{"content":[]}', False, "complete"),
        (b'{"content":[],"isError":true,"resultType":"complete"}', True, "complete"),
        (b' {"content":[{"type":"text","text":"\\"isError\\" is a word"}]}', False, "complete"),
        (b'{"resultType":"input_required","inputRequests":{}}', False, "input_required"),
    ],
)
def test_the_facts_of_a_result(raw: bytes, is_error: bool, kind: str) -> None:
    """Whether it failed and whether it is complete."""
    facts = read_facts(RawResult(raw))
    assert facts is not None
    assert (facts.isError, facts.resultType) == (is_error, kind)


def test_a_null_is_error_is_no_error() -> None:
    """Some servers write out what they leave open."""
    facts = read_facts(RawResult(b'{"content":[],"isError":null}'))
    assert facts is not None
    assert not facts.isError


@pytest.mark.parametrize("raw", [b"[]", b"5", b"null", b'"isError"', b'{"isError"', b""])
def test_what_is_no_result_has_no_facts(raw: bytes) -> None:
    """Only an object is a tool's result."""
    assert read_facts(RawResult(raw)) is None


@pytest.mark.parametrize("flag", ["1", '"true"', '" Yes "', "[0]", "0", '"false"', '"FALSE"', '""', "null", "[]"])
def test_a_flag_that_is_no_boolean_is_read_as_one(flag: str) -> None:
    """The result itself is not lost for it."""
    facts = read_facts(RawResult(b'{"content":[],"isError":%b}' % flag.encode()))
    assert facts is not None
    assert facts.isError is (flag in {"1", '"true"', '" Yes "', "[0]"})


@pytest.mark.parametrize("key", ["progressToken", "io.modelcontextprotocol/related-task"])
@pytest.mark.parametrize("value", [[1], None, 1.5, {}, 2**53, True])
def test_metadata_that_the_typescript_sdk_refuses_are_dropped(key: str, value: object) -> None:
    """Its client would never get the answer; the rest of them stays."""
    raw = RawResult(msgspec.json.encode({"content": [], "_meta": {key: value, "a": 1}}))
    assert not raw.is_sound
    assert msgspec.json.decode(repair_result(raw.text, server="up", tool="t")) == {"content": [], "_meta": {"a": 1}}


@pytest.mark.parametrize(
    ("key", "value"),
    [("progressToken", 1), ("progressToken", "a"), ("io.modelcontextprotocol/related-task", {"taskId": "a"})],
)
def test_metadata_that_it_takes_stay(key: str, value: object) -> None:
    """Such a result is passed on unread."""
    assert RawResult(msgspec.json.encode({"content": [], "_meta": {key: value}})).is_sound


@pytest.mark.parametrize("value", [[1], 2.5, "text", None, False], ids=repr)
def test_structured_content_of_another_type_is_for_the_modern_era(value: Any) -> None:
    """Up to 2025-11-25 it must be an object."""
    raw = json.dumps({"content": [], "structuredContent": value}).encode()
    assert fitted(raw, "handshake") == {"content": []}
    assert fitted(raw, "modern")["structuredContent"] == value


@pytest.mark.parametrize("era", ERAS)
def test_structured_content_that_is_an_object_stays(era: Era) -> None:
    """In both eras."""
    assert fitted(b'{"content":[],"structuredContent": {"a":1}}', era)["structuredContent"] == {"a": 1}


def test_a_result_type_is_for_the_modern_era() -> None:
    """Older clients do not know it, newer ones demand it."""
    for raw in (b'{"content":[]}', b'{"content":[],"resultType":"complete"}'):
        assert fitted(raw, "handshake") == {"content": []}
        assert fitted(raw, "modern") == {"content": [], "resultType": "complete", "_meta": INFO}


@pytest.mark.parametrize(
    ("structured", "text", "is_repeated"),
    [
        ('{"a": 1}', '{ "a":1 }', True),
        ('{"result": [1, 2]}', "[1, 2]", True),
        ('{"result": "plain words"}', "plain words", True),
        ('"plain words"', "plain words", True),
        ('"5"', "5", True),
        ('{"result": "5"}', "5", True),
        ("5", "5", True),
        ('{"a": 1}', "a is 1", False),
        ('{"a": 1, "b": 2}', '{"a": 1}', False),
        ('{"other": [1, 2]}', "[1, 2]", False),
        ("[]", "", False),
    ],
)
def test_structured_content_that_repeats_the_text_is_known(structured: str, text: str, is_repeated: bool) -> None:
    """By one rule, whether a result is cut or fenced."""
    assert is_said(structured, text) is is_repeated
    raw = b'{"content":[{"type":"text","text":%s}],"structuredContent":%s}'
    fenced = json.loads(fence(raw % (json.dumps(text).encode(), structured.encode())))
    assert len(fenced["content"]) == 2 - is_repeated


@pytest.mark.anyio
@pytest.mark.parametrize(("size_bytes", "is_here"), [(OFF_LOOP_BYTES, True), (OFF_LOOP_BYTES + 1, False)])
async def test_a_long_result_is_rewritten_in_a_thread(size_bytes: int, is_here: bool) -> None:
    """Nobody else waits for it."""
    threads: list[int] = []

    def rewrite(raw: bytes) -> bytes:
        threads.append(get_ident())
        return raw.upper()

    assert (await rewrite_result(RawResult(b"a" * size_bytes), rewrite)).text == b"A" * size_bytes
    assert (threads == [get_ident()]) is is_here


@pytest.mark.parametrize("raw", [b"{}", b"{ }", b' {"content":[]} ', b'{"content":[] }\n', b'{"text":"{"}'])
def test_blanks_around_a_result_do_no_harm(raw: bytes) -> None:
    """The modern members are put in at the right place."""
    assert fitted(raw, "modern") == json.loads(raw) | {"resultType": "complete", "_meta": INFO}
    assert fitted(raw, "handshake") == json.loads(raw)


@pytest.mark.parametrize("era", ERAS)
def test_metadata_comes_through_without_the_upstreams_connection_keys(era: Era) -> None:
    """Who the upstream is stays between it and the gateway; the gateway names itself in the modern era."""
    meta = {
        "io.modelcontextprotocol/serverInfo": {"name": "upstream", "version": "9"},
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "example.org/trace": {"n": 12345678901234567890123},
        "plain": None,
    }
    found = fitted(json.dumps({"content": [], "_meta": meta}).encode(), era)["_meta"]
    theirs = {"example.org/trace": {"n": 12345678901234567890123}, "plain": None}
    assert found == (theirs | INFO if era == "modern" else theirs)


@pytest.mark.parametrize("meta", [None, [1], "text", {}], ids=repr)
def test_metadata_that_says_nothing_is_left_out(meta: Any) -> None:
    """A null or a list is no metadata; clients would refuse the result for it."""
    raw = json.dumps({"content": [], "_meta": meta}).encode()
    assert "_meta" not in fitted(raw, "handshake")
    assert fitted(raw, "modern")["_meta"] == INFO


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("extra", ["", ',"_meta":{"a":1},"resultType":"complete","structuredContent":{"b":2}'])
def test_everything_else_comes_to_the_letter(era: Era, extra: str) -> None:
    """Unknown content kinds, unknown members, numbers beyond 64 bits and beyond floats, odd spellings."""
    content = (
        '[{"type":"hologram","voxels":[[1],[]],"n":123456789012345678901234567890,"f":1E+2,"g":1e999,"h":1.0},'
        '{"type":"text","text":"caf\\u00e9 \\"structuredContent\\""}]'
    )
    text = '{"content":' + content + ',"futureKey":[1e-7]' + extra + "}"
    out = fit_to_era(RawResult(text.encode()), era).text
    assert content.encode() in out
    assert b'"futureKey":[1e-7]' in out


BLANKS = st.sampled_from([("", ""), ("", ""), (" ", ""), ("", "\n"), (" \n", " ")])
MEMBERS = [
    '"content":[]',
    '"content":[{"type":"text","text":"\\"isError\\":true"}]',
    '"isError":false',
    '"isError":true',
    '"isError": false',
    '"resultType":"complete"',
    '"resultType":"input_required"',
    '"resultType" : "complete"',
    '"structuredContent":{"isError":false,"resultType":"complete"}',
    '"structuredContent":{"isError":true,"structuredContent":{}}',
    '"structuredContent":{"resultType":"input_required","_meta":{}}',
    '"structuredContent":[1]',
    '"structuredContent":[{"structuredContent":{}}]',
    '"_meta":{"a":1}',
    '"x":"_meta"',
    '"is\\u0045rror":true',
    '"result\\u0054ype":"input_required"',
    '"structured\\u0043ontent":[1]',
    '"\\u005fmeta":{"io.modelcontextprotocol/serverInfo":{}}',
]


@given(st.lists(st.sampled_from(MEMBERS), max_size=5), BLANKS, st.sets(st.integers(0, 600), max_size=4))
def test_in_pieces_a_result_says_what_it_says_in_one(
    members: list[str], blanks: tuple[str, str], cuts: set[int]
) -> None:
    """Wherever it is cut, in the middle of a name or just before the last brace."""
    text = f"{{{','.join(members)}{blanks[0]}}}{blanks[1]}".encode()
    places = sorted({0, len(text), *(cut % len(text) for cut in cuts)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert read_facts(RawResult(*pieces)) == read_facts(RawResult(text))
    assert may_need_cleaning(RawResult(*pieces)) == may_need_cleaning(RawResult(text))
    for era in ERAS:
        assert json.loads(fit_to_era(RawResult(*pieces), era).text) == fitted(text, era)


@pytest.mark.parametrize("era", ERAS)
def test_a_long_result_is_not_copied_to_be_fitted_to_an_era(era: Era) -> None:
    """Its last piece at most."""
    pieces = (b'{"content":[{"type":"text","text":"' + b"x" * 70_000, b"x" * 70_000, b'x"}]}')
    fit = fit_to_era(RawResult.read(*pieces, is_clean=True), era)
    assert all(one is other for one, other in zip(fit.pieces[:2], pieces[:2], strict=True))
    assert json.loads(fit.text) == fitted(b"".join(pieces), era)


@given(st.lists(st.sampled_from(MEMBERS), max_size=5))
def test_a_short_result_that_need_not_be_read_says_the_same_as_one_that_is(members: list[str]) -> None:
    """A long one is read in any case. A member may come twice, and its name may be written with escapes."""
    short = f"{{{','.join(members)}}}".encode()
    long = b'{"blanks":"%b"%b' % (b" " * SHORT_BYTES, b"," * bool(members)) + short[1:]
    assert read_facts(RawResult(short)) == read_facts(RawResult(long))
    for era in ERAS:
        read = fitted(long, era)
        del read["blanks"]
        assert fitted(short, era) == read
