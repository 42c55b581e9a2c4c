"""A tool that was approved and waits with a changed definition leaves a hole in an answer: it is named, not filled."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gateway_fakes import NAME_LIMIT, definition
from test_approving import SECRET, ApprovalSetup, opened_desk

from smart_mcp_proxy.catalog import change_hash
from smart_mcp_proxy.gateway.retrieval.kinds import CONTENT_KINDS, KindIndex, KindSearch
from smart_mcp_proxy.gateway.retrieval.retrieval import Question, Retrieval
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView, NarrowedView
from smart_mcp_proxy.models import Reach, ServerState, ServerStatus
from smart_mcp_proxy.names import shelf
from smart_mcp_proxy.search import Bm25fEngine, SearchIndex

pytestmark = pytest.mark.anyio

READ, DELETE = {"annotations": {"readOnlyHint": True}}, {"annotations": {"destructiveHint": True}}


def tool(name: str, description: str, **fields: Any) -> dict[str, Any]:
    return definition(name, description) | fields


TOOLS = {
    each["name"]: each
    for each in (
        tool("create_issue", "Create a jira issue in a project."),
        tool("delete_issue", "Delete a jira issue from a project.", **DELETE),
        tool("delete_project", "Delete a jira project with every issue.", **DELETE),
        tool("get_issue", "Get a jira issue of a project.", **READ),
        tool("list_sprints", "List the sprints of a board.", **READ),
        tool("add_comment", "Add a comment to a jira issue."),
    )
}
CHANGES: dict[str, dict[str, Any]] = {
    "description": {"description": f"Open a ticket {SECRET}."},
    "schema": {"inputSchema": {"type": "object", "properties": {SECRET: {"type": "string"}}}},
    "hints": {"annotations": {"readOnlyHint": True, "title": SECRET}},
    "unknown field": {"x-new": SECRET},
}


def changed(*names: str, **fields: Any) -> list[dict[str, Any]]:
    """The server's list with these tools in another form."""
    fields = fields or CHANGES["description"]
    return [each | fields if each["name"] in names else each for each in TOOLS.values()]


def names(answer: dict[str, Any], member: str = "tools") -> list[str]:
    return [each["name"].removeprefix("alpha:") for each in answer.get(member, ())]


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[ApprovalSetup]:
    async with opened_desk(tmp_path) as opened:
        await opened.lists(*TOOLS.values())
        yield opened


@pytest.mark.parametrize("change", CHANGES)
async def test_what_would_come_first_is_named_and_nothing_destructive_takes_its_place(
    setup: ApprovalSetup, change: str
) -> None:
    """Before the tools, with the command, by no word of what waits; the rest with a word of caution."""
    before = await setup.found("create a jira issue")
    assert names(before)[0] == "create_issue" and "delete_issue" in names(before) and "waiting" not in before
    await setup.lists(*changed("create_issue", **CHANGES[change]))
    answer = await setup.found("create a jira issue")
    assert answer["waiting"] == [
        {"name": "alpha:create_issue", "server": "alpha", "approve": "mcpproxy approve alpha:create_issue"}
    ]
    assert [*answer].index("waiting") < [*answer].index("tools")
    assert names(answer) and not {"create_issue", "delete_issue", "delete_project"} & {*names(answer)}
    assert answer["confidence"] == "low" and answer["total"] == len(TOOLS) - 1
    assert SECRET not in json.dumps(answer) and "before you take another tool" in answer["hint"]
    scores = {each["name"]: each["score"] for each in before["tools"]}
    assert all(scores[each["name"]] == each["score"] for each in answer["tools"]), "ranked as if it were there"


async def test_it_is_found_by_what_was_approved_alone(setup: ApprovalSetup) -> None:
    await setup.lists(*changed("create_issue", description=f"Reserve a {SECRET} flight."))
    assert names(await setup.found(f"reserve a {SECRET} flight"), "waiting") == []
    assert names(await setup.found("list the sprints of a board"), "waiting") == []
    for query in ("create a jira issue", "alpha:create_issue", "create_issue"):
        assert names(await setup.found(query), "waiting") == ["create_issue"]


async def test_what_was_never_approved_or_is_blocked_is_not_named(setup: ApprovalSetup) -> None:
    await setup.lists(*changed("get_issue"), tool("clone_issue", "Clone a jira issue."))
    answer = await setup.found("clone a jira issue")
    assert "clone_issue" not in json.dumps(answer)
    await setup.approvals.block("alpha:get_issue", "user")
    assert "get_issue" not in json.dumps(await setup.found("get a jira issue"))


async def test_it_is_named_while_its_server_connects(tmp_path: Path) -> None:
    """From the stored catalog, before anything was listed."""
    async with opened_desk(tmp_path) as opened:
        await opened.lists(*TOOLS.values())
        await opened.lists(*changed("create_issue"))
    async with opened_desk(tmp_path) as opened:
        opened.alpha.status = ServerStatus("alpha", "stdio", ServerState.CONNECTING)
        answer = await opened.found("create a jira issue")
    assert names(answer, "waiting") == ["create_issue"] and "delete_issue" not in names(answer)
    assert answer["not_covered"] == [{"server": "alpha", "state": "connecting"}]


async def test_at_most_three_are_named_and_only_within_the_limit(setup: ApprovalSetup) -> None:
    """Where all of them wait, nothing is left to call."""
    await setup.lists(*changed(*TOOLS))
    answer = await setup.found("create a jira issue")
    assert len(answer["waiting"]) == 3 and answer["tools"] == [] and answer["total"] == 0
    assert names(answer, "waiting")[0] == "create_issue" and "confidence" not in answer
    assert answer["hint"].startswith("What is named in waiting")
    one = await setup.retrieval.retrieve(Question("create a jira issue", 1))
    assert names(one, "waiting") == ["create_issue"]


async def test_once_decided_it_is_found_again(setup: ApprovalSetup) -> None:
    """Approved anew, or back as it was."""
    new = changed("create_issue", description="Create a jira issue, with labels.")
    await setup.lists(*new)
    hash_ = change_hash("alpha", new[0])
    await setup.approvals.approve({"alpha:create_issue": hash_}, "user")
    for listed in (new, TOOLS.values()):
        await setup.lists(*listed)
        answer = await setup.found("create a jira issue")
        assert names(answer)[0] == "create_issue" and "waiting" not in answer and "confidence" not in answer


async def test_another_step_keeps_its_destructive_tool(setup: ApprovalSetup) -> None:
    """One that the query names, too."""
    await setup.lists(*changed("create_issue"))
    both = Question("create a jira issue", 5, more_queries=("delete a jira project",))
    answer = await setup.retrieval.retrieve(both)
    assert names(answer, "waiting") == ["create_issue"] and "delete_project" in names(answer)
    named = await setup.found("alpha:delete_issue")
    assert names(named)[0] == "delete_issue" and "confidence" not in named


async def test_it_is_named_to_those_alone_who_would_see_it(setup: ApprovalSetup) -> None:
    """Who cannot reach it hears nothing; by what it was marked as when it was approved."""
    await setup.lists(*changed("create_issue", "get_issue"))
    only = Question("a jira issue", 5, read_only=True)
    assert names(await setup.retrieval.retrieve(only), "waiting") == ["get_issue"]

    def as_seen_by(reach: Reach) -> Retrieval:
        view: CatalogView = NarrowedView(setup.visible, reach, lambda _: None)
        statuses = [setup.alpha.status]
        return Retrieval(view, setup.catalog, setup.work.index_sync, setup.work.lists, lambda: statuses, setup.notebook)

    question = Question("create or get a jira issue", 5)
    reads = await as_seen_by(Reach(access="read")).retrieve(question)
    assert names(reads, "waiting") == ["get_issue"] and reads["total"] == 1
    nothing = await as_seen_by(Reach(servers=frozenset({"other"}))).retrieve(question)
    assert "waiting" not in nothing and nothing["total"] == 0


async def test_why_not_says_where_it_would_stand(setup: ApprovalSetup) -> None:
    await setup.lists(*changed("create_issue"))
    question = Question("create a jira issue", 5)
    told = await setup.retrieval.why_not(question, "alpha:create_issue")
    assert told["verdict"] == "changed" and "at place 1" in told["reason"] and told["place"] is None
    dropped = await setup.retrieval.why_not(question, "alpha:delete_issue")
    assert (dropped["verdict"], dropped["place"]) == ("stand_in", None)


async def test_a_search_for_several_types_leaves_its_place_empty_too(setup: ApprovalSetup) -> None:
    contents = Contents(setup.catalog, setup.visible, NAME_LIMIT, None)
    ranking = KindIndex(
        setup.catalog,
        SearchIndex(Bm25fEngine()),
        setup.visible,
        contents,
        uses_examples=False,
        waiting=lambda: setup.work.index_sync.waiting,
    )
    retrieval = Retrieval(
        setup.visible,
        setup.catalog,
        setup.work.index_sync,
        setup.work.lists,
        lambda: [setup.alpha.status],
        setup.notebook,
        kinds=KindSearch(contents, ranking, setup.work.lists, None, is_degraded=False),
    )
    question = Question("create a jira issue", 5, types=("tool", "prompt"))
    for kind in CONTENT_KINDS.values():
        await setup.catalog.sync(shelf("alpha", kind), [])  # else a search waits for the first list of each
    assert names(await retrieval.retrieve(question), "found")[0] == "create_issue"
    await setup.lists(*changed("create_issue"))
    answer = await retrieval.retrieve(question)
    assert names(answer, "waiting") == ["create_issue"] and answer["found_confidence"] == "low"
    assert names(answer, "found") and not {"create_issue", "delete_issue"} & {*names(answer, "found")}
