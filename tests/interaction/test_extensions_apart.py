"""Pages, skills and tasks with equal names at two servers, used by principals in any order: what each of them gets."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from agents import Era, Exchange, HttpAgent
from extended_servers import APPS, PAGE, SHOWS_APPS, SKILLS, TASKS, Extended, file_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_http import plain_client
from transports import served, settled

from smart_mcp_proxy.gateway.admin.agent_tokens import Scope

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LIMIT_S = 120
ERAS: tuple[Era, ...] = ("handshake", "modern")
REACHES = {"ann": ("left",), "bob": ("right",), "cid": ("left", "right")}
"""Principals, and the servers that the token of each reaches: every server is shared, and none by all."""
ROOT = "skill://acme/refunds"
Act = Literal[
    "page", "calls back", "calls by page", "skill", "file", "directory", "subscribes", "task", "looks", "steals"
]
ACTS: tuple[Act, ...] = (
    *("page", "calls back", "calls by page", "skill", "file", "directory", "subscribes", "task", "looks", "steals"),
)
Step = tuple[str, Act, str]


def secret(server: str) -> str:
    """A word that is in all that one server gives, and in nothing else."""
    return f"sesame-of-{server}"


def twin(directory: Path, name: str, mode: str) -> Extended:
    """A server whose names are all those of the other one, and whose contents are its own."""
    mark = secret(name)
    main = f"---\nname: refunds\ndescription: How {mark} refunds\n---\n"
    files = {f"{ROOT}/SKILL.md": main, f"{ROOT}/a/GUIDE.md": f"guide {mark}"}
    entry = {
        "uri": f"{ROOT}/SKILL.md",
        "frontmatter": {"name": "refunds", "description": f"How {mark} refunds"},
        "resources": [file_of(uri, text) for uri, text in files.items()],
    }
    shows = {"name": "show", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://board"}}}
    page = {"text": f"<html>{mark}</html>", "mimeType": PAGE}
    return Extended(
        directory,
        name,
        mode,
        speaks=True,
        extensions={SKILLS: {}, TASKS: {}},
        tools=[shows],
        resources=[{"uri": "ui://board", "name": "board", "mimeType": PAGE}],
        pages={"ui://board": page},
        skills=[entry],
        files=files,
        mark=mark,
    )


class Visitor(HttpAgent):
    """A client of one principal that keeps every byte it hears."""

    def __init__(self, era: Era, url: str, client: Any) -> None:
        super().__init__(era, url, client)
        self.lines: list[str] = []
        self.begun: Counter[str] = Counter()
        """How many tasks, by server."""
        self.tasks: dict[str, str] = {}
        """What each comes to, by the gateway's id."""
        self.capabilities = {"extensions": {**SHOWS_APPS, TASKS: {}}}

    def _take(self, exchange: Exchange, data: str) -> None:
        self.lines.append(data)
        super()._take(exchange, data)


@dataclass
class Twins:
    """Two servers with equal names behind one gateway, and the tokens of those who visit it."""

    base: str
    tokens: dict[str, str]


@pytest.fixture(scope="module", params=[("handshake", "modern"), ("modern", "modern")], ids="-".join)
async def twins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Twins]:
    directory = tmp_path_factory.mktemp("apart")
    servers = {name: twin(directory, name, mode) for name, mode in zip(("left", "right"), request.param, strict=True)}
    entries = {name: server.entry for name, server in servers.items()}
    async with (
        settled(directory / "data", entries, list_all_below_tokens=100_000) as gateway,
        served(gateway, token="own") as base,
    ):
        tokens = {
            name: (await gateway.admin.agent_tokens.create(name, Scope(reach, "destructive"))).secret
            for name, reach in REACHES.items()
        }
        yield Twins(base, tokens)


async def do(visitor: Visitor, name: str, act: Act, server: str, stolen: Sequence[str]) -> None:
    """One thing that a client does with a server, whether its token reaches it or not."""
    reached, skill = server in REACHES[name], f"skill://{server}/acme/refunds"
    reads = {"page": f"ui://{server}/board", "skill": f"{skill}/SKILL.md", "file": f"{skill}/a/GUIDE.md"}
    if act in reads:
        answer = await visitor.request("resources/read", uri=reads[act])
        assert (secret(server) in json.dumps(answer)) is reached, answer
    elif act == "directory":
        answer = await visitor.request("resources/directory/read", uri=f"{skill}/a")
        assert (f"{skill}/a/GUIDE.md" in json.dumps(answer)) is reached, answer
    elif act == "subscribes" and visitor.era == "handshake":
        answer = await visitor.request("resources/subscribe", uri=f"{skill}/a/GUIDE.md")
        assert ("result" in answer) is reached, answer
    elif act.startswith("calls"):
        await call(visitor, name, server if act == "calls by page" else None)
    else:
        await handle_tasks(visitor, name, act, server, stolen)


async def call(visitor: Visitor, name: str, named: str | None) -> None:
    """A call as a page makes it, by the server's own name; a host that says from which page gets that server alone."""
    meta = {} if named is None else {"ui": {"resourceUri": f"ui://{named}/board"}}
    answer = await visitor.request("tools/call", name="show", arguments={}, _meta=meta)
    if "result" not in answer:
        return
    (own,) = [each for each in ("left", "right") if secret(each) in json.dumps(answer)]
    assert own in REACHES[name] and named in (own, None)


async def handle_tasks(visitor: Visitor, name: str, act: Act, server: str, stolen: Sequence[str]) -> None:
    """Begin a task, look at all that are the client's own, or reach for those of others."""
    if act == "task":
        visitor.begun[server] += 1
        number = visitor.begun[server]
        text = f"{secret(server)} of {name}, number {number}"
        states = [
            {"status": "working"},
            {"status": "completed", "result": {"content": [{"type": "text", "text": text}]}},
        ]
        arguments = {"id": f"{name}-{number}", "states": states}  # equal at both servers
        answer = await visitor.request("tools/call", name=f"{server}__work", arguments=arguments)
        if answer.get("result", {}).get("resultType") == "task":
            visitor.tasks[answer["result"]["taskId"]] = text
    elif act == "looks":
        for task, text in [*visitor.tasks.items()]:
            state = (await visitor.request("tasks/get", taskId=task))["result"]
            assert state["status"] == "completed" and state["result"]["content"][0]["text"] == text
    elif act == "steals":
        for task in stolen:
            for method, more in {"tasks/get": {}, "tasks/update": {"inputResponses": {}}, "tasks/cancel": {}}.items():
                assert "result" not in await visitor.request(method, taskId=task, **more)


steps = st.tuples(st.sampled_from([*REACHES]), st.sampled_from(ACTS), st.sampled_from(["left", "right"]))


@pytest.mark.requirement("apps-apart")
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    eras=st.tuples(*(st.sampled_from(ERAS) for _ in REACHES)),
    script=st.lists(steps, min_size=4, max_size=16),
    is_at_once=st.booleans(),
)
async def test_of_pages_skills_and_tasks_in_any_order_not_one_byte_crosses(
    twins: Twins, eras: tuple[Era, ...], script: list[Step], is_at_once: bool
) -> None:
    """Each gets what its token reaches, of the server that it names, and no word of the other; at once or in turn."""
    with anyio.fail_after(LIMIT_S):
        async with AsyncExitStack() as stack:
            visitors: dict[str, Visitor] = {}
            for name, era in zip(REACHES, eras, strict=True):
                headers = {"authorization": f"Bearer {twins.tokens[name]}"}
                client = await stack.enter_async_context(plain_client(timeout=LIMIT_S, headers=headers))
                visitors[name] = Visitor(era, f"{twins.base}/mcp", client)
                await visitors[name].greet()

            async def step(name: str, act: Act, server: str) -> None:
                stolen = [task for other, each in visitors.items() if other != name for task in each.tasks]
                await do(visitors[name], name, act, server, stolen)

            for name, reach in REACHES.items():
                await step(name, "task", reach[0])
            if is_at_once:
                await asyncio.gather(*(step(*each) for each in script))
            else:
                for each in script:
                    await step(*each)
            for name, visitor in visitors.items():
                await step(name, "steals", "left")
                await step(name, "looks", "left")
                for method in ("tools/list", "resources/list", "skills/list"):
                    await visitor.request(method)
    for name, visitor in visitors.items():
        heard = "\n".join(visitor.lines)
        assert not [each for each in ("left", "right") if each not in REACHES[name] and secret(each) in heard]
        assert not [other for other in REACHES if other != name and f"of {other}" in heard]
        assert any(APPS in line for line in visitor.lines)
