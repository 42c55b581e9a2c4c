"""Apps and tasks of servers that nobody here wrote, as published, through the gateway."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from node_tools import node_folder, npm_package
from python_tools import python_with

sys.path.insert(0, str(Path(__file__).parent.parent / "interaction"))
from agents import Agent, StreamAgent
from extended_servers import PAGE, SHOWS_APPS, TASKS, main_file
from transports import in_memory, served, settled

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

LIMIT_S = 60
CLOCK = "@modelcontextprotocol/server-basic-vanillajs@2.0.3"
BUDGET = "@modelcontextprotocol/server-budget-allocator@2.0.3"
TASKS_PACKAGES = ("fastmcp-tasks==4.1.4", "fastmcp==4.1.4")
HERE = Path(__file__).parent
PROGRAM = HERE / "tasks_server.py"
SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
OF_TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
OF_SKILLS = ("sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest")
SUITE_S = 120


def app_server(package: str) -> dict[str, Any]:
    """The entry of an example server of ext-apps."""
    program = npm_package(package) / "dist" / "index.js"
    return {"command": str(node_folder() / "node"), "args": [str(program), "--stdio"]}


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_apps_of_the_extensions_own_examples_are_shown(era: Any, tmp_path: Path) -> None:
    """Two of them and a twin of one: tools name pages that can be read, and pages call their own server's tools."""
    servers = {"clock": app_server(CLOCK), "twin": app_server(CLOCK), "budget": app_server(BUDGET)}
    async with (
        settled(tmp_path / "data", servers, list_all_below_tokens=100_000) as gateway,
        in_memory(gateway, era, extensions=SHOWS_APPS) as agent,
    ):
        listed = (await agent.request("tools/list"))["result"]["tools"]
        pages = {each["name"]: each["_meta"]["ui"]["resourceUri"] for each in listed if "__" in each["name"]}
        assert pages == {
            "budget__get-budget-data": "ui://budget/budget-allocator/mcp-app.html",
            "clock__get-time": "ui://clock/get-time/mcp-app.html",
            "twin__get-time": "ui://twin/get-time/mcp-app.html",
        }
        assert all(each["_meta"]["ui/resourceUri"] == pages[each["name"]] for each in listed if each["name"] in pages)
        for name in ("clock__get-time", "budget__get-budget-data"):
            (part,) = (await agent.request("resources/read", uri=pages[name]))["result"]["contents"]
            assert part["uri"] == pages[name] and part["mimeType"] == PAGE and "<html" in part["text"].lower()
            answer = await agent.request("tools/call", name=name.partition("__")[2], arguments={})
            assert answer["result"]["content"][0]["text"]
        await agent.request("resources/read", uri=pages["twin__get-time"])
        error = (await agent.request("tools/call", name="get-time", arguments={}))["error"]
        assert error["data"]["code"] == "app_ambiguous"
        named = {"ui": {"resourceUri": pages["twin__get-time"]}}
        assert "result" in await agent.request("tools/call", name="get-time", arguments={}, _meta=named)


@asynccontextmanager
async def over_http(python: str, program: Path, *arguments: str) -> AsyncIterator[str]:
    """The address of a server that listens at the port which is its last argument."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    process = await asyncio.create_subprocess_exec(python, str(program), *arguments, str(port))
    try:
        with anyio.fail_after(LIMIT_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


async def completed(agent: Agent, task_id: str) -> dict[str, Any]:
    """The state of a task once it is over."""
    with anyio.fail_after(LIMIT_S):
        while True:
            answer = await agent.request("tasks/get", taskId=task_id)
            if answer["result"]["status"] != "working":
                return dict(answer["result"])
            await asyncio.sleep(0.05)


async def told(agent: Agent, text: str) -> None:
    """Returns when a stream of the agent's has told a task that ended with this text."""
    assert isinstance(agent, StreamAgent)
    with anyio.fail_after(LIMIT_S):
        while not any(each["method"] == "notifications/tasks" and text in json.dumps(each) for each in agent.strays):
            await asyncio.sleep(0.05)


async def test_tasks_of_fastmcp_outlive_the_gateway_over_http(tmp_path: Path) -> None:
    """And not on stdio, which it says; a client that knows no tasks is answered at once.

    The package tells of no task by itself, so those that are followed on a stream are looked at.
    """
    python = str(python_with(*TASKS_PACKAGES))
    async with over_http(python, PROGRAM) as url:
        servers = {"web": {"url": url}, "pipe": {"command": python, "args": [str(PROGRAM)]}}
        ids = {}
        async with (
            settled(tmp_path / "data", servers) as gateway,
            in_memory(gateway, "modern", extensions={TASKS: {}}) as agent,
        ):
            for name in servers:
                task = await agent.call("call_tool_write", name=f"{name}:slow", args={"seconds": 0.1, "text": name})
                assert task["resultType"] == "task"
                state = await completed(agent, task["taskId"])
                assert state["result"]["content"][0]["text"] == f"done {name}"
                task = await agent.call("call_tool_write", name=f"{name}:slow", args={"seconds": 0.5, "text": name})
                await agent.begin("subscriptions/listen", notifications={"taskIds": [task["taskId"]]})
                await told(agent, f"done {name}")
                task = await agent.call("call_tool_write", name=f"{name}:slow", args={"seconds": 60, "text": name})
                assert (await agent.request("tasks/cancel", taskId=task["taskId"]))["result"]
                assert (await completed(agent, task["taskId"]))["status"] == "cancelled"
                task = await agent.call("call_tool_write", name=f"{name}:slow", args={"seconds": 1, "text": name})
                ids[name] = task["taskId"]
            agent.capabilities = {}
            plain = await agent.call("call_tool_write", name="web:slow", args={"seconds": 0, "text": "x"})
            assert plain["content"][0]["text"] == "done x"
        async with (
            settled(tmp_path / "data", servers) as gateway,
            in_memory(gateway, "modern", extensions={TASKS: {}}) as agent,
        ):
            assert (await completed(agent, ids["web"]))["result"]["content"][0]["text"] == "done web"
            assert "stdio" in (await agent.request("tasks/get", taskId=ids["pipe"]))["error"]["message"]


async def checks(url: str, scenario: str, folder: Path) -> dict[str, str]:
    """What the conformance suite says of a server, by check."""
    program = npm_package(SUITE) / "dist" / "index.js"
    options = ["--scenario", scenario, "--spec-version", "2026-07-28", "--force", "-o", str(folder)]
    node = str(node_folder() / "node")
    process = await asyncio.create_subprocess_exec(
        *(node, str(program), "server", "--url", url, *options), stdout=asyncio.subprocess.DEVNULL
    )
    with anyio.fail_after(SUITE_S):
        await process.wait()
    files = [json.loads(file.read_text("utf-8")) for file in folder.rglob("checks.json")]
    return {check["id"]: check["status"] for found in files for check in found}


async def compared(url: str, scenarios: tuple[str, ...], folder: Path, passed: str | None) -> dict[str, int]:
    """Checks that pass through the gateway, by scenario; none is lost on the way."""
    entry = {"url": url, "input_requests": True}
    async with settled(folder / "data", {"x": entry}, passthrough=passed) as gateway, served(gateway) as base:
        found = {}
        for scenario in scenarios:
            direct = await checks(url, scenario, folder / "direct" / scenario)
            through = await checks(f"{base}/mcp", scenario, folder / "through" / scenario)
            good = {check for check, status in direct.items() if status == "SUCCESS"}
            assert good and good <= {check for check, status in through.items() if status == "SUCCESS"}, scenario
            found[scenario] = sum(status == "SUCCESS" for status in through.values())
    return found


async def test_the_conformance_suite_finds_tasks_unharmed(tmp_path: Path) -> None:
    """What passes at fastmcp-tasks passes through the gateway; the suite has no checks of notifications yet."""
    async with over_http(str(python_with(*TASKS_PACKAGES)), HERE / "tasks_conformance_server.py") as url:
        found = await compared(url, OF_TASKS, tmp_path, "x")
    assert found["tasks-lifecycle"] == 9 and found["tasks-dispatch-and-envelope"] == 9, found


@pytest.mark.parametrize("passed", ["x", None], ids=["passed through", "under the gateway's names"])
async def test_the_conformance_suite_finds_skills_unharmed(passed: str | None, tmp_path: Path) -> None:
    """What passes at FastMCP passes through the gateway, which serves directories besides."""
    root = tmp_path / "skills" / "refunds"
    (root / "references").mkdir(parents=True)
    (root / "SKILL.md").write_text(main_file("refunds"))
    (root / "references" / "GUIDE.md").write_text("Ask first.")
    async with over_http(sys.executable, HERE / "skills_server.py", str(tmp_path / "skills")) as url:
        found = await compared(url, OF_SKILLS, tmp_path, passed)
    assert found["sep-2640-skills-enumeration"] == 32 and found["sep-2640-skills-directory"] == 7, found
