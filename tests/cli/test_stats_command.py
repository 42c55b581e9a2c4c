"""Statistics by command: from the database, through a running gateway, as a table, a plot or JSON."""

import time
from pathlib import Path

import pytest
from cli_runs import Run, served
from stored_activity import write

from smart_mcp_proxy.cli.commands.figures.stats import draw_columns
from smart_mcp_proxy.telemetry import Activity

NOW_S = time.time()


@pytest.fixture
def filled(home: Path) -> Path:
    """A data directory with two calls and a search."""
    detail = {"variant": "read"}
    write(
        home / "data",
        Activity("call", "ann", "todo:add", "ok", 10.0, NOW_S - 60, detail, server="todo", tool="add"),
        Activity("call", "ann", "=cmd:x", "tool_error", 30.0, NOW_S - 60, detail, server="=cmd", tool="x\x1b[2J"),
        Activity("search", "ann", "q", "ok", 1.0, NOW_S - 60, {"tokens": {"sent": 100, "spared": 5_000}}),
    )
    return home


@pytest.mark.long  # a third of a second of processor time
def test_what_was_served_and_saved_is_shown_by_day_and_by_group(filled: Path, run: Run) -> None:
    """No server needs to be configured for it, and no name commands the terminal."""
    days = run("stats")
    assert days.status == 0
    head, *rows = days.out.splitlines()
    assert head.split()[:3] == ["day", "calls", "failed"]
    assert rows[-1].split() == ["total", "2", "1", "0", "20.0", "30.0", "1", "4,900"]
    assert "2 calls; about 4,900 tokens saved" in days.err
    tools = run("stats", "--by", "tool")
    assert "todo:add" in tools.out and "searches" not in tools.out and "\x1b" not in tools.out
    assert [row["name"] for row in run("stats", "--by", "client", "--json").json["groups"]] == ["ann"]
    assert run("stats", "--since", "30s", "--json").json["total"]["calls"] == 0


@pytest.mark.long  # starts and ends processes, seconds of it
def test_a_running_gateway_answers_the_same(tmp_path: Path, run: Run) -> None:
    """The command line asks it as any other program does; without it the database says the same."""
    with served(tmp_path / "gw") as folder:
        assert run("call", "todo:add_task", "title=Milk", DATA_DIR=str(folder)).status == 0
        answered = run("stats", "--by", "server", "--bucket", "hour", "--json", DATA_DIR=str(folder))
        for _ in range(50):  # a record is stored a moment after its answer
            if answered.json["total"]["calls"]:
                break
            answered = run("stats", "--by", "server", "--bucket", "hour", "--json", DATA_DIR=str(folder))
    assert "Answered by the running gateway" in answered.err
    assert [(one["name"], one["calls"]) for one in answered.json["groups"]] == [("todo", 1)]
    stored = run("stats", "--by", "server", "--bucket", "hour", "--json", DATA_DIR=str(folder)).json
    assert {**answered.json, "since": "", "until": ""} == {**stored, "since": "", "until": ""}


def test_a_plot_has_a_column_for_each_span_of_time(filled: Path, run: Run) -> None:
    """Off a terminal as well; what is not asked rightly is said."""
    plotted = run("stats", "--plot")
    assert plotted.out.startswith("calls per day (UTC)") and "tokens saved, estimated" in plotted.out
    assert "█" in plotted.out or "#" in plotted.out
    wrong = run("stats", "--since", "yesterday")
    assert (wrong.status, wrong.next_command) == (1, "mcpproxy stats --help")


def test_columns_are_as_high_as_their_values() -> None:
    """The highest fills all lines; a small one shows all the same; 0 and less show nothing."""
    assert draw_columns([8, 4, 0, -3, 0.01], width=40, height=2) == ["8 │███", "0 │███ ███         ▁▁▁"]
    assert draw_columns([2, 1], width=40, height=2, is_plain=True) == ["2 |###", "0 |### ###"]
    assert draw_columns([], width=40, height=1) == ["0 │"]
    assert draw_columns([0, 0], width=40, height=1) == ["0 │"]


def test_many_columns_fit_into_a_line_by_adding_neighbours() -> None:
    """Whatever the width; the scale is then that of the sums."""
    lines = draw_columns([1] * 1_000, width=60, height=3)
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("18 │█")
    assert draw_columns([1_500_000], width=20, height=1)[0].startswith("1.5M │█")
