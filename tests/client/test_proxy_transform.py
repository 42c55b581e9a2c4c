"""From answers of a `proxy` tool back to the protocol's types."""

from typing import Any

import mcp_types
import pytest
from mcp_types import EmbeddedResource, TextContent
from pydantic import ValidationError

from smart_mcp_proxy.client import (
    deserialize_embedded_resource_python_object,
    get_embedded_resource_python_object,
    get_proxy_query_result,
    tool_result_as_prompt_result,
    tool_result_as_resource_result,
)

KEY = "dev.smartmcpproxy/"


def block(text: str, mime_type: str = "application/json", **said: Any) -> EmbeddedResource:
    resource = {
        "uri": "a://b",
        "mimeType": mime_type,
        "text": text,
        "_meta": {KEY + "contentType": "text/plain", "x": 1},
    }
    meta = {KEY + name: value for name, value in said.items()}
    return EmbeddedResource.model_validate({"type": "resource", "resource": resource, "_meta": meta})


TEXT = TextContent(type="text", text="[]")


@pytest.mark.seed("transform-object")
def test_an_embedded_resource_says_what_it_holds() -> None:
    """Or nothing: no type, no JSON, no resource."""
    assert get_embedded_resource_python_object(block("[]", pythonType="Tool", many=True)) == ("Tool", "[]", True)
    assert get_embedded_resource_python_object(block("{}", pythonType="Tool")) == ("Tool", "{}", False)
    assert get_embedded_resource_python_object(block("[]")) is None
    assert get_embedded_resource_python_object(block("[]", "text/plain", pythonType="Tool")) is None
    assert get_embedded_resource_python_object(TEXT) is None


@pytest.mark.seed("transform-deserialize")
@pytest.mark.seed("type-identifiers")
@pytest.mark.parametrize("python_type", ["Tool", "mcp.types.Tool"])
def test_json_becomes_the_type_it_says(python_type: str) -> None:
    """By simple and by qualified name, one or many; another type is not guessed at."""
    text = '{"name":"a","inputSchema":{"type":"object"}}'
    tool = deserialize_embedded_resource_python_object(mcp_types.Tool, python_type, text)
    assert isinstance(tool, mcp_types.Tool) and tool.name == "a"
    tools = deserialize_embedded_resource_python_object(mcp_types.Tool, python_type, f"[{text}]", many=True)
    assert tools == [tool]
    assert deserialize_embedded_resource_python_object(mcp_types.Prompt, python_type, text) is None
    with pytest.raises(ValidationError):
        deserialize_embedded_resource_python_object(mcp_types.Tool, python_type, '{"name":3}')


@pytest.mark.seed("transform-deserialize")
@pytest.mark.parametrize(
    "python_type", ["Resource|ResourceTemplate", "mcp.types.Resource | mcp.types.ResourceTemplate"]
)
def test_a_union_is_told_apart_by_its_members(python_type: str) -> None:
    """With spaces and without."""
    text = (
        '[{"name":"r","uri":"a://b"},{"name":"t","uriTemplate":"a://{x}"},{"name":"p","uri":"a://c","mime_type":"a/b"}]'
    )
    union = mcp_types.Resource | mcp_types.ResourceTemplate
    found = deserialize_embedded_resource_python_object(union, python_type, text, many=True)
    assert [type(each).__name__ for each in found] == ["Resource", "ResourceTemplate", "Resource"]
    assert found[2].mime_type == "a/b"


@pytest.mark.seed("transform-prompt")
def test_a_prompt_comes_out_of_a_tools_result() -> None:
    """Of a block, a list of blocks, or a whole result; None out of anything else."""
    text = '{"messages":[{"role":"user","content":{"type":"text","text":"Hi"}}]}'
    said = block(text, pythonType="GetPromptResult", proxyType="prompt")
    for answer in (said, [said], mcp_types.CallToolResult(content=[TEXT, said])):
        prompt = tool_result_as_prompt_result(answer)
        assert prompt is not None and len(prompt.messages) == 1
    assert tool_result_as_prompt_result(TEXT) is None
    assert tool_result_as_prompt_result([block(text, pythonType="GetPromptResult", proxyType="tool")]) is None
    assert tool_result_as_prompt_result([block("{}", pythonType="Tool", proxyType="prompt")]) is None


@pytest.mark.seed("transform-resource")
def test_contents_come_out_of_a_tools_result() -> None:
    """With their own MIME type, and without our metadata; nothing out of anything else."""
    said = block('{"a":1}', proxyType="resource")
    for answer in (said, [TEXT, said], mcp_types.CallToolResult(content=[said])):
        [contents] = tool_result_as_resource_result(answer)
        assert contents.model_dump(by_alias=True, exclude_none=True) == {
            "uri": "a://b",
            "mimeType": "text/plain",
            "text": '{"a":1}',
            "_meta": {"x": 1},
        }
    assert tool_result_as_resource_result([TEXT, block("{}", proxyType="tool")]) == []


@pytest.mark.seed("transform-query")
def test_a_query_without_content_is_an_empty_list() -> None:
    """As some servers answer when there is nothing; any other answer is none."""
    assert get_proxy_query_result([]) == []
    assert get_proxy_query_result(block("[]", pythonType="Tool", many=True)) == []
    for other in ([TEXT], [block("[]", pythonType="Secret", many=True)], [block("[]")]):
        with pytest.raises(ValueError, match="not a proxy tool's answer"):
            get_proxy_query_result(other)
