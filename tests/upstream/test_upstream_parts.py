"""The parts that need no process and no network: lines, ids, states, listings, pauses."""

import asyncio
import json
import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.errors import UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.io.lines import LineSplitter, OverlongLine
from smart_mcp_proxy.models import ServerState
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import secrets_hidden
from smart_mcp_proxy.upstream.listing import ToolListing, fetch_tools
from smart_mcp_proxy.upstream.protocol.codec import clean_line, recover_request_id
from smart_mcp_proxy.upstream.protocol.handshake import server_label
from smart_mcp_proxy.upstream.protocol.session import rpc_error
from smart_mcp_proxy.upstream.states import TRANSITIONS, backoff_s, check_transition


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_lines_do_not_depend_on_how_the_bytes_arrive(chunks, limit):
    """Whatever the chunks: the same lines, and those over the limit reported with their size."""
    splitter = LineSplitter(limit)
    seen = [line for chunk in chunks for line in splitter.feed(chunk)]
    expected = b"".join(chunks).split(b"\n")[:-1]
    assert len(seen) == len(expected)
    for line, whole in zip(seen, expected, strict=True):
        if len(whole) > limit:
            assert isinstance(line, OverlongLine)
            assert line.size_bytes == len(whole)
            assert whole.startswith(line.head)
            assert whole.endswith(line.tail)
        else:
            assert line == whole.removesuffix(b"\r")


@given(st.lists(st.text("a\r\n", max_size=6).map(str.encode)), st.integers(1, 4))
def test_what_is_a_line_by_itself_is_known_without_being_cut(chunks, limit):
    """It is the one that cutting gives, and everything else is left to that."""
    splitter, is_between = LineSplitter(limit), True
    for chunk in chunks:
        alone = splitter.whole(chunk)
        lines = list(splitter.feed(chunk))
        is_one = is_between and chunk.endswith(b"\n") and len(lines) == 1 and isinstance(lines[0], bytes)
        assert alone == (lines[0] if is_one else None)
        is_between = chunk.endswith(b"\n") if chunk else is_between


@pytest.mark.parametrize(
    ("head", "tail", "found"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{', b"}}", 7),
        (b'{"id": 7, "jsonrpc": "2.0", "result":{', b"}}", 7),
        (b'{"result":{', b'},"jsonrpc":"2.0","id":7}', 7),
        (b'{"result":{"items":[', b'{"id":5}', None),
        (b'{"id":5,"name":', b"}", None),
        (b'{"jsonrpc":"2.0","id":null,"result":{', b"}}", None),
    ],
)
def test_an_id_is_recovered_only_where_it_is_certain(head, tail, found):
    """An `id` inside a result is not the message's own."""
    assert recover_request_id(head, tail) == found


@given(st.text())
def test_good_text_is_cleaned_to_itself(text):
    """Repair touches nothing that needs none, surrogate pairs and escaped backslashes included."""
    line = json.dumps({"t": text.encode("utf-8", "ignore").decode()}).encode()
    assert clean_line(line) == line


def test_only_the_listed_transitions_are_possible():
    """Every pair of states is either in the table or a bug that raises."""
    for old in ServerState:
        for new in ServerState:
            if new in TRANSITIONS[old]:
                check_transition("s", old, new)
            else:
                with pytest.raises(RuntimeError, match=f"state {new} cannot follow {old}"):
                    check_transition("s", old, new)


def test_every_state_can_be_reached_and_left():
    """There is no dead end, and nothing comes from nowhere."""
    assert set(TRANSITIONS) == set(ServerState)
    assert set().union(*TRANSITIONS.values()) == set(ServerState)
    assert all(TRANSITIONS.values())


def test_pauses_double_up_to_a_minute_with_jitter():
    """From half a second, never more than 60 s, however long it goes on."""
    rng = random.Random(1)
    for failures, longest in [(1, 0.5), (2, 1), (3, 2), (8, 60), (10_000, 60)]:
        pauses = [backoff_s(failures, rng) for _ in range(200)]
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
    assert len({backoff_s(1, rng) for _ in range(10)}) == 10
    assert all(a <= b for a, b in pairwise([0.5, 1.0]))


def pages(*answers: Mapping[str, Any]) -> Any:
    """A server that answers `tools/list` with these, the last one for ever."""
    asked: list[Mapping[str, Any]] = []

    async def ask(method: str, params: Mapping[str, Any]) -> RawResult:
        asked.append(params)
        return RawResult(json.dumps(answers[min(len(asked), len(answers)) - 1]).encode())

    return ask


def tool(name: Any = "t", **changes: Any) -> dict[str, Any]:
    """A definition, good unless changed."""
    return {"name": name, "inputSchema": {"type": "object"}} | changes


@pytest.mark.anyio
async def test_pages_are_put_together_in_order():
    """Definitions stay as they were sent."""
    first, second = tool("b", extra={"kept": 1}), tool("a")
    listing = await fetch_tools("s", pages({"tools": [first], "nextCursor": "x"}, {"tools": [second]}), timeout_s=30)
    assert listing == ToolListing((first, second), ())


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (None, "it is no object"),
        (tool(name=None), "its name is no text"),
        ({"name": "odd"}, "it has no inputSchema"),
        (tool("odd", inputSchema=None), "its inputSchema is null instead of an object"),
        (tool("odd", inputSchema={"type": "array"}), "of type 'array' instead of 'object'"),
        (tool("odd", inputSchema={"type": "objekt"}), "of type another one instead of 'object'"),
        (tool("odd", description=5), "its description is no text"),
        (tool("odd", annotations=[]), "its annotations is no object"),
        (tool("odd", outputSchema="x"), "its outputSchema is no schema"),
        (tool("good"), "its name is listed twice"),
    ],
)
async def test_an_odd_tool_costs_only_itself(odd, reason):
    """It is named with the reason, the rest stays."""
    good, last = tool("good"), tool("last")
    listing = await fetch_tools("s", pages({"tools": [good, odd, last]}), timeout_s=30)
    assert listing.definitions == (good, last)
    assert len(listing.problems) == 1
    assert reason in listing.problems[0]


@pytest.mark.anyio
async def test_a_cursor_that_goes_round_ends_the_listing():
    """What was listed up to there is kept."""
    listing = await fetch_tools("s", pages({"tools": [tool()], "nextCursor": "x"}), timeout_s=30)
    assert len(listing.definitions) == 1
    assert "repeats its pages" in listing.problems[-1]


@pytest.mark.anyio
@pytest.mark.parametrize("is_text_wanted", [False, True], ids=["as it came", "as text"])
@pytest.mark.parametrize("cursor", [2, 0, 1.5, 1 << 60])
async def test_a_cursor_that_is_a_number_leads_to_the_next_page(cursor: float, is_text_wanted: bool):
    """Sent as it came, and as text to a server that takes only what the protocol allows."""

    async def ask(method: str, params: Mapping[str, Any]) -> RawResult:
        if "cursor" not in params:
            return RawResult(json.dumps({"tools": [tool("a")], "nextCursor": cursor}).encode())
        if params["cursor"] != (str(cursor) if is_text_wanted else cursor):
            raise rpc_error("s", method, -32602, "Invalid cursor")
        return RawResult(json.dumps({"tools": [tool("b")]}).encode())

    listing = await fetch_tools("s", ask, timeout_s=30)
    assert ([each["name"] for each in listing.definitions], listing.problems) == (["a", "b"], ())


@pytest.mark.anyio
@pytest.mark.parametrize("cursor", [0, -1, False, [], {"page": 2}])
async def test_a_cursor_that_leads_nowhere_costs_only_the_rest(cursor: Any):
    """Some servers write one that means the end; what was listed up to there is kept."""

    async def ask(method: str, params: Mapping[str, Any]) -> RawResult:
        if "cursor" in params:
            raise rpc_error("s", method, -32602, "Invalid cursor")
        return RawResult(json.dumps({"tools": [tool("a")], "nextCursor": cursor}).encode())

    listing = await fetch_tools("s", ask, timeout_s=30)
    assert [each["name"] for each in listing.definitions] == ["a"]
    assert len(listing.problems) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("page", [{}, {"tools": None}, []])
async def test_a_page_that_is_no_list_is_an_error(page):
    """An empty list would look as if the tools were gone."""
    with pytest.raises(UpstreamError, match="without an array 'tools'"):
        await fetch_tools("s", pages(page), timeout_s=30)


@pytest.mark.anyio
@pytest.mark.parametrize("per_page", [999, 1_000])
@pytest.mark.long  # much work for one test
async def test_so_many_tools_are_taken_and_no_more(per_page: int):
    """B75: the first 50,000; what is said of the rest names the limit and what to do."""
    asked: list[int] = []

    async def ask(method: str, params: Mapping[str, Any]) -> RawResult:
        start = int(params.get("cursor", 0))
        asked.append(start)
        page = [tool(f"t{number}") for number in range(start, start + per_page)]
        return RawResult(json.dumps({"tools": page, "nextCursor": str(start + per_page)}).encode())

    listing = await fetch_tools("s", ask, timeout_s=60)
    assert (len(listing.definitions), listing.definitions[-1]["name"]) == (50_000, "t49999")
    assert asked[-1] <= 50_000
    (problem,) = listing.problems
    rest = asked[-1] + per_page - 50_000
    assert problem.startswith(f"Server 's' lists more than 50,000 tools; at least {rest:,} more are left out. ")
    assert "configure it several times with a part each" in problem


@pytest.mark.anyio
async def test_a_page_of_nothing_is_a_hundred_lines_of_the_log_at_most():
    """B72, B76: however many there are of them; a good one among them is kept."""
    listing = await fetch_tools("s", pages({"tools": [*[None] * 10_000, tool()]}), timeout_s=60)
    assert [one["name"] for one in listing.definitions] == ["t"]
    assert (len(listing.problems), listing.problems[-1]) == (
        101,
        "Server 's': more is left out; the first 100 are named above.",
    )


@pytest.mark.anyio
async def test_all_pages_share_one_time_limit():
    """A server that answers each page a little late cannot stretch the listing."""

    async def ask(method: str, params: Mapping[str, Any]) -> RawResult:
        await asyncio.Event().wait()
        return RawResult(b"")

    with pytest.raises(UpstreamTimeoutError, match=r"'tools/list' within 0.05 s"):
        await fetch_tools("s", ask, timeout_s=0.05)


async def test_a_tool_that_cannot_be_read_costs_only_itself():
    """A number of thousands of digits, say."""
    good = '{"name": "good", "inputSchema": {}}'
    page = f'{{"tools": [{{"name": "odd", "n": {"9" * 5_000}}}, {good}]}}'

    async def ask(method, params):
        return RawResult(page.encode())

    listing = await fetch_tools("s", ask, timeout_s=30)
    assert [tool["name"] for tool in listing.definitions] == ["good"]
    (problem,) = listing.problems
    assert "it cannot be read" in problem


@pytest.mark.parametrize("before", ["", "x" * 195])
def test_what_a_server_was_trusted_with_is_hidden_in_its_name(before: str) -> None:
    """It stands in tables, in REST and in the log; no half of it is left where a long name is cut."""
    with secrets_hidden(["trusted-with-this"]):
        label = server_label({"name": f"{before}trusted-with-this", "version": "1 trusted-with-this"})
    assert "trust" not in label
    assert label.endswith(" 1 [hidden]")


async def test_a_listing_holds_definitions_as_text_and_reads_them_as_often_as_wanted() -> None:
    """Thousands of definitions of many servers wait to be stored at once."""
    first, second = tool("b", extra={"kept": [1.0, None]}), tool("a")
    listing = await fetch_tools("s", pages({"tools": [first, second]}), timeout_s=30)
    assert listing.definitions[0] is not listing.definitions[0]
    assert list(listing.definitions) == [*listing.definitions[:1], second] == [first, second]
    read = listing.read()
    assert (read, read.definitions) == (listing, (first, second))
    assert read.definitions[0] is read.definitions[0]
