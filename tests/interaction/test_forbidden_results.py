"""Tool results that the protocol forbids: what can be read is repaired, the rest is told with server and fault."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import fastmcp
import mcp
import pytest
from forbidden_results import READABLE, UNREADABLE
from test_honest_states import scripted
from transports import opened_gateway, served

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("bad-upstream")]

PAD = {"pad": "x" * 20_000}
"""Makes a long result of a short one: those are read in another place."""


def tool(number: int, *, is_long: bool) -> str:
    """The name of the tool that answers with a result."""
    return f"{'long' if is_long else 'short'}{number}"


@pytest.fixture(scope="module")
async def clients(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Any]]:
    """The client of each Python library, before one gateway with a server that answers with each of the results."""
    folder = tmp_path_factory.mktemp("forbidden")
    cases = enumerate([*READABLE.values(), *UNREADABLE.values()])
    results = {
        tool(number, is_long=is_long): result | (PAD if is_long else {})
        for number, (result, _) in cases
        for is_long in (False, True)
    }
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in results]
    server = scripted(folder, {"tools": tools}, **results)
    async with opened_gateway(folder / "data", {"up": server}) as gateway:
        gateway.start_upstreams()
        assert await gateway.wait_settled(15)
        async with (
            served(gateway) as base,
            fastmcp.Client(gateway.mcp_server()) as by_fastmcp,
            mcp.Client(f"{base}/mcp") as by_mcp,
            mcp.Client(f"{base}/mcp", mode="legacy") as by_handshake,
        ):
            yield {"fastmcp": by_fastmcp.call_tool_mcp, "mcp": by_mcp.call_tool, "handshake": by_handshake.call_tool}


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("library", ["fastmcp", "mcp", "handshake"])
@pytest.mark.parametrize("fault", READABLE)
async def test_what_can_be_read_is_repaired(clients: dict[str, Any], library: str, fault: str, is_long: bool) -> None:
    """Everything else of the result stays."""
    result, expected = READABLE[fault]
    name = tool([*READABLE].index(fault), is_long=is_long)
    with anyio.fail_after(20):
        answer = await clients[library]("call_tool_write", {"name": f"up:{name}"})
    content = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content]
    assert content == expected
    assert answer.structured_content == result.get("structuredContent")
    assert bool(answer.is_error) == bool(result.get("isError"))


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("library", ["fastmcp", "mcp", "handshake"])
@pytest.mark.parametrize("fault", UNREADABLE)
async def test_what_cannot_be_read_is_told_with_server_and_fault(
    clients: dict[str, Any], library: str, fault: str, is_long: bool
) -> None:
    """As an error that says that the call was carried out."""
    _, cause = UNREADABLE[fault]
    name = tool(len(READABLE) + [*UNREADABLE].index(fault), is_long=is_long)
    with anyio.fail_after(20):
        answer = await clients[library]("call_tool_write", {"name": f"up:{name}"})
    error = answer.structured_content["error"]
    assert cause in error["message"] and "Server 'up' answered" in error["message"]
    assert (error["code"], error["delivery"], answer.is_error) == ("upstream_protocol", "executed", True)
