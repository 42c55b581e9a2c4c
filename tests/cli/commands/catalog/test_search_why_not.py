"""`mcpproxy search QUERY --why-not NAME` as a person or a program meets it."""

import json
from pathlib import Path

import pytest
from cli_runs import Run, served, some_servers


@pytest.fixture
def project(home: Path) -> Path:
    """A working directory with two servers in its server file, and a profile."""
    profiles = {"times": {"servers": ["clock"]}}
    (home / "mcp_config.json").write_text(json.dumps({**some_servers("todo", "clock"), "profiles": profiles}))
    return home


@pytest.mark.long  # much work for one test
def test_the_reason_comes_first_and_then_the_numbers(project: Path, run: Run) -> None:
    """On the stored catalog, as a sentence with a table of the numbers, or as one object."""
    assert run("search", "add a task", "--limit", "1").status == 0
    done = run("search", "add a task", "--limit", "1", "--why-not", "todo:list_tasks")
    assert done.status == 0
    first, _, *rows = done.out.splitlines()
    assert first.startswith("todo:list_tasks: limit. It fits, but ranks ")
    assert [row.split()[0] for row in rows] == ["place", "rank", "score", "fitness", "matched"]
    assert "best is todo:add_task with 0.9" in done.out
    told = run("search", "add a task", "--why-not", "todo__add_task", "--json").json
    assert (told["name"], told["verdict"], told["place"]) == ("todo:add_task", "in_answer", 1)
    assert {"reason", "rank", "score", "top", "cut", "fitness", "floors", "limit", "server", "why"} <= set(told)


@pytest.mark.long  # much work for one test
def test_what_keeps_a_tool_from_a_search_is_told_without_numbers(project: Path, run: Run) -> None:
    """A block, a filter and a profile; the search itself goes by the profile, too."""
    assert run("search", "add a task").status == 0
    assert run("search", "what is the time", "--profile", "times", "--json").json["total"] < 12
    done = run("search", "add a task", "--profile", "times", "--why-not", "todo:add_task")
    assert done.out.startswith("todo:add_task: profile. It is not in this profile. Without that: It is in the answer")
    done = run("search", "add a task", "--server", "clock", "--why-not", "todo:add_task", "--json")
    assert (done.json["verdict"], done.json["place"]) == ("servers", None)
    assert run("block", "todo:add_task").status == 0
    done = run("search", "add a task", "--why-not", "todo:add_task")
    assert done.out == (
        "todo:add_task: blocked. Tool 'todo:add_task' is blocked by the user. "
        "Only the user can lift this, with: mcpproxy approve todo:add_task\n"
    )


@pytest.mark.long  # a third of a second of processor time
def test_a_wrong_name_or_profile_is_an_error_that_says_what_was_meant(project: Path, run: Run) -> None:
    """As everywhere."""
    assert run("search", "add a task").status == 0
    done = run("search", "add a task", "--why-not", "todo:ad_task", "--json")
    assert (done.status, done.json["error"]["code"]) == (1, "tool_not_found")
    assert "Did you mean todo:add_task" in done.err
    done = run("search", "add a task", "--profile", "time")
    assert (done.status, "Known: times." in done.err) == (1, True)


@pytest.mark.long  # a gateway of its own
def test_a_running_gateway_tells_the_same(tmp_path: Path, run: Run) -> None:
    """Over its private socket."""
    with served(tmp_path / "gateway") as folder:
        words = ("search", "add a task", "--why-not", "todo:add_task", "--json")
        done = run(*words, DATA_DIR=str(folder))
    assert "Answered by the running gateway" in done.err
    assert (done.json["verdict"], done.json["server"]) == ("in_answer", {"name": "todo", "state": "ready"})
