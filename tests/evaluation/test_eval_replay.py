"""Logged queries: which are asked again, which tools count as right, and what is said of two runs."""

from typing import Any

import pytest

from smart_mcp_proxy.evaluation import (
    EvaluationRun,
    LabelledQuery,
    Outcome,
    compare_runs,
    extract_queries,
    label_queries,
)
from smart_mcp_proxy.telemetry import Activity


def record(kind: Any, subject: str, at_s: float, **fields: Any) -> Activity:
    return Activity(**{"kind": kind, "principal": "local", "subject": subject, "outcome": "ok", "duration_ms": 1.0,
                       "at_s": at_s, "session": "s1", **fields})  # fmt: skip


def search(query: str, at_s: float, *tools: str, **fields: Any) -> Activity:
    return record("search", query, at_s, detail={"tools": list(tools)}, **fields)


def call(name: str, at_s: float, **fields: Any) -> Activity:
    server, _, tool = name.partition(":")
    return record("call", name, at_s, server=server, tool=tool, **fields)


def gold(*records: Activity) -> dict[str, set[str]]:
    """The right tools of each logged query."""
    return {query.text: {name for right in query.gold for name in right} for query in extract_queries(records)}


def test_each_logged_query_is_asked_once_the_latest_first() -> None:
    """Records of other kinds, and lists that the proxy tool made, are no queries; nor is a text of blanks."""
    found = extract_queries(
        [
            search("add a task", 1, "todo:add"),
            search("bake bread", 2, outcome="empty"),
            search("add a task", 3, "todo:add", session="s2"),
            search(" ", 4),
            record("search", "prefix", 5, detail={"tool": "proxy", "action": "list"}),
            record("session", "client", 6),
        ]
    )
    assert [query.text for query in found] == ["add a task", "bake bread"]
    assert len({query.id for query in found}) == 2


def test_a_tool_that_was_found_and_then_called_is_right() -> None:
    """By the same session, with success, of the last search that had found it, within ten minutes."""
    asked = search("add a task", 100, "todo:add", "todo:list")
    assert gold(asked, call("todo:add", 110)) == {"add a task": {"todo:add"}}
    assert gold(asked, call("todo:add", 110), call("todo:list", 120)) == {"add a task": {"todo:add", "todo:list"}}
    for other in (
        call("todo:drop", 110),
        call("todo:add", 110, outcome="tool_error"),
        call("todo:add", 110, session="s2"),
        call("todo:add", 110, principal="ann"),
        call("todo:add", 701),
    ):
        assert gold(asked, other) == {"add a task": set()}
    later = search("new task", 105, "todo:add")
    assert gold(asked, later, call("todo:add", 110)) == {"new task": {"todo:add"}, "add a task": set()}
    others = [search(f"other {n}", 101 + n) for n in range(5)]
    assert gold(asked, *others, call("todo:add", 110))["add a task"] == set()


def test_a_file_says_better_which_tools_are_right() -> None:
    """By the text as the log keeps it: masked, and cut to 500 characters."""
    logged = extract_queries([search("x" * 500, 1), search("add a task", 2, "todo:add"), call("todo:add", 3)])
    label = LabelledQuery("q", "x" * 600, (frozenset({"a:b"}),))
    by_text = {query.text: query for query in label_queries(logged, [label, LabelledQuery("n", "add a task", ())])}
    assert (by_text["x" * 500].gold, by_text["x" * 500].style) == (label.gold, "file")
    assert (by_text["add a task"].gold, by_text["add a task"].style) == ((frozenset({"todo:add"}),), "calls")


def run(system: str, answers: dict[str, tuple[str, ...]], right: dict[str, str]) -> EvaluationRun:
    queries = {
        text: LabelledQuery(text, text, (frozenset({right[text]}),) if text in right else (), style="calls")
        for text in answers
    }
    return EvaluationRun(
        system, tuple(Outcome(queries[text], shown, shown, shown, (), 0, 0.0) for text, shown in answers.items())
    )


def test_two_runs_differ_by_what_came_went_and_moved() -> None:
    """With shares over all queries, and recall over those whose right tool is known."""
    right = {"one": "a:x", "two": "a:z"}
    before = run("A", {"one": ("a:x", "a:y"), "two": ("a:x",), "three": (), "four": ("a:x",)}, right)
    after = run("B", {"one": ("a:y", "a:x", "a:z"), "two": ("a:z",), "three": (), "four": ()}, right)
    found = compare_runs(before, after)
    assert (found.baseline, found.system, found.queries) == ("A", "B", 4)
    one, two, four = found.changes
    assert (one.query, one.came, one.went, dict(one.rank_changes)) == (
        "one",
        ["a:z"],
        [],
        {"a:x": (1, 2), "a:y": (2, 1)},
    )
    assert (two.came, two.went, dict(two.rank_changes)) == (["a:z"], ["a:x"], {})
    assert (four.came, four.went) == ([], ["a:x"])
    assert found.share_unchanged == 0.25
    assert found.overlap == pytest.approx((2 / 3 + 0 + 1 + 0) / 4)
    assert found.empty == (1, 2)
    assert found.recall == (0.5, 1.0)
    assert dict(found.known) == {"calls": 2, "file": 0}
    assert compare_runs(run("A", {"one": ()}, {}), run("B", {"one": ()}, {})).recall is None
