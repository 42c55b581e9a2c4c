"""The answers of a `proxy` tool, byte for byte where another program reads them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.errors import RequestError, UpstreamError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.proxying.metadata import ProxyResponseInfo, ProxyType
from smart_mcp_proxy.proxying.operation import parse_operation
from smart_mcp_proxy.proxying.perform import perform
from smart_mcp_proxy.proxying.query import Listed, find_listed

pytestmark = pytest.mark.anyio

KEY = "dev.smartmcpproxy/"


def tool(name: str, server: str = "", **more: Any) -> Listed:
    return Listed(
        name, json.dumps({"name": "theirs", **more}, ensure_ascii=False, separators=(",", ":")).encode(), "Tool", server
    )


@dataclass
class FakeSource:
    """Answers with what it holds, and remembers what it was asked."""

    tools: list[Listed] = field(default_factory=list)
    prompts: list[Listed] = field(default_factory=list)
    resources: list[Listed] = field(default_factory=list)
    answer: bytes = b'{"content":[]}'
    asked: list[tuple[str, Any]] = field(default_factory=list)

    async def list_definitions(self, type: ProxyType) -> Sequence[Listed]:
        return {"tool": self.tools, "prompt": self.prompts, "resource": self.resources}[type]

    async def find(self, type: ProxyType, path: str) -> Listed:
        return find_listed(type, path, await self.list_definitions(type))

    async def call_tool(self, path: str, args: Mapping[str, Any]) -> bytes:
        self.asked.append((path, args))
        if path == "missing":
            raise UpstreamError("The server is away.")
        return self.answer

    async def read_resource(self, path: str) -> bytes:
        return self.answer

    async def get_prompt(self, path: str, args: Mapping[str, str]) -> bytes:
        self.asked.append((path, args))
        return self.answer


async def ask(
    source: FakeSource, action: str, type: str | None = None, *, era: Era = "modern", **more: Any
) -> dict[str, Any]:
    with anyio.fail_after(20):
        raw = await perform(parse_operation({"action": action, "type": type, **more}), source, era)
    result: dict[str, Any] = json.loads(raw)
    return result


async def read(answer: Any, **more: Any) -> dict[str, Any]:
    """The one block of an answer to read a resource."""
    source = FakeSource(answer=json.dumps({"contents": [{"uri": "a://b", **answer}]}).encode())
    [block] = (await ask(source, "call", "resource", path="a://b"))["content"]
    found: dict[str, Any] = block
    return found


@pytest.mark.seed("query-structure")
@pytest.mark.seed("query-annotations")
@pytest.mark.seed("query-types")
async def test_list_is_one_resource_with_all_definitions() -> None:
    """Ordered by name, each under its listed name, and what it is beside it."""
    source = FakeSource(tools=[tool("b", description="ü"), tool("a")])
    assert await ask(source, "list", "tool") == {
        "content": [
            {
                "type": "resource",
                "resource": {
                    "uri": "proxy:list/tool",
                    "mimeType": "application/json",
                    "text": '[{"name":"a"},{"name":"b","description":"ü"}]',
                },
                "_meta": {
                    KEY + "proxyAction": "list",
                    KEY + "proxyType": "tool",
                    KEY + "pythonType": "Tool",
                    KEY + "many": True,
                    KEY + "totalCount": 2,
                },
            }
        ],
        "isError": False,
    }


@pytest.mark.seed("query-structure")
async def test_the_bytes_of_an_answer_are_these() -> None:
    """For programs that compare or cache them."""
    raw = await perform(
        parse_operation({"action": "list", "type": "tool", "limit": 1}), FakeSource(tools=[tool("a"), tool("b")])
    )
    assert raw.decode() == (
        '{"content":[{"type":"resource","resource":{"uri":"proxy:list/tool","mimeType":"application/json",'
        '"text":"[{\\"name\\":\\"a\\"}]"},"_meta":{"dev.smartmcpproxy/proxyAction":"list",'
        '"dev.smartmcpproxy/proxyType":"tool","dev.smartmcpproxy/pythonType":"Tool","dev.smartmcpproxy/many":true,'
        '"dev.smartmcpproxy/totalCount":2,"dev.smartmcpproxy/nextCursor":"a"}}],"isError":false}'
    )


@pytest.mark.seed("empty-list")
@pytest.mark.parametrize("type", ["tool", "resource", "prompt"])
async def test_an_empty_list_is_a_resource_that_holds_an_empty_array(type: str) -> None:
    """Not an answer without content: whoever reads it needs no second rule."""
    [block] = (await ask(FakeSource(), "list", type))["content"]
    assert block["resource"]["text"] == "[]"
    assert block["_meta"][KEY + "many"] is True and block["_meta"][KEY + "totalCount"] == 0


@pytest.mark.seed("union-type")
async def test_resources_and_templates_are_one_list() -> None:
    """Told apart by their own members, and by the name of the type."""
    found = [
        Listed("b://{x}", b'{"name":"t","uriTemplate":"?"}', "ResourceTemplate"),
        Listed("a://r", b"{}", "Resource"),
    ]
    [block] = (await ask(FakeSource(resources=found), "list", "resource"))["content"]
    assert block["resource"]["text"] == '[{"uri":"a://r"},{"name":"t","uriTemplate":"b://{x}"}]'
    assert block["_meta"][KEY + "pythonType"] == "Resource | ResourceTemplate"


@pytest.mark.seed("info-path")
@pytest.mark.parametrize("path", ["a://r", "r"])
async def test_info_finds_a_resource_by_uri_and_by_name(path: str) -> None:
    """And says what was asked for, what it is, and that it is one."""
    source = FakeSource(
        resources=[Listed("a://r", b'{"name":"r"}', "Resource"), Listed("a://q", b'{"name":"q"}', "Resource")]
    )
    [block] = (await ask(source, "info", "resource", path=path))["content"]
    assert json.loads(block["resource"]["text"]) == {"name": "r", "uri": "a://r"}
    assert block["resource"]["uri"] == ("proxy:info/resource/r" if path == "r" else "proxy:info/resource/a%3A%2F%2Fr")
    assert block["_meta"] == {
        KEY + "proxyAction": "info",
        KEY + "proxyType": "resource",
        KEY + "proxyPath": path,
        KEY + "pythonType": "Resource",
        KEY + "many": False,
    }


async def test_a_name_that_two_resources_have_leads_to_neither() -> None:
    """The error names both URIs."""
    source = FakeSource(resources=[Listed(f"a://{n}", b'{"name":"r"}', "Resource") for n in (1, 2)])
    with pytest.raises(RequestError, match="a://1, a://2"):
        await ask(source, "info", "resource", path="r")


@pytest.mark.seed("capability-errors")
@pytest.mark.parametrize("type", ["tool", "resource", "prompt"])
async def test_info_about_nothing_is_an_error(type: str) -> None:
    """With a code of its own for each type."""
    with pytest.raises(RequestError, match=f"No {type} is named 'x'") as caught:
        await ask(FakeSource(), "info", type, path="x")
    assert caught.value.error_code == f"{type}_not_found"


@pytest.mark.seed("pages")
async def test_pages_follow_each_other_by_cursor() -> None:
    """The last page has no cursor; the total is that of all pages."""
    source = FakeSource(tools=[tool(name) for name in "edcba"])
    names, cursor = [], None
    for _ in range(3):
        [block] = (await ask(source, "list", "tool", limit=2, cursor=cursor))["content"]
        names.append("".join(each["name"] for each in json.loads(block["resource"]["text"])))
        assert block["_meta"][KEY + "totalCount"] == 5
        cursor = block["_meta"].get(KEY + "nextCursor")
    assert names == ["ab", "cd", "e"] and cursor is None


@given(st.sets(st.text(min_size=1, max_size=4), max_size=7), st.integers(1, 5))
@pytest.mark.long  # many generated examples
async def test_no_page_skips_or_repeats_anything(names: set[str], limit: int) -> None:
    """Whatever the names are, and however short the pages."""
    source, seen, cursor = FakeSource(tools=[tool(name) for name in names]), [], None
    for _ in range(len(names) + 1):
        [block] = (await ask(source, "list", "tool", limit=limit, cursor=cursor))["content"]
        seen += [each["name"] for each in json.loads(block["resource"]["text"])]
        if (cursor := block["_meta"].get(KEY + "nextCursor")) is None:
            break
    assert seen == sorted(names)


async def test_a_page_without_limit_ends_at_a_mebibyte() -> None:
    """A catalog of thousands would fill more than any agent reads."""
    source = FakeSource(tools=[tool(f"t{n}", description="x" * 400_000) for n in range(5)])
    [block] = (await ask(source, "list", "tool"))["content"]
    assert len(json.loads(block["resource"]["text"])) == 2
    assert block["_meta"][KEY + "nextCursor"] == "t1" and block["_meta"][KEY + "totalCount"] == 5


@pytest.mark.seed("filter")
@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"prefix": "math_"}, ["math_add", "math_log"]),
        ({"server": "b"}, ["math_log", "text_cut"]),
        ({"tags": ["fast", "pure"]}, ["math_add", "math_log"]),
        ({"tags": ["old"]}, ["text_cut"]),
        ({"prefix": "math_", "server": "b"}, ["math_log"]),
        ({"tags": "fast", "all_tags": ["pure"]}, []),
        ({"all_tags": ["old", "slow"]}, ["text_cut"]),
        ({"all_tags": ["old", "fast"]}, []),
        ({"tags": ["fast", "slow"], "all_tags": '["old"]'}, ["text_cut"]),
        ({"all_tags": []}, ["math_add", "math_log", "text_cut"]),
        ({"prefix": "none"}, []),
        ({}, ["math_add", "math_log", "text_cut"]),
    ],
)
async def test_a_filter_narrows_the_list(wanted: dict[str, Any], names: list[str]) -> None:
    """By the beginning of the name, by server, by one of several tags or by all of them, and by all of these."""
    source = FakeSource(
        tools=[
            tool("math_add", "a", _meta={"fastmcp": {"tags": ["fast"]}}),
            tool("math_log", "b", tags=["pure"]),
            tool("text_cut", "b", _meta={"tags": ["old", 1, "slow"], "fastmcp": None}),
        ]
    )
    [block] = (await ask(source, "list", "tool", filter=wanted))["content"]
    assert [each["name"] for each in json.loads(block["resource"]["text"])] == names
    assert block["_meta"][KEY + "totalCount"] == len(names)


@pytest.mark.seed("tool-call")
async def test_a_tools_result_passes_whole_with_our_words_on_each_block() -> None:
    """Structured content, isError and the blocks' own metadata are as they came."""
    theirs = {
        "content": [
            {"type": "text", "text": "8", "_meta": {"x": 1}},
            {"type": "image", "data": "", "mimeType": "a/b", "_meta": None},
        ],
        "structuredContent": {"sum": 8.00, "big": 123456789012345678901234567890},
        "isError": True,
        "_meta": {"took": 1},
        "later": [1],
    }
    found = await ask(FakeSource(answer=json.dumps(theirs).encode()), "call", "tool", path="s:add", args={"a": 5})
    ours = {KEY + "proxyAction": "call", KEY + "proxyType": "tool", KEY + "proxyPath": "s:add"}
    assert [block.pop("_meta") for block in found["content"]] == [{"x": 1, **ours}, ours]
    for block in theirs["content"]:  # type: ignore[attr-defined]
        del block["_meta"]
    assert found == theirs


async def test_what_a_server_says_under_our_prefix_is_not_ours() -> None:
    """It could make a client take its text for something else."""
    theirs = {"content": [{"type": "text", "text": "[]", "_meta": {KEY + "pythonType": "Tool", KEY + "many": True}}]}
    [block] = (await ask(FakeSource(answer=json.dumps(theirs).encode()), "call", "tool", path="t"))["content"]
    assert set(block["_meta"]) == {KEY + "proxyAction", KEY + "proxyType", KEY + "proxyPath"}


@pytest.mark.seed("objectification")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"b": 1.00,\n "a": [1, 2]}', '{"b":1.00,"a":[1,2]}'),
        ("  [ 12345678901234567890123 ]\n", "[12345678901234567890123]"),
        ("[]", "[]"),
    ],
)
async def test_text_that_is_a_json_object_or_array_becomes_json(text: str, shown: str) -> None:
    """Compact, to the letter but for white space, and its own type is kept beside it."""
    block = await read({"mimeType": "text/plain", "text": text, "_meta": {"x": 1}})
    assert block["resource"] == {
        "uri": "a://b",
        "mimeType": "application/json",
        "text": shown,
        "_meta": {"x": 1, KEY + "contentType": "text/plain"},
    }
    assert block["_meta"] == {KEY + "proxyAction": "call", KEY + "proxyType": "resource", KEY + "proxyPath": "a://b"}


@pytest.mark.seed("objectification")
@pytest.mark.parametrize("text", ["123", '"quoted"', "null", "true", "", "{broken", "[1,", "{'a': 1}", "[" * 100_000])
async def test_any_other_text_stays_as_it_is(text: str) -> None:
    """A file that holds a number, or nearly JSON, is text."""
    sent = {"mimeType": "text/x-notes", "text": text}
    assert (await read(sent))["resource"] == {"uri": "a://b", **sent}


@pytest.mark.seed("binary")
async def test_binary_contents_stay_as_they_are() -> None:
    """With their own type."""
    sent = {"mimeType": "image/png", "blob": "iVBORw=="}
    assert (await read(sent))["resource"] == {"uri": "a://b", **sent}


@pytest.mark.long  # a third of a second of processor time
async def test_a_resource_of_20_megabytes_passes_and_holds_up_nobody() -> None:
    """Reading and writing it is left to a thread."""
    text = "[" + "1, " * 7_000_000 + "1]"
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.001)
            ticks += 1

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        block = await read({"mimeType": "text/plain", "text": text})
        group.cancel_scope.cancel()
    assert len(block["resource"]["text"]) == 14_000_003
    assert ticks > 0


@pytest.mark.seed("prompt-get")
async def test_a_prompt_is_json_in_one_resource() -> None:
    """Its messages whole; arguments that are no strings are sent as JSON."""
    theirs = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "resultType": "complete"}
    source = FakeSource(answer=json.dumps(theirs, indent=2).encode())
    [block] = (await ask(source, "call", "prompt", path="s__hi", args={"n": 1, "who": "Ada"}))["content"]
    assert block["resource"] == {
        "uri": "proxy:call/prompt/s__hi",
        "mimeType": "application/json",
        "text": '{"messages":[{"role":"user","content":{"type":"text","text":"Hi"}}]}',
    }
    info = ProxyResponseInfo.from_content(block)
    assert info == ProxyResponseInfo("prompt", "call", "s__hi", "GetPromptResult", False)
    assert source.asked == [("s__hi", {"n": "1", "who": "Ada"})]


@pytest.mark.seed("error-format")
@pytest.mark.parametrize("answer", [b"[]", b'{"contents":7}', b"nothing"])
async def test_an_answer_that_is_none_is_the_servers_fault(answer: bytes) -> None:
    """And not a failure of the gateway."""
    with pytest.raises(UpstreamError, match="no such result"):
        await ask(FakeSource(answer=answer), "call", "resource", path="a://b")


@pytest.mark.seed("batch")
async def test_a_batch_answers_each_operation_by_itself_and_in_order() -> None:
    """One that fails, for whatever reason, says so in its place; the others are done."""
    source = FakeSource(tools=[tool("a")], answer=b'{"content":[{"type":"text","text":"8"}]}')
    operations: list[Any] = [
        {"action": "call", "type": "tool", "path": "add", "args": {"n": 1}},
        {"action": "info", "type": "tool", "path": "nope"},
        {"action": "call", "type": "tool", "path": "missing"},
        {"action": "batch", "operations": [{}]},
        "call add",
        {"action": "list", "type": "tool"},
        {"action": "call", "type": "tool", "path": "add", "args": {"n": 2}},
    ]
    answer = await ask(source, "batch", operations=operations)
    [block] = answer["content"]
    results = json.loads(block["resource"]["text"])
    codes = [result.get("structuredContent", {}).get("error", {}).get("code") for result in results]
    assert codes == [None, "tool_not_found", "upstream_failed", "invalid_arguments", "invalid_arguments", None, None]
    assert [result.get("isError", False) for result in results] == [code is not None for code in codes]
    assert [args for _, args in source.asked] == [{"n": 1}, {}, {"n": 2}]
    assert ProxyResponseInfo.from_content(block) == ProxyResponseInfo(None, "batch", None, "CallToolResult", True)
    assert answer["isError"] is False


async def test_a_batch_of_failures_is_one() -> None:
    """So that a client that looks at nothing else sees it."""
    assert (await ask(FakeSource(), "batch", operations=[{"action": "x"}]))["isError"] is True


async def test_a_batch_ends_where_its_answers_fill_it() -> None:
    """What was not begun says that it was not, and can be sent again."""
    source = FakeSource(answer=json.dumps({"content": [{"type": "text", "text": "x" * 3_000_000}]}).encode())
    calls = [{"action": "call", "type": "tool", "path": "t"}] * 4
    [block] = (await ask(source, "batch", operations=calls))["content"]
    errors = [result.get("structuredContent", {}).get("error") for result in json.loads(block["resource"]["text"])]
    assert errors[:2] == [None, None]
    assert [(error["code"], error["delivery"]) for error in errors[2:]] == [("batch_full", "not_sent")] * 2
    assert len(source.asked) == 2


@pytest.mark.seed("response-info")
@pytest.mark.seed("metadata-clean")
@pytest.mark.parametrize(
    "asked",
    [
        {"action": "list", "type": "tool"},
        {"action": "info", "type": "tool", "path": "a"},
        {"action": "call", "type": "tool", "path": "a", "args": {"password": "hunter2"}},
        {"action": "call", "type": "prompt", "path": "a", "args": {"password": "hunter2"}},
        {"action": "call", "type": "resource", "path": "a://b"},
        {"action": "batch", "operations": [{"action": "list", "type": "tool"}]},
    ],
)
async def test_metadata_say_what_was_asked_and_what_the_answer_is_and_nothing_else(asked: dict[str, Any]) -> None:
    """No arguments, and nothing of the servers' own."""
    answer = b'{"content":[{"type":"text","text":"x"}],"contents":[{"uri":"a://b","text":"{}"}],"messages":[]}'
    answered = await ask(FakeSource(tools=[tool("a")], answer=answer), **asked)
    known = {"proxyAction", "proxyType", "proxyPath", "pythonType", "many", "totalCount"}
    for block in answered["content"]:
        assert {key.removeprefix(KEY) for key in block["_meta"]} <= known
        assert block["_meta"].get(KEY + "proxyPath") == asked.get("path")
        assert "hunter2" not in json.dumps(block["_meta"])


@pytest.mark.seed("query-annotations")
@pytest.mark.parametrize(
    ("asked", "facts"),
    [
        ({"action": "list", "type": "tool"}, {"pythonType": "Tool", "many": True, "totalCount": 1}),
        ({"action": "list", "type": "prompt"}, {"pythonType": "Prompt", "many": True, "totalCount": 0}),
        ({"action": "info", "type": "tool", "path": "a"}, {"pythonType": "Tool", "many": False}),
        ({"action": "call", "type": "tool", "path": "a"}, {}),
        ({"action": "call", "type": "resource", "path": "a://b"}, {}),
        ({"action": "call", "type": "prompt", "path": "a"}, {"pythonType": "GetPromptResult", "many": False}),
    ],
)
async def test_clients_of_the_handshake_era_find_the_metadata_in_annotations(
    asked: dict[str, Any], facts: dict[str, Any]
) -> None:
    """As well as in `_meta`, under the draft's names; in the modern era in `_meta` alone."""
    answer = b'{"content":[{"type":"text","text":"x"}],"contents":[{"uri":"a://b","text":"x"}],"messages":[]}'
    source = FakeSource(tools=[tool("a")], answer=answer)
    [modern], [handshake] = [(await ask(source, era=era, **asked))["content"] for era in ("modern", "handshake")]
    said = {"proxyAction": asked["action"], "proxyType": asked["type"]}
    path = {"proxyPath": asked["path"]} if "path" in asked else {}
    assert handshake.pop("annotations") == {**said, **path, **facts}
    assert handshake == modern and "annotations" not in modern


async def test_a_servers_own_annotations_stay_and_those_under_our_names_are_not_taken_for_ours() -> None:
    """To the letter; in the modern era nothing of them is touched."""
    theirs = '{"audience":["user"],"priority":0.50,"x":[1],"pythonType":"Tool","proxyType":"prompt"}'
    blocks = f'{{"content":[{{"type":"text","text":"x","annotations":{theirs}}},{{"type":"text","annotations":null}}]}}'
    request = parse_operation({"action": "call", "type": "tool", "path": "a"})
    handshake = (await perform(request, FakeSource(answer=blocks.encode()), "handshake")).decode()
    ours = '"proxyAction":"call","proxyType":"tool","proxyPath":"a"}'
    assert f'"annotations":{{"audience":["user"],"priority":0.50,"x":[1],{ours}' in handshake
    assert f'"annotations":{{{ours}' in handshake
    assert theirs in (await perform(request, FakeSource(answer=blocks.encode()))).decode()


async def test_the_handshake_era_gets_the_own_type_of_a_resource_where_seed_1_has_it() -> None:
    """A member of the resource, as well as in its `_meta`."""
    source = FakeSource(answer=b'{"contents":[{"uri":"a://b","mimeType":"text/plain","text":"{ }"}]}')
    [block] = (await ask(source, "call", "resource", path="a://b", era="handshake"))["content"]
    assert block["resource"]["contentType"] == "text/plain"
    assert block["resource"]["_meta"] == {KEY + "contentType": "text/plain"}


async def test_each_answer_of_a_batch_has_its_annotations() -> None:
    """They are answers as any."""
    operations = [{"action": "list", "type": "tool"}, {"action": "info", "type": "tool", "path": "none"}]
    [block] = (await ask(FakeSource(), "batch", operations=operations, era="handshake"))["content"]
    assert block["annotations"] == {"proxyAction": "batch", "pythonType": "CallToolResult", "many": True}
    [[listed], [failed]] = [each["content"] for each in json.loads(block["resource"]["text"])]
    assert listed["annotations"]["proxyAction"] == "list" and "annotations" not in failed


async def test_the_union_is_annotated_as_python_writes_it() -> None:
    """Magg compares it so."""
    [block] = (await ask(FakeSource(), "list", "resource", era="handshake"))["content"]
    assert block["_meta"][KEY + "pythonType"] == "Resource | ResourceTemplate"
    assert block["annotations"]["pythonType"] == "mcp.types.Resource | mcp.types.ResourceTemplate"


def test_metadata_is_read_wherever_it_stands() -> None:
    """`_meta` first, with the prefix or without, then annotations; a value of the wrong type says nothing."""
    read = ProxyResponseInfo.from_content
    assert read({"annotations": {"proxyType": "tool", "many": True}}) == ProxyResponseInfo("tool", many=True)
    assert read({"_meta": {"proxyType": "tool"}, "annotations": {"proxyType": "prompt"}}).proxy_type == "tool"
    assert read({"_meta": {KEY + "proxyType": "tool", "proxyType": "prompt"}}).proxy_type == "tool"
    assert read({"_meta": {KEY + "many": "yes", KEY + "proxyPath": 3}}) == ProxyResponseInfo()
    assert read({"resource": {"contentType": "text/plain"}}).content_type == "text/plain"
    assert read({"resource": {"_meta": {KEY + "contentType": "text/x"}}}).content_type == "text/x"
    assert read(None) == ProxyResponseInfo()
    assert ProxyResponseInfo.from_annotations({"proxyAction": "list", "priority": 1}).proxy_action == "list"
    assert ProxyResponseInfo.from_annotations(None) == ProxyResponseInfo()


async def test_parameters_of_magg_are_read_although_they_are_not_advertised() -> None:
    """Its clients page by offset and name a server beside the filter."""
    source = FakeSource([tool(f"{server}__{name}", server) for server in ("a", "b") for name in "xyz"])

    async def paths(**more: Any) -> list[str]:
        [block] = (await ask(source, "list", "tool", **more))["content"]
        return [each["name"] for each in json.loads(block["resource"]["text"])]

    assert await paths(offset=1, limit=2) == ["a__y", "a__z"]
    assert await paths(offset=5) == ["b__z"]
    assert await paths(offset=6) == []
    assert await paths(filter_server="b", offset=1) == ["b__y", "b__z"]
    assert await paths(filter_server="b", args=None, limit=1) == ["b__x"]
    for wrong in ({"offset": -1}, {"offset": "two"}, {"filter_server": 3}):
        with pytest.raises(RequestError):
            await ask(source, "list", "tool", **wrong)
    with pytest.raises(RequestError, match="offset is given, and action 'info' takes none"):
        await ask(source, "info", "tool", path="a__x", offset=1)
    assert (await ask(source, "call", "tool", path="a__x", args='{"n": 1}')) == {"content": []}
    assert source.asked == [("a__x", {"n": 1})]
