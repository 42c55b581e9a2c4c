"""Servers that cannot work: each says in status why, none takes another one with it."""

import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.responses import Response
from transports import in_memory, listening, odd_server, opened_gateway, rest_at

from smart_mcp_proxy.web.serve import open_socket

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("bad-upstream")]

ENDING = "import sys; sys.stderr.write('no licence'); sys.exit(3)"
EXPECTED = {
    "missing": ("error", "command 'no-such-program' not found on PATH", "Install it"),
    "missing_path": ("error", "command '/no/such/program' not found", "Install it"),
    "not_executable": ("error", "is not executable", "chmod +x"),
    "folder": ("error", "is a folder", "Correct its 'command'"),
    "spaces": ("error", "-c pass' not found", "Its arguments go into 'args'"),
    "relative": ("error", "command './no-such' not found", "Install it"),
    "nowhere": ("error", "folder '/no/such/folder' does not exist", "Correct its 'cwd'"),
    "text": ("error", "is no program this system can run", "interpreter"),
    "exits": ("error", "exit code 3", "mcpproxy server logs exits"),
    "refused": ("error", "cannot be reached", ""),
    "http401": ("needs_auth", "HTTP 401", ""),
    "http404": ("error", "HTTP 404", ""),
    "http500": ("error", "HTTP 500", ""),
    "sse401": ("needs_auth", "HTTP 401", ""),
    "sse404": ("error", "HTTP 404", ""),
    "sse500": ("error", "HTTP 500", ""),
    "needs_env": ("needs_env", "NO_SUCH_VARIABLE", ""),
    "off": ("disabled", "", "Switch it on with: mcpproxy server enable off"),
}


async def refusing(scope: Any, receive: Any, send: Any) -> None:
    """An HTTP server whose path is the status it answers with."""
    if scope["type"] == "http":
        await Response("no", int(scope["path"].split("/")[1]))(scope, receive, send)


@pytest.fixture(scope="module")
async def seen(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Any]]:
    """REST status, search and a call of one gateway in front of every bad server and one good one."""
    directory = tmp_path_factory.mktemp("bad")
    plain = directory / "plain.txt"
    plain.write_text("no program")
    text = directory / "text"
    text.write_bytes(b"\x00 no program")
    text.chmod(0o700)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}/mcp"
        async with listening(refusing) as base:
            servers: dict[str, Any] = {
                "good": odd_server("modern"),
                "missing": {"command": "no-such-program"},
                "missing_path": {"command": "/no/such/program"},
                "not_executable": {"command": str(plain)},
                "folder": {"command": str(directory)},
                "spaces": {"command": f"{sys.executable} -c pass"},
                "relative": {"command": "./no-such", "cwd": str(directory)},
                "nowhere": {"command": sys.executable, "cwd": "/no/such/folder"},
                "text": {"command": str(text)},
                "exits": {"command": sys.executable, "args": ["-S", "-c", ENDING]},
                "refused": {"url": dead},
                **{f"http{code}": {"url": f"{base}/{code}/mcp"} for code in (401, 404, 500)},
                **{f"sse{code}": {"url": f"{base}/{code}/sse"} for code in (401, 404, 500)},
                "needs_env": {"command": "x", "env": {"KEY": "${NO_SUCH_VARIABLE}"}},
                "off": {"command": "x", "disabled": True},
            }  # fmt: skip
            async with (
                opened_gateway(directory, servers) as gateway,
                open_socket(gateway) as socket_file,
                in_memory(gateway, "modern") as agent,
            ):
                assert socket_file is not None
                assert await gateway.wait_settled(20)
                async with rest_at(socket_file) as rest:
                    status = await _status(rest)
                    logs = (await rest.get("/servers/exits/logs")).json()
                    tools = {name: await rest.get(f"/tools/{name}:x") for name in ("exits", "http401", "off", "good")}
                yield {
                    "status": status,
                    "logs": logs,
                    "tools": {name: (reply.status_code, reply.json()["error"]) for name, reply in tools.items()},
                    "search": (await agent.call("retrieve_tools", query="lighthouse"))["structuredContent"],
                    "missed": (await agent.call("retrieve_tools", query="xylophone tuning"))["structuredContent"],
                    "named": (await agent.call("retrieve_tools", query="a lighthouse of exits"))["structuredContent"],
                    "call": await agent.call("call_tool_write", name="good:echo"),
                }


async def _status(rest: httpx2.AsyncClient) -> dict[str, Any]:
    """Each server by name, seen while none of them is being tried again."""
    with anyio.fail_after(20):
        while True:
            servers = {server["name"]: server for server in (await rest.get("/status")).json()["servers"]}
            if not any(server["state"] == "connecting" for server in servers.values()):
                return servers


@pytest.mark.parametrize("name", EXPECTED)
async def test_status_says_what_is_wrong_and_what_to_do(seen: dict[str, Any], name: str) -> None:
    """State, the reason with the value at fault, and a hint."""
    state, reason, hint = EXPECTED[name]
    server = seen["status"][name]
    assert server["state"] == state
    assert reason in server["error"]
    assert hint in server["hint"] + server["error"]
    if state != "disabled":
        assert f"'{name}'" in server["error"]
        assert server["hint"]
    assert server["tools"] == 0


async def test_what_a_server_printed_before_it_ended_can_be_read(seen: dict[str, Any]) -> None:
    """Also a last line without its end."""
    assert "no licence" in seen["logs"]["lines"]


async def test_of_a_server_that_never_listed_its_tools_the_state_is_said(seen: dict[str, Any]) -> None:
    """Not that it has no tool of that name, which nobody knows."""
    codes = {name: (status, error["code"]) for name, (status, error) in seen["tools"].items()}
    assert codes == {
        "exits": (502, "upstream_failed"),
        "http401": (401, "upstream_auth"),
        "off": (403, "server_disabled"),
        "good": (404, "tool_not_found"),
    }
    assert "exit code 3" in seen["tools"]["exits"][1]["message"]


async def test_a_search_names_the_servers_it_could_not_cover(seen: dict[str, Any]) -> None:
    """By name and state, sorted, where nothing is found; else those that it names. A disabled one is not missed."""
    assert [row["server"] for row in seen["search"]["not_covered"]] == []
    assert [row["server"] for row in seen["named"]["not_covered"]] == ["exits"]
    states = {row["server"]: row["state"] for row in seen["missed"]["not_covered"]}
    assert list(states) == sorted(set(EXPECTED) - {"off"})
    # A failed server is tried again and again, so it may be connecting at the moment.
    assert all(states[name] in (EXPECTED[name][0], "connecting") for name in states)
    assert {tool["server"] for tool in seen["search"]["tools"]} == {"good"}
    assert not seen["call"].get("isError")


async def test_a_call_for_a_server_that_fails_says_its_state(tmp_path: Path) -> None:
    """The tool is known from before; the agent learns why it cannot be called and that nothing was sent."""
    with anyio.fail_after(20):
        async with opened_gateway(tmp_path, {"odd": odd_server("modern")}) as gateway:
            gateway.start_upstreams()
            assert await gateway.wait_settled(10)
        servers = {"odd": {"command": "no-such-program"}}
        async with opened_gateway(tmp_path, servers) as gateway, in_memory(gateway, "modern") as agent:
            assert await gateway.wait_settled(10)
            result = await agent.call("call_tool_write", name="odd:echo")
    error = result["structuredContent"]["error"]
    assert (error["code"], error["delivery"]) == ("upstream_failed", "not_sent")
    assert "command 'no-such-program' not found on PATH" in error["message"]
    assert error["data"]["state"] == "error"


UNUSABLE: dict[str, tuple[dict[str, Any] | None, str, str, str]] = {
    "disabled": (odd_server("modern") | {"disabled": True}, "server_disabled", "is disabled", "disabled"),
    "removed": (None, "tool_not_found", "No tool is named", ""),
    "failed": ({"command": "no-such-program"}, "upstream_failed", "not found on PATH", "error"),
    "needs_env": ({"command": "x", "env": {"KEY": "${NO_SUCH_VARIABLE}"}}, "upstream_failed", "NO_SUCH", "needs_env"),
}


@pytest.fixture(scope="module")
async def afterwards(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """An agent whose gateway knew the tools of all servers in `UNUSABLE`, before their entries became what they are."""
    directory = tmp_path_factory.mktemp("unusable")
    with anyio.fail_after(30):
        async with opened_gateway(directory, dict.fromkeys(UNUSABLE, odd_server("modern"))) as gateway:
            gateway.start_upstreams()
            assert await gateway.wait_settled(10)
        servers = {name: row[0] for name, row in UNUSABLE.items() if row[0] is not None}
        async with opened_gateway(directory, servers) as gateway, in_memory(gateway, "modern") as agent:
            assert await gateway.wait_settled(10)
            yield agent


@pytest.mark.parametrize("form", ["{}:look", "{}__look"])
@pytest.mark.parametrize("name", UNUSABLE)
async def test_a_tool_that_cannot_be_used_says_why_and_nothing_of_itself(afterwards: Any, name: str, form: str) -> None:
    """B41: each reason has its own code or state; B40: a tool that no list shows is called by its name all the same."""
    _, code, words, state = UNUSABLE[name]
    for tool in ("call_tool_read", "call_tool_write"):
        result = await afterwards.call(tool, name=form.format(name), args={"entry": 1})
        error = result["structuredContent"]["error"]
        assert (error["code"], error["delivery"]) == (code, "not_sent")
        assert words in error["message"]
        assert error["hint"]
        assert (error.get("data") or {}).get("state", "") == state
        assert "lighthouse" not in str(result)
