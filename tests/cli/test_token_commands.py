"""`mcpproxy token`: what a person types and gets."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_runs import Run, some_servers

from smart_mcp_proxy.cli.commands.operate.token import parse_life
from smart_mcp_proxy.cli.support.failure import UsageError


@pytest.fixture
def servers(home: Path) -> None:
    """Two configured servers and a profile."""
    file = some_servers("todo", "colors") | {"profiles": {"work": {"servers": ["todo"]}}}
    (home / "mcp_config.json").write_text(json.dumps(file))


@pytest.mark.long  # a third of a second of processor time
def test_a_token_is_shown_once_and_stored_as_a_hash(run: Run, servers: None, home: Path) -> None:
    """stdout holds it and nothing else, so that a script can take it; no later command has a byte of it."""
    made = run("token", "create", "ci", "--servers", "todo,colors", "--expires", "30d")
    assert made.status == 0
    token = made.out.strip()
    assert token.startswith("mcpp_") and len(token) == 48 and made.out.count("\n") == 1
    assert token not in made.err
    listed = run("token", "list")
    again = run("token", "create", "ci")
    ended = run("token", "revoke", "ci")
    assert (listed.status, again.status, ended.status) == (0, 1, 0)
    assert "read on todo, colors" in listed.out
    assert "revoked" in run("token", "list").out
    log = run("activity", "list", "--kind", "access")
    assert [line.split()[3:7] for line in log.out.splitlines()[1:]] == [
        ["ok", "0.0", "token", "revoked:"],
        ["ok", "0.0", "token", "made:"],
    ]
    shown = log.out + "".join(done.out + done.err for done in (listed, again, ended, run("token", "list", "--json")))
    assert token not in shown
    with closing(sqlite3.connect(home / "data" / "proxy.db")) as database:
        assert token not in "".join(database.iterdump())
        assert len(database.execute("SELECT hash FROM agent_tokens").fetchone()[0]) == 64


def test_json_has_the_same_facts(run: Run, servers: None) -> None:
    """One object, or a list of them."""
    made = run("token", "create", "ann", "--profile", "work", "--access", "write", "--expires", "never", "--json").json
    assert (made["name"], made["id"], made["access"]) == ("ann", "agent-1", "write")
    assert (made["servers"], made["profile"], made["expires_s"]) == (None, "work", None)
    assert made["token"].startswith("mcpp_")
    assert run("token", "list", "--json").json == [{key: made[key] for key in made if key != "token"}]
    assert run("token", "revoke", "ann", "--json").json == {"revoked": "ann"}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["create", "x", "--servers", "tood"], 1, "Known: colors, todo."),
        (["create", "x", "--profile", "wrok"], 1, "Known: work."),
        (["create", "x", "--servers", ","], 2, "--servers names none"),
        (["create", "x", "--expires", "5"], 2, "Write 45m, 12h, 30d, 8w or never."),
        (["create", "x", "--access", "all"], 2, "destructive"),
        (["create", "x", "--expires", "999999w"], 1, "ten years"),
        (["revoke", "x"], 1, "mcpproxy token list"),
    ],
)
def test_a_slip_makes_no_token(run: Run, servers: None, words: list[str], status: int, said: str) -> None:
    """And the words say what would be right."""
    done = run("token", *words)
    assert (done.status, done.out) == (status, "")
    assert said in done.err
    assert run("token", "list", "--json").json == []


@pytest.mark.long  # a third of a second of processor time
def test_a_token_that_another_program_wrote_is_named(run: Run, servers: None, home: Path) -> None:
    """By the list, and by doctor with what to do until it is revoked."""
    assert run("token", "create", "ci").status == 0
    with closing(sqlite3.connect(home / "data" / "proxy.db")) as connection, connection as database:
        database.execute("UPDATE agent_tokens SET role = 'admin'")
    listed = run("token", "list")
    assert "changed by something else than a gateway" in listed.out and "admin" not in listed.out
    assert run("token", "list", "--json").json[0]["is_altered"] is True
    assert "by something else than a gateway, and open nothing: ci" in run("doctor").out
    assert run("token", "revoke", "ci").status == 0
    assert "else than a gateway, and open nothing" not in run("doctor").out


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("odd_s", [1e300, -1e300, 1e13, -1e13])
def test_odd_stored_moments_hide_no_token(run: Run, servers: None, home: Path, odd_s: float) -> None:
    """The list has them all, whatever an older version or another program has stored."""
    for name in ("first", "second"):
        assert run("token", "create", name).status == 0
    with closing(sqlite3.connect(home / "data" / "proxy.db")) as connection, connection as database:
        database.execute("UPDATE agent_tokens SET expires_s = ?, last_used_s = ? WHERE name = 'first'", (odd_s, odd_s))
    listed = run("token", "list")
    assert listed.status == 0, listed.err
    assert "first" in listed.out and "second" in listed.out
    assert len(run("token", "list", "--json").json) == 2


@pytest.mark.parametrize(("text", "life_s"), [("45m", 2_700), ("12h", 43_200), ("30d", 2_592_000), ("never", None)])
def test_a_life_is_a_number_and_a_unit(text: str, life_s: float | None) -> None:
    """Minutes, hours, days, weeks."""
    assert parse_life(text) == life_s


@pytest.mark.parametrize("text", ["", "0d", "-1d", "1.5h", "30", "30D", "d", "1y", "1d ", "9999999d", "\u0663d"])
def test_what_is_no_life_is_refused(text: str) -> None:
    """A token that lives longer than was meant is worse than none."""
    with pytest.raises(UsageError):
        parse_life(text)
