"""Contents of servers under `MCPPROXY_FENCE_RESULTS`: fenced like tools' results, whichever way they are asked for."""

from pathlib import Path
from typing import Any

import pytest
from test_agent_contents import server, write
from transports import in_memory, settled

pytestmark = pytest.mark.anyio


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("contents-results")
async def test_what_is_read_prompted_and_completed_is_fenced_like_a_result(tmp_path: Path) -> None:
    """Once, also through `proxy`; other contents stay, and so do words that a client sends back."""
    write(file := tmp_path / "lists.json")
    async with (
        settled(
            tmp_path / "data", {"fx": server("handshake", file)}, fence_results=True, proxy_tool="proxy"
        ) as gateway,
        in_memory(gateway, "handshake") as agent,
    ):
        uri = (await agent.request("resources/list"))["result"]["resources"][0]["uri"]
        text, blob = (await agent.request("resources/read", uri=uri))["result"]["contents"]
        assert count_fences(text["text"]) == 1 and blob["blob"] == "AAEC"
        prompt = (await agent.request("prompts/get", name="fx__greet", arguments={"who": "x"}))["result"]
        blocks = [each["content"] for each in prompt["messages"]]
        assert [count_fences(str(each)) for each in blocks] == [1, 0, 0, 1, 0] and blocks[1]["data"] == "AAEC"
        ask = {"ref": {"type": "ref/prompt", "name": "fx__greet"}, "argument": {"name": "who", "value": "pa"}}
        values = (await agent.request("completion/complete", **ask))["result"]["completion"]["values"]
        assert [count_fences(each) for each in values] == [1, 0, 0] and values[1:] == ["paris", "park"]
        operation: dict[str, Any] = {"action": "call", "type": "resource", "path": uri}
        shown = await agent.call("proxy", **operation)
        assert count_fences(shown["content"][0]["resource"]["text"]) == 1, shown


def count_fences(text: str) -> int:
    """Fences around or inside a text."""
    return text.count("</untrusted-output-")
