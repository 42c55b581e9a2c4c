"""`mcpproxy data`: what a person types and gets."""

import json
from pathlib import Path

import psycopg
import pytest
from cli_runs import Run, some_servers
from postgres_server import PASSWORD, PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.url(postgres.new_database())


@pytest.fixture
def filled(home: Path, run: Run) -> None:
    """Two listed servers, and a tool that is blocked."""
    (home / "mcp_config.json").write_text(json.dumps(some_servers("todo", "colors")))
    run("tool", "list")
    assert run("block", "todo:add_task").status == 0


def test_the_catalog_goes_to_a_database_and_home_again(home: Path, run: Run, filled: None, url: str) -> None:
    """The blocked tool is blocked at the other end, and nothing printed shows the password."""
    before = run("tool", "list", "--json").json
    there = run("data", "copy", "--to", url)
    assert there.status == 0, there.err
    assert "Equal row by row" in there.err and "MCPPROXY_DATABASE_URL" in there.err
    assert PASSWORD not in there.out + there.err
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT name, state FROM approvals WHERE state = 'blocked'").fetchall() == [
            ("add_task", "blocked")
        ]
    assert run("tool", "list", "--json", DATABASE_URL=url).json == before
    back = run("data", "copy", "--to", str(home / "other"), "--json", DATABASE_URL=url)
    assert back.status == 0 and back.json["sign_ins"] == [] and back.json["rows"]["tools"] >= len(before)
    assert run("tool", "list", "--json", DATA_DIR=str(home / "other")).json == before


def test_a_full_target_is_kept(run: Run, filled: None, url: str) -> None:
    """Until --replace says otherwise."""
    assert run("data", "copy", "--to", url).status == 0
    again = run("data", "copy", "--to", url)
    assert again.status == 2 and "is not empty" in again.err and "--replace" in again.err
    assert run("data", "copy", "--to", url, "--replace").status == 0


@pytest.mark.long  # half a second of work and more
def test_a_backup_comes_back(home: Path, run: Run, filled: None) -> None:
    """What was decided after it is forgotten, and that is said."""
    backup = str(home / "catalog.backup")
    assert run("data", "backup", backup).status == 0
    assert run("block", "todo:add_task", "--undo").status == 0
    assert run("data", "restore", backup).status == 2
    restored = run("data", "restore", backup, "--replace")
    assert restored.status == 0, restored.err
    assert "Decisions that came after" in restored.err
    assert run("call", "todo:add_task", "title=x").status != 0


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("mysql://host/db", "no database's address"),
        ("postgresql://user:secret-word@127.0.0.1:1/db", "cannot be used"),
        ("postgres://user:secret word@", "no database's address"),
    ],
)
def test_a_wrong_address_is_told_without_its_password(run: Run, filled: None, to: str, said: str) -> None:
    """2, and what to write."""
    done = run("data", "copy", "--to", to)
    assert done.status == 2 and said in done.err
    assert "secret" not in done.err + done.out


def test_a_copy_onto_itself_is_refused(home: Path, run: Run, filled: None) -> None:
    """However it is named."""
    done = run("data", "copy", "--to", str(home / "data"), "--replace")
    assert done.status == 2 and "is to be copied" in done.err
