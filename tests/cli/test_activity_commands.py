"""The activity log by commands: in the database, through a running gateway, followed while another process writes."""

import csv
import io
import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_runs import PROGRAM, Run, environment, served
from stored_activity import write

from smart_mcp_proxy.gateway.activity.write_ahead_log import Journal
from smart_mcp_proxy.telemetry import Activity

AT_S = 1_700_000_000.0


def call(tool: str, outcome: str = "ok", at_s: float = AT_S, **fields: Any) -> Activity:
    server, _, name = tool.partition(":")
    made: Any = Activity
    record: Activity = made("call", "local", tool, outcome, 1.5, at_s, server=server, tool=name, **fields)
    return record


def search(query: str) -> Activity:
    return Activity("search", "local", query, "ok", 2.5, AT_S + 100, {"tools": ["todo:add_task"]})


@pytest.fixture
def filled(home: Path) -> Path:
    """A data directory with a search and calls of three servers."""
    write(
        home / "data",
        call(
            "todo:add_task", arguments={"title": "string(4)"}, digest="sha256:0123456789abcdef", id="a" * 22 + "000001"
        ),
        call("notes:add", "rate_limited", delivery="not_sent"),
        call("=cmd:x", "tool_error", at_s=AT_S - 86_400),
        search("add a task"),
    )
    return home


def subjects(records: list[dict[str, Any]]) -> list[str]:
    return [record["subject"] for record in records]


@pytest.mark.long  # a third of a second of processor time
def test_the_list_shows_the_newest_first_and_picks_by_what_is_asked(filled: Path, run: Run) -> None:
    """By kind, server, tool, outcome, time and number; no server needs to be configured for it."""
    everything = run("activity", "list", "--json")
    assert everything.status == 0
    assert subjects(everything.json) == ["add a task", "=cmd:x", "notes:add", "todo:add_task"]
    for words, expected in (
        (["--kind", "search"], ["add a task"]),
        (["--server", "notes"], ["notes:add"]),
        (["--tool", "todo:add_task"], ["todo:add_task"]),
        (["--tool", "add_task"], ["todo:add_task"]),
        (["--outcome", "rate_limited"], ["notes:add"]),
        (["--outcome", "failed"], ["=cmd:x", "notes:add"]),
        (["--since", "2023-11-14T20:00+00:00"], ["add a task", "notes:add", "todo:add_task"]),
        (["--since", "1h"], []),
        (["-n", "2"], ["add a task", "=cmd:x"]),
    ):
        assert subjects(run("activity", "list", *words, "--json").json) == expected, words
    table = run("activity", "list").out
    assert "rate_limited" in table and "000001" in table


def test_the_client_is_named_beside_the_principal(home: Path, run: Run) -> None:
    """In the list, and in a record as a fact of its own; it calls itself what it likes."""
    write(home / "data", call("todo:add_task", detail={"client": "cursor\x1b[2J"}), search("add a task"))
    searched, called = run("activity", "list").out.splitlines()[1:3]
    assert "  local  " in searched and "  local, cursor" in called and "\x1b" not in called
    assert run("activity", "list", "--kind", "call", "--json").json[0]["detail"] == {"client": "cursor\x1b[2J"}


def test_one_record_is_shown_whole_with_its_parts(filled: Path, run: Run) -> None:
    """By its id or the end of it; the time is ISO 8601 in UTC for programs."""
    write(filled / "data", call("notes:part", parent="a" * 22 + "000001"))
    record = run("activity", "show", "aa000001", "--json").json
    assert record["at"] == "2023-11-14T22:13:20.000Z"
    assert (record["arguments"], record["digest"]) == ({"title": "string(4)"}, "sha256:0123456789abcdef")
    assert subjects(record["parts"]) == ["notes:part"]
    page = run("activity", "show", "a" * 22 + "000001").out
    assert '{"title": "string(4)"}' in page and "notes:part" in page
    missing = run("activity", "show", "ffffffff")
    assert (missing.status, missing.next_command) == (1, "mcpproxy activity list")


@pytest.mark.long  # a third of a second of processor time
def test_an_export_has_every_record_once_in_order(home: Path, run: Run) -> None:
    """As JSON lines or CSV, to stdout or a file that only its owner can read, however many pages it takes."""
    write(home / "data", *(call(f"todo:t{number}") for number in range(1_234)))
    lines = run("activity", "export").out.splitlines()
    assert subjects([json.loads(line) for line in lines]) == [f"todo:t{number}" for number in range(1_234)]
    done = run("activity", "export", "log.csv", "--json")
    assert done.json == {"written": 1_234, "file": "log.csv"}
    file = home / "log.csv"
    assert file.stat().st_mode & 0o777 == 0o600
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert subjects(rows) == [f"todo:t{number}" for number in range(1_234)]


@pytest.mark.parametrize("file", ["no/such/folder/log.csv", "."])
def test_an_export_to_where_nothing_can_be_written_is_refused(home: Path, run: Run, file: str) -> None:
    """With the reason, and no traceback."""
    done = run("activity", "export", file)
    assert (done.status, f"{file} cannot be written" in done.err) == (2, True)
    assert "Traceback" not in done.err


def test_an_export_that_finds_nothing_by_its_words_leaves_the_file_as_it_was(home: Path, run: Run) -> None:
    """A slip in a filter must not cost the export of last week."""
    (home / "log.jsonl").write_text("kept")
    assert run("activity", "export", "log.jsonl", "--since", "yesterday").status == 1
    assert (home / "log.jsonl").read_text() == "kept"


def test_only_its_owner_can_read_an_export_also_in_a_file_that_was_there(filled: Path, run: Run) -> None:
    """As the help says."""
    (filled / "log.jsonl").touch(mode=0o644)
    assert run("activity", "export", "log.jsonl").status == 0
    assert (filled / "log.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_spreadsheet_takes_no_exported_cell_for_a_formula(filled: Path, run: Run) -> None:
    """Agents and servers choose names freely."""
    rows = list(csv.DictReader(io.StringIO(run("activity", "export", "--format", "csv").out)))
    assert "'=cmd:x" in subjects(rows)


@pytest.mark.parametrize(
    ("words", "said"), [(["list", "--since", "yesterday"], "since is 'yesterday'"), (["list", "--kind", "x"], "--kind")]
)
def test_a_filter_that_means_nothing_is_refused(filled: Path, run: Run, words: list[str], said: str) -> None:
    """With the help that explains it."""
    done = run("activity", *words)
    assert done.status != 0
    assert said in done.err
    assert done.next_command == "mcpproxy activity list --help"


def test_what_a_killed_gateway_left_behind_is_listed_without_starting_one(home: Path, run: Run) -> None:
    """Its journal is taken up by whoever looks."""
    write(home / "data")
    journal = Journal(home / "data")
    journal.write(call("todo:last"))
    journal.close(is_stored=False)
    assert subjects(run("activity", "list", "--json").json) == ["todo:last"]


@pytest.mark.long
def test_watch_shows_what_other_processes_write(home: Path) -> None:
    """Only what comes from now on and fits, as it comes; it ends after as many as were asked for."""
    data_dir = home / "data"
    write(data_dir, call("todo:before"))
    with subprocess.Popen(
        [*PROGRAM, "activity", "watch", "--json", "--kind", "call", "-n", "2"],
        cwd=home,
        env=environment(data_dir),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stderr.readline().startswith("Waiting for records.")
        write(data_dir, search("not this"), call("todo:one"))
        assert json.loads(process.stdout.readline())["subject"] == "todo:one"
        write(data_dir, call("todo:two"), call("todo:three"))
        assert json.loads(process.stdout.readline())["subject"] == "todo:two"
        assert (process.wait(10), process.stdout.read()) == (0, "")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Path]:
    """The data directory of a gateway in a process of its own."""
    with served(tmp_path / "gw", ACTIVITY_ARGS="redacted") as folder:
        yield folder


@pytest.mark.long  # starts and ends processes, seconds of it
def test_a_running_gateway_tells_its_own_log(gateway: Path, run: Run) -> None:
    """Searches, calls and refusals, each with what the policy keeps of its arguments."""
    data_dir = str(gateway)
    run("search", "add a task with password=hunter2", DATA_DIR=data_dir)
    run("call", "todo:add_task", "title=ghp_abcdefghijklmnopqrstuvwx", DATA_DIR=data_dir)
    run("call", "todo:add_task", DATA_DIR=data_dir)
    for _ in range(50):
        done = run("activity", "list", "--json", DATA_DIR=data_dir)
        records = [one for one in done.json if one["kind"] in ("search", "call")]
        if records and records[0]["outcome"] == "invalid_arguments":
            break
    refused, called, searched = records[:3]
    assert (searched["subject"], searched["outcome"]) == ("add a task with [hidden]", "ok")
    assert (called["subject"], called["arguments"], called["delivery"]) == ("todo:add_task", {"title": "[hidden]"}, "")
    assert called["digest"].startswith("sha256:")
    assert (refused["outcome"], refused["delivery"], refused["arguments"]) == ("invalid_arguments", "not_sent", {})
    shown = run("activity", "show", called["id"], "--json", DATA_DIR=data_dir).json
    assert shown == called | {"parts": []}
    assert b"hunter2" not in b"".join(file.read_bytes() for file in gateway.rglob("*") if file.is_file())


def test_a_record_that_was_changed_beside_the_gateway_is_told(filled: Path, run: Run) -> None:
    """With the status of a failure; a record whose id lies in a far future is in no chain."""
    untouched = run("activity", "verify", "--json")
    assert (untouched.status, untouched.json) == (
        0,
        {"records": 3, "chains": 1, "unsealed": 1, "removed": 0, "problems": []},
    )
    with closing(sqlite3.connect(filled / "data" / "proxy.db")) as file, file:
        file.execute("UPDATE activity SET outcome = 'ok' WHERE server = 'notes'")
    changed = run("activity", "verify")
    assert changed.status == 1
    assert "link 1) was changed." in changed.out
    assert "The activity log was changed beside the gateway: 1 problem." in changed.err
