"""Tool results on the wire: ours, an upstream's, and what an era makes of them."""

import json
from threading import get_ident
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy import __version__
from smart_mcp_proxy.errors import UpstreamTimeoutError
from smart_mcp_proxy.gateway.cleaning import fence
from smart_mcp_proxy.gateway.results import (
    OFF_LOOP_BYTES,
    SERVER_NAME,
    SHORT_BYTES,
    as_result,
    error_result,
    facts_of,
    fit_to_era,
    is_said,
    rewritten,
    structured_result,
)
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.raw_result import outline_of

ERAS: tuple[Era, ...] = ("handshake", "modern")
INFO = {"io.modelcontextprotocol/serverInfo": {"name": SERVER_NAME, "version": __version__}}


def fitted(raw: bytes, era: Era) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(fit_to_era(raw, era))
    return value


def test_an_error_is_a_result_that_says_all_there_is_to_know() -> None:
    """Code, message, hint and delivery always; when to try again and facts where known."""
    error = UpstreamTimeoutError("Too slow.", hint="Wait.", delivery="unknown", retry_after_s=2.5, data={"a": 1})
    result = json.loads(error_result(error))
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
    bare = json.loads(error_result(UpstreamTimeoutError("Too slow.")))["structuredContent"]["error"]
    assert set(bare) == {"code", "message", "hint", "delivery"}


@pytest.mark.parametrize("value", [{}, {"tools": [{"name": 'é\n"x" ' * 40}]}, {"isError": {"_meta": None}}])
@pytest.mark.parametrize("is_error", [False, True])
def test_an_own_result_knows_what_a_reader_would_find_in_it(value: dict[str, Any], is_error: bool) -> None:
    """It is not read again to be fitted to an era."""
    result = structured_result(value, is_error=is_error)
    assert as_result(result).outline == outline_of(result)
    assert set(fitted(result, "modern")) == {"content", "structuredContent", "isError", "resultType", "_meta"}
    assert fit_to_era(result, "handshake") == result


def test_structured_content_stands_in_the_one_text_block_too() -> None:
    """For clients that read only text."""
    result = json.loads(structured_result({"é": [1]}))
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
    facts = facts_of(raw)
    assert facts is not None
    assert (facts.isError, facts.resultType) == (is_error, kind)


def test_a_null_is_error_is_no_error() -> None:
    """Some servers write out what they leave open."""
    facts = facts_of(b'{"content":[],"isError":null}')
    assert facts is not None
    assert not facts.isError


@pytest.mark.parametrize("raw", [b"[]", b"5", b"null", b'"isError"', b'{"isError":"yes"}', b'{"isError"', b""])
def test_what_is_no_result_has_no_facts(raw: bytes) -> None:
    """Only an object with a boolean `isError` is a tool's result."""
    assert facts_of(raw) is None


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

    assert await rewritten(b"a" * size_bytes, rewrite) == b"A" * size_bytes
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
    out = fit_to_era(('{"content":' + content + ',"futureKey":[1e-7]' + extra + "}").encode(), era)
    assert content.encode() in out
    assert b'"futureKey":[1e-7]' in out


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


@given(st.lists(st.sampled_from(MEMBERS), max_size=5))
def test_a_short_result_that_need_not_be_read_says_the_same_as_one_that_is(members: list[str]) -> None:
    """A long one is read in any case. A member may come twice, and its name may be written with escapes."""
    short = f"{{{','.join(members)}}}".encode()
    long = b'{"blanks":"%b"%b' % (b" " * SHORT_BYTES, b"," * bool(members)) + short[1:]
    assert facts_of(short) == facts_of(long)
    for era in ("handshake", "modern"):
        read = json.loads(fit_to_era(long, era))  # type: ignore[arg-type]
        del read["blanks"]
        assert json.loads(fit_to_era(short, era)) == read  # type: ignore[arg-type]
