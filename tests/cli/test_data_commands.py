"""`mcpproxy data`: what a person types and gets."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import keyring
import psycopg
import pytest
from cli_runs import Run, some_servers
from keyring.backends.fail import Keyring as NoKeyring
from postgres_server import PASSWORD, PostgresServer

from smart_mcp_proxy.upstream import SignIn, SignIns

WEB = "https://web.example/mcp"
KEPT = SignIn(
    "https://a.example", {"issuer": "x"}, None, {"client_id": "c"}, "canary-access", "canary-refresh", "", 1, 2
)
KEY = "a-key-of-the-tests-with-32-characters"


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


def test_sign_ins_at_servers_go_to_a_database_and_home_again(home: Path, run: Run, filled: None, url: str) -> None:
    """Encrypted there; whoever has another key, or none, gets the catalog without them and hears why."""
    keyring.set_keyring(NoKeyring())
    servers = {"web": {"url": WEB, "disabled": True}, "other": {"url": "https://other.example/mcp", "disabled": True}}
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": some_servers("todo")["mcpServers"] | servers}))
    asyncio.run(SignIns(home / "data").store.write("web", WEB, KEPT))
    there = run("data", "copy", "--to", url, "--json", SECRET_KEY=KEY)
    assert there.json["sign_ins"] == ["web"], there.err
    with psycopg.connect(url) as connection:
        ((kind, box),) = connection.execute("SELECT kind, box FROM sealed").fetchall()
    assert kind == "sign-in" and b"canary" not in box and "canary" not in there.out + there.err
    home_again = run("data", "copy", "--to", str(home / "again"), "--json", DATABASE_URL=url, SECRET_KEY=KEY)
    assert home_again.json["sign_ins"] == ["web"], home_again.err
    found, _ = asyncio.run(SignIns(home / "again").store.read("web", WEB))
    assert found == KEPT
    for key, said in (({"SECRET_KEY": "l" * 32}, "under another key"), ({}, "no key to encrypt them with")):
        done = run("data", "copy", "--to", str(home / said), "--json", DATABASE_URL=url, **key)
        assert done.status == 0 and done.json["sign_ins"] == [] and done.json["rows"]["tools"]
        assert "were not copied" in done.err and said in done.err and "MCPPROXY_SECRET_KEY" in done.err


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


@pytest.mark.long  # a third of a second of processor time
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


@pytest.mark.long  # a third of a second of processor time
def test_a_second_interrupt_does_not_disturb_the_first(home: Path, filled: None) -> None:
    """The first takes the copy back; 130, nothing but that is said, and the target trusts nothing."""
    program = """if True:
        import signal, sys, threading
        from smart_mcp_proxy.catalog import copying
        from smart_mcp_proxy.cli.app import main

        read, scope, is_stopped = copying.read_checkpoint, copying.CancelScope, threading.Event()

        def press():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        def read_last(connection):
            press()
            is_stopped.wait()
            press()
            return read(connection)

        def wait_for_the_thread(**given):
            is_stopped.set()
            return scope(**given)

        copying.read_checkpoint, copying.CancelScope = read_last, wait_for_the_thread
        # As on a terminal: a job in the background of a script inherits that Ctrl-C is not heard.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(main())
    """
    words = [sys.executable, "-c", program, "data", "copy", "--to", str(home / "to")]
    given = os.environ | {"MCPPROXY_DATA_DIR": str(home / "data")}
    done = subprocess.run(words, env=given, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 130 and "Traceback" not in done.stderr and "Warning" not in done.stderr, done.stderr
    with closing(sqlite3.connect(home / "to" / "proxy.db")) as connection:
        assert connection.execute("SELECT count(*) FROM tools").fetchall() == [(0,)]


@pytest.mark.long  # a third of a second of processor time
def test_a_copy_onto_itself_is_refused(home: Path, run: Run, filled: None) -> None:
    """However it is named."""
    (home / "link").symlink_to(home / "data")
    for named in ("data", "data/../data", "link"):
        done = run("data", "copy", "--to", str(home / named), "--replace")
        assert done.status == 2 and "is to be copied" in done.err


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("to", ["", " "])
def test_an_empty_target_is_refused(
    home: Path, run: Run, filled: None, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """It is not the current directory."""
    (home / "here").mkdir()
    monkeypatch.chdir(home / "here")
    done = run("data", "copy", "--to", to)
    assert done.status == 2 and "--to is empty" in done.err
    assert list((home / "here").iterdir()) == []
