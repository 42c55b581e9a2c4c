"""Tasks (ext-tasks, schema 2026-07-28) as clients meet them through the gateway."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import extended_upstream
import pytest
from agents import META, Agent, HttpAgent, StreamAgent
from askable_agents import askable_at, reply_as
from extended_servers import TASKS, Extended, code_of
from msgspec.structs import replace
from transports import in_memory, listening, over_http, served, settled

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope

# Marked long: gateways and servers of their own, most of them processes.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

LIMIT_S = 60
KNOWS_TASKS = {"extensions": {TASKS: {}}}
WORKING = {"status": "working", "statusMessage": "on it"}
DONE = {"status": "completed", "result": {"content": [{"type": "text", "text": "worked"}]}}
ASKING = {
    "status": "input_required",
    "inputRequests": {
        "who": {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Who are you?",
                "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
        }
    },
}


class Tasked:
    """A gateway in front of `web`, a server over HTTP, and `pipe`, the same on stdio."""

    def __init__(self, directory: Path, url: str, web: Extended, pipe: Extended) -> None:
        self.directory = directory
        self.entries: dict[str, Any] = {"web": {"url": url}, "pipe": pipe.entry}
        self.servers = {"web": web, "pipe": pipe}

    @asynccontextmanager
    async def gateway(self, **settings: Any) -> AsyncIterator[Gateway]:
        async with settled(self.directory / "data", self.entries, list_all_below_tokens=100_000, **settings) as gateway:
            yield gateway


@pytest.fixture
async def tasked(tmp_path: Path) -> AsyncIterator[Tasked]:
    """The servers outlive the gateways of a test."""
    web, pipe = (Extended(tmp_path, name, extensions={TASKS: {}}) for name in ("web", "pipe"))
    app = extended_upstream.asgi(extended_upstream.Extended("modern", web.file, web.ledger))
    async with listening(app) as base:
        yield Tasked(tmp_path, f"{base}/mcp", web, pipe)


async def begin(agent: Agent, server: str, *states: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A new task, as its client gets it."""
    arguments = {"states": [WORKING, *states], **more}
    answer = await agent.request("tools/call", name=f"{server}__work", arguments=arguments)
    task: dict[str, Any] = answer["result"]
    assert task["resultType"] == "task" and task["status"] == "working", answer
    return task


async def look(agent: Agent, task_id: str) -> dict[str, Any]:
    """The state of a task; the whole answer where there is none."""
    answer = await agent.request("tasks/get", taskId=task_id)
    return dict(answer.get("result", answer))


async def ended(agent: Agent, task_id: str) -> dict[str, Any]:
    """The state of a task once it is over."""
    with anyio.fail_after(LIMIT_S):
        while True:
            state = await look(agent, task_id)
            if state.get("status") not in ("working", "input_required"):
                return state
            await asyncio.sleep(0.01)


@asynccontextmanager
async def client_of(gateway: Gateway, transport: str, **capabilities: Any) -> AsyncIterator[Agent]:
    """A client of the modern era that knows tasks, unless something else is declared."""
    declared = capabilities or KNOWS_TASKS
    async with AsyncExitStack() as stack:
        if transport == "memory":
            yield await stack.enter_async_context(in_memory(gateway, "modern", **declared))
            return
        base = await stack.enter_async_context(served(gateway))
        yield await stack.enter_async_context(over_http(base, "modern", **declared))


@pytest.mark.requirement("tasks-sealed")
@pytest.mark.parametrize("transport", ["memory", "http"])
@pytest.mark.parametrize("server", ["web", "pipe"])
async def test_a_task_is_looked_at_under_an_id_of_the_gateways(tasked: Tasked, server: str, transport: str) -> None:
    """From its start to its result; the server's own id is never seen, nor taken."""
    async with tasked.gateway() as gateway, client_of(gateway, transport) as agent:
        assert TASKS in agent.greeting["result"]["capabilities"]["extensions"]
        task = await begin(agent, server, WORKING, DONE, id="own-id-of-the-server")
        assert {key: task[key] for key in ("ttlMs", "pollIntervalMs", "createdAt", "statusMessage")} == {
            "ttlMs": 60_000,
            "pollIntervalMs": 60,
            "createdAt": extended_upstream.STARTED,
            "statusMessage": "on it",
        }
        states = [await look(agent, task["taskId"]) for _ in range(2)]
        assert [state["status"] for state in states] == ["working", "completed"]
        assert states[1]["result"]["content"] == DONE["result"]["content"]
        assert all(state["taskId"] == task["taskId"] and state["resultType"] == "complete" for state in states)
        assert "own-id" not in json.dumps([task, *states])
        assert code_of(await look(agent, "own-id-of-the-server")) == "task_not_found"


@pytest.mark.requirement("tasks-sealed")
async def test_a_task_begins_with_the_call_tools_too(tasked: Tasked) -> None:
    """And ends like a call: what it says is cleaned, what it links to leads to the gateway."""
    link = {"type": "resource_link", "uri": "note://7", "name": "n"}
    result = {"content": [{"type": "text", "text": "a\u202eb"}, link], "_meta": {"ui": {"resourceUri": "ui://x"}}}
    states = [{**WORKING, "statusMessage": "o\x07n"}, {"status": "completed", "result": result}]
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        task = await agent.call("call_tool_write", name="web:work", args={"states": states})
        assert task["resultType"] == "task" and task["statusMessage"] == "on"
        got = (await ended(agent, task["taskId"]))["result"]
        assert got["content"][0]["text"] == "ab"
        assert got["content"][1]["uri"] == "mcpproxy://web/note%3A%2F%2F7"
        assert got["_meta"]["ui"]["resourceUri"] == "ui://web/x"


@pytest.mark.requirement("tasks-sealed")
async def test_a_task_that_failed_says_so(tasked: Tasked) -> None:
    """With the server's error, and as cancelled where it was."""
    error = {"code": -32603, "message": "API rate\x07 limit"}
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        task = await begin(agent, "web", {"status": "failed", "error": error})
        assert (await ended(agent, task["taskId"]))["error"] == {"code": -32603, "message": "API rate limit"}
        task = await begin(agent, "web", WORKING)
        assert (await agent.request("tasks/cancel", taskId=task["taskId"]))["result"]["resultType"] == "complete"
        assert (await ended(agent, task["taskId"]))["status"] == "cancelled"


@pytest.mark.requirement("tasks-outlive")
async def test_a_task_of_an_http_server_outlives_client_and_gateway(tasked: Tasked) -> None:
    """One on stdio ends with its server's process, which is said when it begins, and when it is asked for after."""
    async with tasked.gateway() as gateway, client_of(gateway, "http") as agent:
        tasks = {name: await begin(agent, name, DONE) for name in ("web", "pipe")}
    notes = {name: task["_meta"].get("dev.smartmcpproxy/taskEndsWith") for name, task in tasks.items()}
    assert notes["web"] is None and "stdio" in notes["pipe"]
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        assert (await ended(agent, tasks["web"]["taskId"]))["status"] == "completed"
        lost = await look(agent, tasks["pipe"]["taskId"])
        assert code_of(lost) == "task_not_found" and "stdio" in lost["error"]["message"]


@pytest.mark.requirement("tasks-outlive")
async def test_another_run_of_a_stdio_server_answers_for_none_of_the_last(tasked: Tasked) -> None:
    """Even where it gives the same ids again."""
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        old = await begin(agent, "pipe", DONE, id="same")
        await gateway.upstreams.fleet.upstreams["pipe"].restart()
        with anyio.fail_after(LIMIT_S):
            while not gateway.lists.tool_lists.is_fresh("pipe"):
                await gateway.lists.tool_lists.wait_changed()
        new = await begin(agent, "pipe", DONE, id="same")
        assert code_of(await look(agent, old["taskId"])) == "task_not_found"
        assert (await ended(agent, new["taskId"]))["status"] == "completed"


@pytest.mark.requirement("tasks-declared")
async def test_a_client_that_does_not_declare_tasks_gets_none(tasked: Tasked) -> None:
    """Nor may it look at one; methods of the extension do not exist in the handshake era."""
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        task = await begin(agent, "web", DONE)
        agent.capabilities = {}
        answer = await agent.request("tools/call", name="web__work", arguments={"states": [DONE]})
        assert answer["result"]["content"][0]["text"] == "worked"
        for method, more in {"tasks/get": {}, "tasks/cancel": {}, "tasks/update": {"inputResponses": {}}}.items():
            error = (await agent.request(method, taskId=task["taskId"], **more))["error"]
            assert error["code"] == -32021
            assert error["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}
        error = (await agent.request("subscriptions/listen", notifications={"taskIds": [task["taskId"]]}))["error"]
        assert error["code"] == -32021
        declared = [declared for _, declared in tasked.servers["web"].asked("tools/call")]
        assert declared == [KNOWS_TASKS, {}]
        async with in_memory(gateway, "handshake", **KNOWS_TASKS) as old:
            assert (await old.request("tasks/get", taskId=task["taskId"]))["error"]["code"] == -32601


@pytest.mark.requirement("tasks-waited")
@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("tool", ["web__work", "call_tool_write"])
async def test_a_client_without_tasks_gets_the_result_as_if_there_were_none(
    tasked: Tasked, era: Any, tool: str
) -> None:
    """Of a server that makes nothing but a task of the call: it is waited for, with progress."""
    states = [WORKING, {**WORKING, "statusMessage": "half"}, DONE]
    arguments: dict[str, Any] = {"states": states, "demands": True}
    if tool == "call_tool_write":
        arguments = {"name": "web:work", "args": arguments}
    async with tasked.gateway() as gateway, in_memory(gateway, era) as agent:
        exchange = await agent.begin("tools/call", token=True, name=tool, arguments=arguments)
        answer = (await asyncio.wait_for(exchange.answer, LIMIT_S))["result"]
        assert answer["content"][0]["text"] == "worked" and answer.get("resultType") != "task"
        heard = [exchange.heard.get_nowait()["params"]["message"] for _ in range(exchange.heard.qsize())]
        assert heard == ["on it", "half"]


@pytest.mark.requirement("tasks-waited")
async def test_what_a_waited_task_comes_to_is_what_the_call_comes_to(tasked: Tasked) -> None:
    """A tool's failure, the server's error, a cancellation, a state that nobody knows, and no state at all."""
    failed = {"status": "failed", "error": {"code": -32603, "message": "no luck"}}
    cases = {
        "upstream_failed": failed,
        "task_cancelled": {"status": "cancelled"},
        "upstream_protocol": {"status": "asleep"},
        "task_needs_input": ASKING,
    }
    async with tasked.gateway() as gateway, in_memory(gateway, "modern") as agent:
        for code, last in cases.items():
            answer = await agent.call("call_tool_write", name="web:work", args={"states": [last], "demands": True})
            assert answer["isError"] and answer["structuredContent"]["error"]["code"] == code, answer
        tool_error = {"content": [{"type": "text", "text": "sorry"}], "isError": True}
        states = [{"status": "completed", "result": tool_error}]
        answer = await agent.call("call_tool_write", name="web:work", args={"states": states, "demands": True})
        assert answer["isError"] and answer["content"] == tool_error["content"]
        with anyio.fail_after(LIMIT_S):
            while not tasked.servers["web"].asked("tasks/cancel"):
                await asyncio.sleep(0.01)


@pytest.mark.requirement("tasks-waited")
async def test_a_client_that_gives_up_ends_the_task_that_is_waited_for(tasked: Tasked) -> None:
    """The server is told with tasks/cancel."""
    async with tasked.gateway() as gateway, in_memory(gateway, "modern") as agent:
        arguments = {"states": [WORKING], "demands": True}
        exchange = await agent.begin("tools/call", token=True, name="web__work", arguments=arguments)
        await asyncio.wait_for(exchange.heard.get(), LIMIT_S)
        await agent.cancel(exchange)
        with anyio.fail_after(LIMIT_S):
            while not tasked.servers["web"].asked("tasks/cancel"):
                await asyncio.sleep(0.01)


@pytest.mark.requirement("tasks-answered")
async def test_a_task_is_answered_by_a_client_that_may_be_asked(tasked: Tasked) -> None:
    """The question bears the server's name; a server whose user has not allowed it asks nobody."""
    declared = {**KNOWS_TASKS, "elicitation": {"form": {}}}
    tasked.entries["web"]["input_requests"] = True
    async with tasked.gateway() as gateway, client_of(gateway, "memory", **declared) as agent:
        task = await begin(agent, "web", ASKING)
        state = await look(agent, task["taskId"])
        assert state["status"] == "input_required"
        assert "web" in state["inputRequests"]["who"]["params"]["message"]
        responses = {"who": {"action": "accept", "content": {"name": "Luca"}}}
        answer = await agent.request("tasks/update", taskId=task["taskId"], inputResponses=responses)
        assert answer["result"]["resultType"] == "complete"
        text = (await ended(agent, task["taskId"]))["result"]["content"][0]["text"]
        assert json.loads(text) == responses
        picky = await begin(agent, "web", {"picky": True})
        refused = await agent.request("tasks/update", taskId=picky["taskId"], inputResponses=responses)
        assert refused["error"]["code"] == -32602 and "not such answers" in refused["error"]["message"]
        shy = await begin(agent, "pipe", ASKING)
        assert code_of(await look(agent, shy["taskId"])) == "upstream_protocol"


@pytest.mark.requirement("tasks-followed")
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_client_is_told_of_each_state_of_its_task(tasked: Tasked, transport: str) -> None:
    """On the stream that it asked for, acknowledged first, without ids that are none of its own."""
    async with tasked.gateway() as gateway, client_of(gateway, transport) as agent:
        task = await begin(agent, "web", {**WORKING, "statusMessage": "half"}, DONE)
        wanted = {"taskIds": [task["taskId"], "nonsense"], "toolsListChanged": True}
        heard = await notices(agent, wanted, 3)
    assert heard[0]["method"] == "notifications/subscriptions/acknowledged"
    assert heard[0]["params"]["notifications"] == {"taskIds": [task["taskId"]], "toolsListChanged": True}
    states = [each["params"] for each in heard[1:]]
    assert {each["method"] for each in heard[1:]} == {"notifications/tasks"}
    assert [state["status"] for state in states] == ["working", "completed"]
    assert states[-1]["result"]["content"] == DONE["result"]["content"]
    assert all(state["taskId"] == task["taskId"] for state in states)
    assert all(set(each["params"]["_meta"]) == {f"{META}subscriptionId"} for each in heard[1:])


async def notices(agent: Agent, wanted: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The first messages of a stream."""
    with anyio.fail_after(LIMIT_S):
        if isinstance(agent, StreamAgent):
            await agent.begin("subscriptions/listen", notifications=wanted)
            while len(agent.strays) < count:
                await asyncio.sleep(0.01)
            return agent.strays[:count]
        body = {
            "jsonrpc": "2.0",
            "id": "listen",
            "method": "subscriptions/listen",
            "params": {"notifications": wanted, "_meta": agent._meta({})},
        }
        heard: list[dict[str, Any]] = []
        async with agent.http.stream("POST", agent._url, json=body, headers=agent._headers(body)) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data:") and line != "data: ":
                    heard.append(json.loads(line.removeprefix("data:")))
                if len(heard) == count:
                    return heard
        raise AssertionError(heard)


@pytest.mark.requirement("tasks-private")
async def test_a_task_is_its_principals_own(tasked: Tasked) -> None:
    """Others are told what anybody is told of an id that does not exist, whatever they do with it."""
    async with tasked.gateway() as gateway:
        scopes = {"a": Scope(None, "destructive"), "b": Scope(None, "destructive"), "pipe": Scope(("pipe",), "write")}
        secrets = {
            name: (await gateway.admin.agent_tokens.create(name, scope)).secret for name, scope in scopes.items()
        }
        async with AsyncExitStack() as stack:
            base = await stack.enter_async_context(served(gateway, token="own-token-of-sixteen-chars"))
            agents = {
                name: await stack.enter_async_context(
                    over_http(base, "modern", {"authorization": f"Bearer {secret}"}, **KNOWS_TASKS)
                )
                for name, secret in secrets.items()
            }
            secret = {"status": "completed", "result": {"content": [{"type": "text", "text": "of a alone"}]}}
            task = await begin(agents["a"], "web", secret)
            nothing = await look(agents["b"], "v1.nonsense")
            for name in ("b", "pipe"):
                for method, more in {
                    "tasks/get": {},
                    "tasks/cancel": {},
                    "tasks/update": {"inputResponses": {}},
                }.items():
                    answer = await agents[name].request(method, taskId=task["taskId"], **more)
                    assert answer["error"] == nothing["error"]
            assert tasked.servers["web"].asked("tasks/get") == tasked.servers["web"].asked("tasks/cancel") == []
            state = await ended(agents["a"], task["taskId"])
            assert state["result"]["content"][0]["text"] == "of a alone"
            await gateway.admin.agent_tokens.revoke("a")


@pytest.mark.requirement("tasks-bad")
async def test_odd_ids_are_those_of_no_task(tasked: Tasked) -> None:
    """Forged, cut, lengthened, huge, of another kind: one refusal, and the server is not asked."""
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        task = (await begin(agent, "web", DONE))["taskId"]
        middle = len(task) // 2
        flipped = task[:middle] + ("A" if task[middle] != "A" else "B") + task[middle + 1 :]
        for odd in (
            "",
            "v1.",
            task[:-1],
            task + "A",
            flipped,
            task[3:],
            task * 2,
            "x" * 100_000,
            "\ud83d\ude00",
            "a b\n",
        ):
            assert code_of(await look(agent, odd)) == "task_not_found"
        for params in ({}, {"taskId": 7}, {"taskId": None}, {"taskId": [task]}):
            assert (await agent.request("tasks/get", **params))["error"]["code"] == -32602
        for answers in (None, [], "x"):
            refused = await agent.request("tasks/update", taskId=task, inputResponses=answers)
            assert refused["error"]["code"] == -32602
        for odd_ids in (7, [7], task):
            refused = await agent.request("subscriptions/listen", notifications={"taskIds": odd_ids})
            assert refused["error"]["code"] == -32602
        assert tasked.servers["web"].asked("tasks/get") == []


@pytest.mark.requirement("tasks-bad")
async def test_odd_tasks_of_a_server_are_its_fault(tasked: Tasked) -> None:
    """No id, one without end, a task that nobody declared; a task whose server forgot it is none."""
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        for odd in ({}, {"taskId": ""}, {"taskId": 7}, {"taskId": "x" * 5_000}):
            result = {"resultType": "task", "status": "working", **odd}
            answer = await agent.call("call_tool_write", name="web:answer", args={"result": result})
            assert answer["structuredContent"]["error"]["code"] == "upstream_protocol", answer
        for inner in ([], "text", None, 7):
            task = await begin(agent, "web", {"status": "completed", "result": inner})
            assert code_of(await look(agent, task["taskId"])) == "upstream_protocol"
        agent.capabilities = {}
        result = {"resultType": "task", "taskId": "x", "status": "working"}
        answer = await agent.call("call_tool_write", name="web:answer", args={"result": result})
        assert answer["isError"] and "not a complete result" in json.dumps(answer)


@pytest.mark.requirement("tasks-counted")
async def test_tasks_are_written_down_and_counted(tasked: Tasked) -> None:
    """Each look is a request to the server like others: on record without the id, and against its limits."""
    tasked.entries["web"]["limits"] = {"calls_per_s": 0.001, "burst": 3}
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        task = await begin(agent, "web", WORKING)
        codes = [code_of(answer) if "error" in (answer := await look(agent, task["taskId"])) else "" for _ in range(3)]
        assert codes == ["", "", "rate_limited"]
        with anyio.fail_after(LIMIT_S):
            while True:
                page = await gateway.catalog.activity_page(ActivityFilter(kind="call"), 10)
                rows = [(each.activity.subject, each.activity.outcome) for each in page]
                if len(rows) == 4:
                    break
                await asyncio.sleep(0.01)
        assert sorted(rows) == [
            ("web:tasks/get:work", "ok"),
            ("web:tasks/get:work", "ok"),
            ("web:tasks/get:work", "rate_limited"),
            ("web:work", "task"),
        ]


@pytest.mark.requirement("tasks-counted")
async def test_a_blocked_tools_tasks_are_no_longer_given(tasked: Tasked) -> None:
    """What its user took away is away."""
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        task = await begin(agent, "web", DONE)
        await gateway.admin.approvals.block("web:work", "tester")
        assert code_of(await look(agent, task["taskId"])) == "task_not_found"


async def relisted(gateway: Gateway, server: str) -> None:
    """Returns once the present connection of a server has been listed."""
    with anyio.fail_after(LIMIT_S):
        while not gateway.lists.tool_lists.is_fresh(server):
            await gateway.lists.tool_lists.wait_changed()


@pytest.mark.requirement("tasks-outlive")
async def test_a_wait_ends_with_the_process_of_its_task(tasked: Tasked) -> None:
    """The next process may give the same id to a task of somebody else, which is neither shown nor cancelled."""
    async with (
        tasked.gateway() as gateway,
        client_of(gateway, "memory") as other,
        in_memory(gateway, "modern") as agent,
    ):
        arguments = {"states": [WORKING], "demands": True, "id": "same"}
        exchange = await agent.begin("tools/call", token=True, name="pipe__work", arguments=arguments)
        await asyncio.wait_for(exchange.heard.get(), LIMIT_S)
        await gateway.upstreams.fleet.upstreams["pipe"].restart()
        await relisted(gateway, "pipe")
        task = await begin(other, "pipe", *[WORKING] * 10, DONE, id="same")
        answer = (await asyncio.wait_for(exchange.answer, LIMIT_S))["result"]
        assert answer["isError"] and answer["structuredContent"]["error"]["code"] == "task_not_found", answer
        assert answer["structuredContent"]["error"]["delivery"] == "unknown"
        assert (await ended(other, task["taskId"]))["status"] == "completed"


@pytest.mark.requirement("tasks-outlive")
async def test_another_entry_of_a_stdio_server_is_another_process(tasked: Tasked) -> None:
    """Which counts its connections anew."""
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        old = await begin(agent, "pipe", DONE, id="same")
        configs = {name: each.config for name, each in gateway.upstreams.fleet.upstreams.items()}
        configs["pipe"] = replace(configs["pipe"], env={"OTHER": "1"})
        await gateway.upstreams.fleet.apply(configs)
        with anyio.fail_after(LIMIT_S):
            while not gateway.upstreams.fleet.upstreams["pipe"].is_ready:
                await asyncio.sleep(0.01)
        await relisted(gateway, "pipe")
        await begin(agent, "pipe", DONE, id="same")
        assert code_of(await look(agent, old["taskId"])) == "task_not_found"


@pytest.mark.requirement("tasks-waited")
async def test_what_a_task_comes_to_is_a_complete_result(tasked: Tasked) -> None:
    """No question that nobody has judged, and no other task, comes in the place of one."""
    asks = {"method": "elicitation/create", "params": {"message": "Your password?", "requestedSchema": {}}}
    question = {"resultType": "input_required", "inputRequests": {"q": asks}, "requestState": "own"}
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        for odd in (question, {"resultType": "task", "taskId": "own", "status": "working"}):
            agent.capabilities = KNOWS_TASKS
            task = await begin(agent, "web", {"status": "completed", "result": odd})
            assert code_of(await look(agent, task["taskId"])) == "upstream_protocol"
            agent.capabilities = {"elicitation": {"form": {}}}
            arguments = {"states": [{"status": "completed", "result": odd}], "demands": True}
            answer = (await agent.request("tools/call", name="web__work", arguments=arguments))["result"]
            assert answer["resultType"] == "complete" and answer["isError"], answer


@pytest.mark.requirement("tasks-bad")
async def test_odd_members_of_a_task_are_its_servers_fault(tasked: Tasked) -> None:
    """What cannot be read or written is told as such, what can is passed on, and no id is given that nobody can use."""
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        for odd in ({"_meta": [1]}, {"_meta": "x"}):
            task = await begin(agent, "web", {**WORKING, **odd})
            assert (await look(agent, task["taskId"]))["status"] == "working"
            result = {"resultType": "task", "taskId": "x", "status": "working", **odd}
            answer = await agent.call("call_tool_write", name="pipe:answer", args={"result": result})
            assert answer["resultType"] == "task", answer
        task = await begin(agent, "web", {"deep": 300})
        assert (await look(agent, task["taskId"]))["error"]["code"] == -32603
        result = {"resultType": "task", "taskId": "漢" * 2_048, "status": "working"}
        answer = await agent.call("call_tool_write", name="web:answer", args={"result": result})
        assert answer["structuredContent"]["error"]["code"] == "upstream_protocol", answer


@pytest.mark.requirement("tasks-declared")
async def test_the_handshake_era_is_not_promised_tasks(tasked: Tasked) -> None:
    """It has no such methods."""
    async with tasked.gateway() as gateway, in_memory(gateway, "handshake", **KNOWS_TASKS) as agent:
        assert TASKS not in agent.greeting["result"]["capabilities"].get("extensions", {})


@pytest.mark.requirement("tasks-waited")
async def test_a_blocked_tools_task_is_no_longer_waited_for(tasked: Tasked) -> None:
    """What its user took away is away; the server is told."""
    async with tasked.gateway() as gateway, in_memory(gateway, "modern") as agent:
        arguments = {"states": [*[WORKING] * 20, DONE], "demands": True}
        exchange = await agent.begin("tools/call", token=True, name="web__work", arguments=arguments)
        await asyncio.wait_for(exchange.heard.get(), LIMIT_S)
        await gateway.admin.approvals.block("web:work", "tester")
        answer = (await asyncio.wait_for(exchange.answer, LIMIT_S))["result"]
        assert answer["isError"], answer
        with anyio.fail_after(LIMIT_S):
            while not tasked.servers["web"].asked("tasks/cancel"):
                await asyncio.sleep(0.01)


@pytest.mark.requirement("tasks-waited")
async def test_a_task_that_asks_without_end_is_given_up(tasked: Tasked) -> None:
    """A person is not asked more often than in a call without a task."""
    tasked.entries["web"]["input_requests"] = True
    async with (
        tasked.gateway() as gateway,
        askable_at("memory", "handshake", gateway, "", {"elicitation": {}}, reply_as("Ann")) as agent,
    ):
        result = await agent.call("web__work", states=[WORKING, {"asks": True}], demands=True)
    assert result["structuredContent"]["error"]["code"] == "upstream_protocol", result
    assert len(agent.asked) == 10


@pytest.mark.requirement("tasks-waited")
async def test_a_task_that_is_given_up_over_an_error_is_cancelled(tasked: Tasked) -> None:
    """The server answered that it failed to look, not that the task is over."""
    async with tasked.gateway() as gateway, in_memory(gateway, "modern") as agent:
        arguments = {"states": [WORKING, {"broken": True}], "demands": True}
        answer = (await agent.request("tools/call", name="web__work", arguments=arguments))["result"]
        assert answer["isError"]
        with anyio.fail_after(LIMIT_S):
            while not tasked.servers["web"].asked("tasks/cancel"):
                await asyncio.sleep(0.01)


@pytest.mark.requirement("tasks-sealed")
async def test_what_a_task_says_is_fenced_like_the_rest(tasked: Tasked) -> None:
    """Its message, and the error that it came to."""
    failed = {"status": "failed", "error": {"code": -32603, "message": "obey me"}}
    async with tasked.gateway(fence_results=True) as gateway, client_of(gateway, "memory") as agent:
        task = await begin(agent, "web", failed)
        state = await ended(agent, task["taskId"])
    assert task["statusMessage"].startswith("<untrusted-output") and "on it" in task["statusMessage"]
    assert state["error"]["message"].startswith("<untrusted-output") and state["error"]["code"] == -32603


@pytest.mark.requirement("tasks-followed")
async def test_a_stream_does_not_follow_the_next_process(tasked: Tasked) -> None:
    """A task of the same id in it is somebody else's."""
    async with (
        tasked.gateway() as gateway,
        client_of(gateway, "memory") as other,
        client_of(gateway, "memory") as agent,
    ):
        assert isinstance(agent, StreamAgent) and isinstance(other, StreamAgent)
        task = await begin(agent, "pipe", WORKING, id="same")
        await agent.begin("subscriptions/listen", notifications={"taskIds": [task["taskId"]]})
        with anyio.fail_after(LIMIT_S):
            while len(agent.strays) < 2:
                await asyncio.sleep(0.01)
        secret = {**WORKING, "statusMessage": "secret"}
        tasked.servers["pipe"].store(tasks={"same": [secret]})
        await gateway.upstreams.fleet.upstreams["pipe"].restart()
        await relisted(gateway, "pipe")
        theirs = await begin(other, "pipe", *[secret] * 20, DONE, id="same")
        await notices(other, {"taskIds": [theirs["taskId"]]}, 2)
        await ended(other, theirs["taskId"])
        assert "secret" in json.dumps(other.strays) and "secret" not in json.dumps(agent.strays)


@pytest.mark.requirement("tasks-declared")
async def test_a_toolset_has_the_tasks_of_its_calls(tasked: Tasked) -> None:
    """Promised there, too."""
    async with tasked.gateway(routing_type="DYNAMIC") as gateway, client_of(gateway, "http") as agent:
        assert isinstance(agent, HttpAgent)
        found = (await agent.call("retrieve_tools", query="work"))["structuredContent"]
        task = await begin(agent, "web", DONE)
        url = agent._url
        agent._url = f"{url}/t/{found['toolset']['handle']}"
        await agent.greet()
        assert TASKS in agent.greeting["result"]["capabilities"]["extensions"]
        assert (await ended(agent, task["taskId"]))["status"] == "completed"


def told(agent: StreamAgent) -> list[dict[str, Any]]:
    """The states of tasks that an agent was told."""
    return [each["params"] for each in agent.strays if each.get("method") == "notifications/tasks"]


async def told_until(agent: StreamAgent, text: str) -> list[dict[str, Any]]:
    """The same, once they hold a text."""
    with anyio.fail_after(LIMIT_S):
        while text not in json.dumps(told(agent)):
            await asyncio.sleep(0.01)
    return told(agent)


async def told_by(tasked: Tasked, server: str) -> None:
    """Returns once a server has been asked to tell of a task by itself."""
    with anyio.fail_after(LIMIT_S):
        while not any("taskIds" in params["notifications"] for params, _ in asked_to_listen(tasked, server)):
            await asyncio.sleep(0.01)


def asked_to_listen(tasked: Tasked, server: str) -> list[list[Any]]:
    return tasked.servers[server].asked("subscriptions/listen")


SLOW = {**WORKING, "pollIntervalMs": 30_000}
"""Of a task that is looked at every half minute: whatever comes sooner, its server has told."""


async def recorded(gateway: Gateway) -> list[str]:
    page = await gateway.catalog.activity_page(ActivityFilter(kind="call"), 20)
    return [each.activity.subject for each in page]


@pytest.mark.requirement("tasks-followed")
@pytest.mark.parametrize("server", ["web", "pipe"])
async def test_what_a_server_tells_of_a_task_is_passed_on_to_its_client_alone(tasked: Tasked, server: str) -> None:
    """At once, under the sealed id, treated like the answer to a look, and on record."""
    tasked.servers[server].store(speaks=True)
    link = {"type": "resource_link", "uri": "note://7", "name": "n"}
    done = {"status": "completed", "result": {"content": [{"type": "text", "text": "a\u202eb"}, link]}}
    async with (
        tasked.gateway() as gateway,
        client_of(gateway, "memory") as agent,
        client_of(gateway, "memory") as other,
    ):
        assert isinstance(agent, StreamAgent) and isinstance(other, StreamAgent)
        tasks = {each: await begin(each, server, SLOW, id=own) for each, own in ((agent, "own-a"), (other, "own-b"))}
        for each, task in tasks.items():
            await each.begin("subscriptions/listen", notifications={"taskIds": [task["taskId"]]})
            await told_until(each, "working")
        await told_by(tasked, server)
        with anyio.fail_after(LIMIT_S):
            while not {"own-a", "own-b"} <= gateway.upstreams.fleet.upstreams[server].watch.tasks.active_tasks:
                await asyncio.sleep(0.01)
        half = {**SLOW, "statusMessage": "h\x07alf"}
        for args in ({"task": "own-a", "states": [half, done]}, {"task": "nobodys", "states": [SLOW]}):
            await agent.call("call_tool_write", name=f"{server}:push", args={**args, "everywhere": True})
        states = await told_until(agent, "completed")
        assert [state["status"] for state in states] == ["working", "working", "completed"]
        assert states[1]["statusMessage"] == "half"
        assert states[-1]["result"]["content"][0]["text"] == "ab"
        assert states[-1]["result"]["content"][1]["uri"] == f"mcpproxy://{server}/note%3A%2F%2F7"
        assert {state["taskId"] for state in states} == {tasks[agent]["taskId"]}
        assert all(set(state["_meta"]) == {f"{META}subscriptionId"} for state in states)
        assert "own-a" not in json.dumps(agent.strays)
        assert len(told(other)) == 1 and "nobodys" not in json.dumps(agent.strays)
        with anyio.fail_after(LIMIT_S):  # records are stored together, a moment later
            while f"{server}:notifications/tasks:work" not in await recorded(gateway):
                await asyncio.sleep(0.01)
        asked = [each for each in asked_to_listen(tasked, server) if "taskIds" in each[0]["notifications"]]
        assert ["own-a", "own-b"] in [params["notifications"]["taskIds"] for params, _ in asked]
        assert all(declared == KNOWS_TASKS for _, declared in asked)


@pytest.mark.requirement("tasks-followed")
async def test_what_is_told_of_a_task_stops_with_its_followers(tasked: Tasked) -> None:
    """The server's stream is ended, and one that tells nothing is looked at as ever."""
    tasked.servers["pipe"].store(speaks=True)
    async with tasked.gateway() as gateway, client_of(gateway, "memory") as agent:
        assert isinstance(agent, StreamAgent)
        watch = gateway.upstreams.fleet.upstreams["pipe"].watch.tasks
        task = await begin(agent, "pipe", SLOW, id="own")
        stream = await agent.begin("subscriptions/listen", notifications={"taskIds": [task["taskId"]]})
        with anyio.fail_after(LIMIT_S):
            while watch.active_tasks != {"own"}:
                await asyncio.sleep(0.01)
            await agent.notify("notifications/cancelled", requestId=stream.id)
            while watch.active_tasks:
                await asyncio.sleep(0.01)
        tasked.servers["pipe"].store(speaks=False)
        quiet = await begin(agent, "pipe", WORKING, DONE)
        await agent.begin("subscriptions/listen", notifications={"taskIds": [quiet["taskId"]]})
        await told_until(agent, "completed")
        assert watch.active_tasks == frozenset()


@pytest.mark.requirement("tasks-followed")
async def test_a_server_of_the_handshake_era_tells_nobody_of_tasks(tmp_path: Path) -> None:
    """Its revision has another protocol for tasks, with notifications of another name, which is not passed on."""
    old = Extended(tmp_path, "old", "handshake", speaks=True, tasks={"own": [WORKING]})
    async with (
        settled(tmp_path / "data", {"old": old.entry}) as gateway,
        client_of(gateway, "memory") as new_client,
        in_memory(gateway, "handshake") as old_client,
    ):
        assert isinstance(new_client, StreamAgent) and isinstance(old_client, StreamAgent)
        await new_client.begin("subscriptions/listen", notifications={"taskIds": ["own"], "toolsListChanged": True})
        for agent in (new_client, old_client):
            push = {"task": "own", "states": [DONE], "everywhere": True}
            assert not (await agent.call("call_tool_write", name="old:push", args=push)).get("isError")
        assert not told(new_client) and not told(old_client)
