"""The table of clients that were tried says what runs saw, and claims nothing of clients that no test drives."""

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENTS = tomllib.loads((ROOT / "tests" / "clients" / "tried.toml").read_text("utf-8"))["client"]
RUNS = json.loads((ROOT / "tests" / "clients" / "runs.json").read_text("utf-8"))


def test_every_run_has_a_row_and_every_claim_a_run() -> None:
    """A client that a test drives is shown, with its version and the month of the run."""
    assert {client["run"] for client in CLIENTS} - {""} == set(RUNS)
    for run in RUNS.values():
        assert run["version"]
        assert re.fullmatch(r"20\d\d-\d\d", run["tried"])
        assert {run[transport] for transport in ("http", "stdio")} <= {"works", "fails"}


def test_the_table_has_a_row_for_each_client() -> None:
    """In the order of the file; a cell says what the run saw."""
    page = (ROOT / "docs" / "clients" / "index.md").read_text("utf-8")
    table = page.partition("<!-- tried:begin -->")[2].partition("<!-- tried:end -->")[0].strip().splitlines()
    assert [row.split(" | ")[0].removeprefix("| ") for row in table[2:]] == [client["name"] for client in CLIENTS]
    assert all(row.count("|") == table[0].count("|") for row in table)
    for row, client in zip(table[2:], CLIENTS, strict=True):
        assert (" works " in row or " fails " in row) == bool(client["run"])
