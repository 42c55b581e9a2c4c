"""`mcpproxy eval` as a person or a program meets it."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_runs import PROGRAM, Run, environment, some_servers

# Marked long: indexes of their own.
pytestmark = pytest.mark.long

SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}}
TOOLS = [
    {"server": "github", "name": "create_issue", "description": "Create an issue in a repository", "source": "code"},
    {"server": "github", "name": "merge_pull_request", "description": "Merge a pull request", "source": "code"},
    {"server": "maps", "name": "geocode", "description": "Convert an address into coordinates", "source": "places"},
    {"server": "maps", "name": "weather", "description": "Forecast of the weather in a city", "source": "places"},
]
QUERIES = [
    {"id": "q1", "query": "create an issue", "gold": ["github:create_issue"], "source": "code", "style": "terse"},
    {"id": "q2", "query": "where is this address", "gold": ["maps:geocode"], "source": "places", "style": "long"},
    {"id": "q3", "query": "bake bread", "gold": [], "source": "places", "style": "none"},
]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    """A file with one JSON object a line; returns its name."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path.name


@pytest.fixture
def files(home: Path) -> tuple[str, str, str]:
    """The words that name a small set of queries and tools."""
    tools = [{**tool, "input_schema": SCHEMA} for tool in TOOLS]
    return write(home / "queries.jsonl", QUERIES), "--tools", write(home / "tools.jsonl", tools)


def test_figures_are_json_where_json_was_asked_for(run: Run, files: tuple[str, ...]) -> None:
    """One object: the whole, by style, by stratum, what nothing fits, sizes and times."""
    done = run("eval", *files, "--json")
    assert (done.status, done.err) == (0, "")
    (system,) = done.json["systems"]
    assert (done.json["path"], done.json["tools"], system["system"]) == ("product", 4, "BM25")
    assert system["overall"]["queries"] == 2
    assert system["overall"]["recall@5"] == 1.0
    assert system["styles"]["terse"]["MRR"] == 1.0
    assert {row["style"] for row in system["strata"]} == {"terse", "long"}
    assert system["unanswerable"] == {"queries": 1, "empty": 1.0, "low": 0.0}
    assert [(row["source"], row["pool"]) for row in system["nothing_fits"]] == [
        ("code", "without code"),
        ("places", "without places"),
        ("code", "only places"),
        ("places", "only code"),
    ]
    assert system["latency_ms"]["p50"] > 0
    assert done.json["differences"] == []


def test_figures_are_tables_for_people(run: Run, files: tuple[str, ...]) -> None:
    """Every measure has its column, every style its row."""
    done = run("eval", *files)
    assert done.status == 0
    assert done.out.startswith("BM25: what an agent gets, 4 tools\n")
    heading = done.out.splitlines()[1].split()
    assert heading[2:] == [
        "recall@1",
        "recall@5",
        "recall@10",
        "named",
        "nDCG@5",
        "MRR",
        "full-set-hit@5",
        "empty",
        "low",
    ]
    assert "No tool is right, 1 query: answered with nothing 1.000, with low confidence 0.000" in done.out


def test_rankings_have_a_line_for_each_query(run: Run, home: Path, files: tuple[str, ...]) -> None:
    """Names and scores, best first; the file of two systems says whose line it is."""
    assert run("eval", *files, "--rankings", "out.jsonl").status == 0
    rows = [json.loads(line) for line in (home / "out.jsonl").read_text("utf-8").splitlines()]
    assert [row["id"] for row in rows] == ["q1", "q2", "q3"]
    assert rows[0]["ranked"][0] == "github:create_issue"
    assert len(rows[0]["scores"]) == len(rows[0]["ranked"])
    assert rows[2] == {"id": "q3", "ranked": [], "scores": []}


def test_systems_are_compared_on_the_same_queries(run: Run, files: tuple[str, ...]) -> None:
    """Each system's figures, and what the second gains over the first, with an interval."""
    done = run("eval", *files, "--compare", "bm25, hybrid", "--json", "--rankings", "out.jsonl")
    assert done.status == 0
    assert [system["system"] for system in done.json["systems"]] == ["BM25", "HYBRID"]
    assert [(row["measure"], row["system"], row["baseline"]) for row in done.json["differences"]] == [
        ("recall@5", "HYBRID", "BM25"),
        ("nDCG@5", "HYBRID", "BM25"),
    ]
    rows = [json.loads(line) for line in Path("out.jsonl").read_text("utf-8").splitlines()]
    assert [row["system"] for row in rows] == ["BM25"] * 3 + ["HYBRID"] * 3


def test_a_system_whose_packages_are_missing_is_2_and_named(
    run: Run, files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other lexical engine ranks where rank-bm25 is installed; elsewhere the command says what to install."""
    done = run("eval", *files, "--embedder", "RANK_BM25", "--json")
    assert done.json["systems"][0]["overall"]["recall@5"] == 1.0
    monkeypatch.setitem(sys.modules, "rank_bm25", None)
    done = run("eval", *files, "--embedder", "RANK_BM25")
    assert done.status == 2
    assert "pip install rank-bm25" in done.err


def test_parts_of_the_files_are_chosen_by_source(run: Run, files: tuple[str, ...]) -> None:
    """The queries of one source against its own tools only, and against all others."""
    own = run("eval", *files, "--source", "code", "--only-source", "code", "--json")
    assert (own.json["tools"], own.json["systems"][0]["overall"]["queries"]) == (2, 1)
    assert own.json["systems"][0]["nothing_fits"] == []
    others = run("eval", *files, "--source", "code", "--without-source", "code", "--json")
    assert others.json["systems"][0]["overall"]["empty"] == 1.0
    assert "1 right answer cannot be found, for no such tool is searched: github:create_issue." in others.err


def test_the_tools_of_the_data_directory_are_measured_without_a_file(run: Run, home: Path) -> None:
    """What the configured servers listed last is searched; an empty catalog says what to do."""
    (home / "mcp_config.json").write_text(json.dumps(some_servers("colors")))
    row = {"id": "a", "query": "mix two colors", "server": "colors"}
    queries = write(home / "queries.jsonl", [row])
    done = run("eval", queries)
    assert (done.status, done.next_command) == (2, "mcpproxy search QUERY")
    assert "has no tools of the configured servers yet" in done.err
    assert run("search", "mix two colors").status == 0
    done = run("eval", queries, "--json")
    assert done.json["systems"][0]["servers"] == {"queries": 1, "hit@1": 1.0, "hit@5": 1.0, "empty": 0.0}


@pytest.fixture
def used(run: Run, home: Path) -> Path:
    """A data directory in whose log a tool was searched, called, and searched for in vain."""
    (home / "mcp_config.json").write_text(json.dumps(some_servers("todo")))
    for query in ("add a task", "bake bread", "list my tasks"):
        assert run("search", query).status == 0
    assert run("call", "todo:list_tasks").status == 0
    return home


def test_the_queries_of_the_log_show_what_another_system_changes(run: Run, used: Path) -> None:
    """Each once; the tool that was called after its search is right. Nothing is added to the log."""
    for _ in range(2):
        done = run("eval", "--replay", "--embedder", "rank_bm25", "--json")
        assert (done.status, done.err) == (0, "")
    (replay,) = done.json["replays"]
    assert (replay["baseline"], replay["system"], replay["queries"]) == ("BM25", "RANK_BM25", 3)
    assert replay["gold"] == {"calls": 1, "file": 0}
    assert replay["recall@5"] == {"before": 1.0, "after": 1.0}
    assert replay["empty"]["before"] == 1
    changed = {change["query"]: change for change in replay["changes"]}
    assert replay["unchanged"] == pytest.approx(1 - len(changed) / 3, abs=1e-4)
    assert changed and "bake bread" not in changed
    for change in changed.values():
        assert {*change["came"]} == {*change["after"]} - {*change["before"]}
        assert {*change["went"]} == {*change["before"]} - {*change["after"]}


def test_a_replay_is_a_table_with_its_figures_for_people(run: Run, used: Path) -> None:
    """A file says which tools are right, the note says why calls alone flatter; rankings are written as ever."""
    label = {"id": "q", "query": "add a task", "gold": ["todo:add_task"]}
    words = ("eval", write(used / "queries.jsonl", [label]), "--replay", "--rankings", "out.jsonl")
    done = run(*words, "--compare", "BM25,RANK_BM25")
    assert done.status == 0
    assert done.out.startswith("BM25 to RANK_BM25: 3 queries of the log, ")
    assert "recall@5 of 2 queries with a known tool (1 by calls that followed, 1 by the file): 1.000 before" in done.out
    assert "favours the setting of that time" in done.err
    assert len((used / "out.jsonl").read_text("utf-8").splitlines()) == 6


def test_a_log_without_searches_is_2_with_the_next_step(run: Run, home: Path, files: tuple[str, ...]) -> None:
    """Whatever tools are given."""
    done = run("eval", "--replay", "--embedder", "RANK_BM25", *files[1:])
    assert (done.status, done.next_command) == (2, "mcpproxy activity list --kind search")
    assert "has no searches yet" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "QUERIES is missing."),
        (["--replay"], "--replay compares BM25, the present setting, with nothing."),
        (["--replay", "--embedder", "bm25"], "--replay compares BM25, the present setting, with nothing."),
        (["nowhere.jsonl"], "nowhere.jsonl cannot be read: No such file or directory."),
        (["broken.jsonl"], "broken.jsonl:2: not JSON: Expecting value at character 1."),
        (["queries.jsonl", "--tools", "broken.jsonl"], "broken.jsonl:1: no 'server'."),
        (["queries.jsonl", "--embedder", "WORD2VEC"], "--embedder names 'WORD2VEC'."),
        (["queries.jsonl", "--compare", "BM25"], "--compare is 'BM25'."),
        (["queries.jsonl", "--compare", "BM25,GREP"], "--compare names 'GREP'."),
        (["queries.jsonl", "--compare", "BM25,HF", "--embedder", "HF"], "both given"),
        (["queries.jsonl", "--tools", "tools.jsonl", "--source", "x"], "has no queries of the source x."),
        (["queries.jsonl", "--tools", "tools.jsonl", "--only-source", "x"], "No tool comes from the source 'x'."),
        (
            ["queries.jsonl", "--tools", "tools.jsonl", "--only-source", "code", "--without-source", "code"],
            "No tools are left to search.",
        ),
        (
            ["queries.jsonl", "--tools", "tools.jsonl", "--rankings", "no/where.jsonl"],
            "no/where.jsonl cannot be written",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_2_and_names_the_page_that_helps(
    run: Run, home: Path, files: tuple[str, ...], words: list[str], said: str
) -> None:
    """Files, names and choices that make no sense, each with its own words."""
    (home / "broken.jsonl").write_text(json.dumps(QUERIES[0]) + "\nx\n")
    done = run("eval", *words)
    assert done.status == 2
    assert said in done.err
    assert done.next_command == "mcpproxy eval --help"


@pytest.mark.long
def test_ctrl_c_ends_a_long_evaluation_at_once(home: Path, files: tuple[str, ...]) -> None:
    """A bar shows on a terminal meanwhile; the status is 130, without a traceback."""
    queries = write(home / "many.jsonl", [{**QUERIES[0], "id": str(number)} for number in range(30_000)])
    terminal, stderr = os.openpty()
    with subprocess.Popen(
        [*PROGRAM, "eval", queries, *files[1:]],
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        cwd=home,
        env=environment(home / "data") | {"TERM": "xterm"},
        # As on a terminal: a job in the background of a script inherits that Ctrl-C is not heard.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  (one system call, no lock)
    ) as process:
        os.close(stderr)
        shown = b""
        while b"Asking BM25" not in shown:
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(terminal, 4096):
                shown += more
        except OSError:  # the other end of a terminal is gone
            pass
        assert process.wait(10) == 130
    os.close(terminal)
    assert b"Traceback" not in shown
