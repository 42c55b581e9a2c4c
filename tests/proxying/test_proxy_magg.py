"""What a client of Magg's relies on, read as its decoder reads it: from annotations, as the types that they name."""

import json
from typing import Any

import mcp_types
import pytest
from pydantic import TypeAdapter
from test_proxy_answers import FakeSource, ask, tool

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.proxying.operation import parse_operation
from smart_mcp_proxy.proxying.query import Listed

pytestmark = pytest.mark.anyio

UNION = "mcp.types.Resource | mcp.types.ResourceTemplate"
TYPES: dict[str, Any] = {
    "Tool": mcp_types.Tool,
    "Prompt": mcp_types.Prompt,
    UNION: mcp_types.Resource | mcp_types.ResourceTemplate,
    "GetPromptResult": mcp_types.GetPromptResult,
}
TOOLS = [tool(f"{server}_{name}", server, inputSchema={}) for server in ("calc", "text") for name in "abc"]
PROMPTS = [Listed("calc_ask", b'{"name":"ask"}', "Prompt", "calc")]
RESOURCES = [
    Listed("config://s", b'{"name":"s"}', "Resource", "calc"),
    Listed("page://{n}", b'{"name":"p"}', "ResourceTemplate", "calc"),
]
ANSWER = {
    "content": [
        {"type": "text", "text": "8"},
        {"type": "image", "data": "AAEC", "mimeType": "image/png", "annotations": {"audience": ["user"]}},
    ],
    "contents": [{"uri": "config://s", "mimeType": "text/plain", "text": '{ "k": 1 }'}],
    "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
}


async def blocks(**asked: Any) -> list[dict[str, Any]]:
    source = FakeSource(TOOLS, PROMPTS, RESOURCES, json.dumps(asked.pop("answer", ANSWER)).encode())
    found: list[dict[str, Any]] = (await ask(source, era="handshake", **asked))["content"]
    return found


def decoded(block: dict[str, Any]) -> Any:
    """By the type that the annotations name, if the text is JSON; else None."""
    said, resource = block["annotations"], block.get("resource", {})
    kind = TYPES.get(said.get("pythonType", ""))
    if kind is None or resource.get("mimeType") != "application/json":
        return None
    return TypeAdapter(list[kind] if said.get("many") else kind).validate_json(resource["text"], by_alias=True)


@pytest.mark.parametrize(
    ("type", "names"), [("tool", [each.path for each in TOOLS]), ("prompt", ["calc_ask"]), ("resource", ["s", "p"])]
)
async def test_a_list_is_one_block_of_json_that_decodes_to_all_of_them(type: str, names: list[str]) -> None:
    """Resources and templates together, under a URI that says what it is."""
    [block] = await blocks(action="list", type=type)
    assert (block["type"], block["resource"]["uri"]) == ("resource", f"proxy:list/{type}")
    assert [each.name for each in decoded(block)] == names
    said = block["annotations"]
    assert (said["proxyAction"], said["proxyType"], said["many"]) == ("list", type, True)
    assert said["totalCount"] == len(names) and "proxyPath" not in said


@pytest.mark.parametrize(
    ("more", "names", "total"),
    [
        ({"limit": 2}, ["calc_a", "calc_b"], 6),
        ({"limit": 2, "offset": 3}, ["text_a", "text_b"], 6),
        ({"offset": 5}, ["text_c"], 6),
        ({"offset": 9}, [], 6),
        ({"filter_server": "text"}, ["text_a", "text_b", "text_c"], 3),
        ({"filter_server": "text", "limit": 1, "offset": 1}, ["text_b"], 3),
        ({"filter_server": "none"}, [], 0),
        ({"args": None, "path": None}, [each.path for each in TOOLS], 6),
    ],
)
async def test_pages_by_offset_say_how_many_there_are(more: dict[str, Any], names: list[str], total: int) -> None:
    """Before paging and after filtering."""
    [block] = await blocks(action="list", type="tool", **more)
    assert [each.name for each in decoded(block)] == names
    assert block["annotations"]["totalCount"] == total


@pytest.mark.parametrize(("type", "path"), [("tool", "calc_a"), ("prompt", "calc_ask")])
async def test_info_decodes_to_the_one_that_was_asked_for(type: str, path: str) -> None:
    """And says its path."""
    [block] = await blocks(action="info", type=type, path=path)
    assert decoded(block).name == path
    said = block["annotations"]
    assert (said["proxyAction"], said["proxyType"], said["proxyPath"]) == ("info", type, path)
    assert block["resource"]["uri"] == f"proxy:info/{type}/{path}"


@pytest.mark.parametrize("path", ["config://s", "s"])
async def test_info_finds_a_resource(path: str) -> None:
    """By URI and by name."""
    [block] = await blocks(action="info", type="resource", path=path)
    assert mcp_types.Resource.model_validate_json(block["resource"]["text"]).uri == "config://s"


@pytest.mark.parametrize("args", [{"a": 5}, '{"a": 5}', None, {}])
async def test_the_result_of_a_tool_has_our_words_on_each_block_beside_the_servers(args: Any) -> None:
    """And is no answer to a query; its arguments may be an object or its JSON."""
    text, image = await blocks(action="call", type="tool", path="calc_a", args=args)
    ours = {"proxyAction": "call", "proxyType": "tool", "proxyPath": "calc_a"}
    assert (text["text"], text["annotations"], decoded(text)) == ("8", ours, None)
    assert image["annotations"] == {"audience": ["user"], **ours}


@pytest.mark.parametrize(
    ("sent", "mime_type", "own"),
    [
        ({"mimeType": "text/plain", "text": '{ "k": 1 }'}, "application/json", "text/plain"),
        ({"mimeType": "text/plain", "text": "plain"}, "text/plain", None),
        ({"mimeType": "application/json", "text": "{}"}, "application/json", "application/json"),
        ({"mimeType": "image/png", "blob": "AAEC"}, "image/png", None),
    ],
)
async def test_a_resource_says_its_own_type_where_it_became_json(sent: Any, mime_type: str, own: str | None) -> None:
    """Anything else comes with its own type and no other."""
    answer = {"contents": [{"uri": "config://s", **sent}]}
    [block] = await blocks(action="call", type="resource", path="config://s", answer=answer)
    assert block["annotations"] == {"proxyAction": "call", "proxyType": "resource", "proxyPath": "config://s"}
    assert (block["resource"]["mimeType"], block["resource"].get("contentType")) == (mime_type, own)


async def test_a_prompt_decodes_to_its_messages() -> None:
    """From one block."""
    [block] = await blocks(action="call", type="prompt", path="calc_ask", args={"name": "Ada"})
    assert decoded(block).messages[0].content.text == "Hi"
    assert block["annotations"]["proxyType"] == "prompt"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"action": "drop", "type": "tool"}, "action is 'drop'"),
        ({"action": "list", "type": "root"}, "type is 'root'"),
        ({"action": "info", "type": "tool"}, "path is missing"),
        ({"action": "call", "type": "tool", "path": ""}, "path is missing"),
        ({"action": "list", "type": "tool", "path": "x"}, "path is given"),
        ({"action": "list", "type": "tool", "args": {"a": 1}}, "args is given"),
        ({"action": "info", "type": "tool", "path": "x", "args": {"a": 1}}, "args is given"),
        ({"action": "call", "type": "tool", "path": "x", "limit": 1}, "limit is given"),
        ({"action": "info", "type": "tool", "path": "x", "offset": 1}, "offset is given"),
        ({"action": "call", "type": "tool", "path": "x", "filter_server": "calc"}, "filter_server is given"),
        ({"action": "list", "type": "tool", "limit": 1_001}, "limit is 1001"),
        ({"action": "list", "type": "tool", "offset": -1}, "offset is -1"),
    ],
)
def test_what_does_not_go_together_is_a_value_error(asked: dict[str, Any], words: str) -> None:
    """That says which parameter."""
    with pytest.raises(ValueError, match=words):
        parse_operation(asked)


@pytest.mark.parametrize("type", ["tool", "prompt", "resource"])
async def test_info_about_what_is_not_there_is_an_error_that_says_so(type: str) -> None:
    """With what was asked for."""
    with pytest.raises(RequestError, match=f"No {type} is named 'nope'"):
        await blocks(action="info", type=type, path="nope")
