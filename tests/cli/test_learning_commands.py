"""What was learned from use, shown and forgotten by commands: through a running gateway and in the database."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from cli_runs import Run, served, some_servers

from smart_mcp_proxy.catalog import Catalog, Lesson
from smart_mcp_proxy.models import ToolKey

ADD = ToolKey("todo", "add_task")


@pytest.fixture
def learning(tmp_path: Path) -> Iterator[Path]:
    """The data directory of a gateway that learns, in a process of its own."""
    with served(tmp_path / "gw", LEARN="true") as folder:
        yield folder


def teach(data_dir: Path, *questions: str) -> None:
    """Writes lessons about the tool that adds a task into a catalog."""

    async def work() -> None:
        async with Catalog.open(data_dir, name_limit=60) as catalog:
            await catalog.learn([Lesson(ADD, question, question, 1_700_000_000.0) for question in questions])

    anyio.run(work)


def examples(run: Run, data_dir: Path, count: int) -> list[dict[str, Any]]:
    """What is known of the tool, as soon as it counts `count` uses: lessons are stored a moment after the call."""
    for _ in range(50):
        found: list[dict[str, Any]] = run("tool", "show", "todo:add_task", "--json", DATA_DIR=str(data_dir)).json[
            "examples"
        ]
        if sum(example["uses"] for example in found) == count:
            return found
    raise AssertionError(found)


@pytest.mark.long  # starts and ends processes, seconds of it
def test_a_running_gateway_shows_and_forgets_what_it_learned(learning: Path, run: Run) -> None:
    """Searches and calls by hand teach as an agent's do; the page says since when a question is searched with."""
    for uses in (1, 2):
        found = run("search", "add one more task to the to-do list", "--json", DATA_DIR=str(learning)).json
        assert "todo:add_task" in [tool["name"] for tool in found["tools"]]
        assert run("call", "todo:add_task", "title=Milk", DATA_DIR=str(learning)).status == 0
        (example,) = examples(run, learning, uses)
        assert (example["question"], example["is_confirmed"]) == ("add one more task to the to-do list", uses == 2)
        page = run("tool", "show", "todo:add_task", DATA_DIR=str(learning)).out
        assert "add one more task to the to-do list" in page.partition("Questions that led to it:")[2]
        assert ("not searched with before it is used again" in page) == (uses == 1)
    done = run("tool", "forget", "todo__add_task", DATA_DIR=str(learning))
    assert (done.status, "Forgot 1 question." in done.err) == (0, True)
    assert examples(run, learning, 0) == []
    assert "Questions" not in run("tool", "show", "todo:add_task", DATA_DIR=str(learning)).out


@pytest.mark.long  # a third of a second of processor time
def test_without_a_gateway_the_database_forgets(home: Path, run: Run) -> None:
    """One question, one tool or all; no server needs to be configured any more."""
    server_file = home / "mcp_config.json"
    server_file.write_text(json.dumps(some_servers("todo")))
    run("tool", "list")
    data_dir = home / "data"
    teach(data_dir, "jot", "jot", "note", "write")
    assert [one["uses"] for one in examples(run, data_dir, 4)] == [2, 1, 1]
    server_file.unlink()
    assert run("tool", "forget", "todo:add_task", "--question", "jot", "--json").json == {"forgotten": 1}
    assert run("tool", "forget", "todo:add_task", "--json").json == {"forgotten": 2}
    teach(data_dir, "jot")
    assert run("tool", "forget", "--all", "--json").json == {"forgotten": 1}
    assert run("tool", "forget", "--all", "--json").json == {"forgotten": 0}
    forgotten = run("activity", "list", "--kind", "config", "--json").json
    facts = [(one["subject"], one["detail"]["count"], one["principal"]) for one in forgotten]
    assert facts == [("all tools", 0, "operator"), ("all tools", 1, "operator")] + [
        ("todo:add_task", count, "operator") for count in (2, 1)
    ]


@pytest.mark.parametrize("words", [[], ["todo:add_task", "--all"]])
def test_what_is_to_be_forgotten_must_be_clear(run: Run, words: list[str]) -> None:
    """Neither a tool nor all of them, or both: 2, and nothing is opened."""
    done = run("tool", "forget", *words)
    assert done.status == 2
    assert "Name one tool, or say --all." in done.err


def test_a_tool_that_is_not_in_the_catalog_has_nothing_to_forget(run: Run) -> None:
    """1, with the command that lists the tools."""
    done = run("tool", "forget", "todo:nothing")
    assert (done.status, done.next_command) == (1, "mcpproxy tool list")
