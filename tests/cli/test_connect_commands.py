"""`connect` and `disconnect`: shown first, then written, undone to the last byte, and never at the cost of anything."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from cli_runs import PROGRAM, Run, environment

from smart_mcp_proxy.client_files import KNOWN_CLIENTS, KnownClient
from smart_mcp_proxy.servers.jsonc import parse_jsonc

SECRET = "s3cret-value"
CURSOR = f"""{{
  // servers of mine, {SECRET}
  "mcpServers": {{
    "gh": {{"command": "gh", "env": {{"TOKEN": "{SECRET}"}}}}
  }},
}}
"""


@pytest.fixture
def cursor(home: Path) -> Path:
    """Cursor's file with one server."""
    file = home / "home/.cursor/mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(CURSOR)
    return file


def test_connect_shows_a_diff_and_writes_nothing(run: Run, cursor: Path) -> None:
    """Our entry is readable in it, values of others are not."""
    done = run("connect", "cursor")
    assert done.status == 0
    assert '+    "mcpproxy": {' in done.out and '+        "serve"' in done.out
    assert SECRET not in done.out + done.err and '"env": {"TOKEN": "***"}' in done.out
    assert "--write" in done.err
    assert cursor.read_text() == CURSOR and os.listdir(cursor.parent) == ["mcp.json"]


def test_connect_writes_once_and_disconnect_puts_every_byte_back(run: Run, cursor: Path) -> None:
    """With a copy beside the file, for its owner alone, as long as it is connected."""
    assert run("connect", "cursor", "--write").status == 0
    connected = cursor.read_bytes()
    assert b'"mcpproxy"' in connected
    copy = cursor.with_name("mcp.json.before-mcpproxy")
    assert copy.read_text() == CURSOR and stat.S_IMODE(copy.stat().st_mode) == 0o600
    again = run("connect", "cursor", "--write")
    assert "connected already" in again.err and cursor.read_bytes() == connected
    done = run("disconnect", "cursor")
    assert done.status == 0 and "as it was before" in done.err
    assert cursor.read_text() == CURSOR and os.listdir(cursor.parent) == ["mcp.json"]
    assert "was not connected" in run("disconnect", "cursor").err


def test_another_way_in_still_leads_back_to_the_first_file(run: Run, cursor: Path) -> None:
    """stdio, then HTTP: what is put back is what was there before both."""
    run("connect", "cursor", "--write")
    run("connect", "cursor", "--write", "--http")
    assert '"url": "http://127.0.0.1:8000/mcp"' in cursor.read_text()
    run("disconnect", "cursor")
    assert cursor.read_text() == CURSOR


def test_disconnect_takes_our_entry_alone_out_of_a_file_that_changed(run: Run, cursor: Path) -> None:
    """What somebody else wrote since stays, and the copy, too."""
    run("connect", "cursor", "--write")
    cursor.write_text(cursor.read_text().replace("servers of mine", "servers of ours"))
    done = run("disconnect", "cursor")
    assert "is without the gateway now" in done.err and "before-mcpproxy" in done.err
    assert cursor.read_text() == CURSOR.replace("servers of mine", "servers of ours")


WHOLE = [client for client in KNOWN_CLIENTS if not client.required]


@pytest.mark.parametrize("client", WHOLE, ids=lambda client: client.name)
def test_every_client_is_connected_and_disconnected(run: Run, home: Path, client: KnownClient) -> None:
    """A file that was made for it is gone afterwards."""
    name = client.name
    (done,) = run("connect", name, "--write", "--json").json
    assert done["status"] == "changed" and done["backup"] is None
    path = Path(done["path"])
    assert "mcpproxy" in path.read_text() and path.is_relative_to(home / "home")
    assert run("connect", name, "--write", "--json").json[0]["status"] == "unchanged"
    assert run("disconnect", name, "--json").json[0]["status"] == "restored"
    assert not path.exists()


@pytest.mark.parametrize(
    ("client", "written"),
    [("codex", 'env_vars = ["DOCS_TOKEN", "MY_API_KEY"]'), ("gemini", '"MY_API_KEY": "$MY_API_KEY"'), ("cursor", "")],
)
def test_variables_that_a_client_would_withhold_are_let_through(
    run: Run, home: Path, client: str, written: str
) -> None:
    """Those that the server file names, by their names alone; another one that it names later is added."""
    servers = {
        "a": {"command": "a", "env": {"API_KEY": "${MY_API_KEY}", "PLAIN": "text"}},
        "b": {"url": "https://b.example/mcp", "headers": {"Authorization": "Bearer ${env:DOCS_TOKEN}"}},
        "off": {"command": "off", "env": {"X": "${NOT_STARTED}"}, "disabled": True},
    }
    (home / "data").mkdir()
    file = home / "data/mcp_config.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    done = run("connect", client, "--write")
    path = Path(run("connect", client, "--json").json[0]["path"])
    if not written:
        assert "API_KEY" not in path.read_text() + done.err
        return
    assert written in path.read_text() and "NOT_STARTED" not in path.read_text()
    assert "the server file names: DOCS_TOKEN, MY_API_KEY" in done.err
    file.write_text(json.dumps({"mcpServers": servers | {"c": {"command": "${LATER}"}}}))
    assert run("connect", client, "--write", "--json").json[0]["status"] == "changed"
    assert "LATER" in path.read_text()


def test_all_are_those_that_are_installed(run: Run, cursor: Path, home: Path) -> None:
    """A client's folder or file is the sign; one that fails stops no other."""
    (home / "home/.codex").mkdir()
    broken = home / "home/.gemini/settings.json"
    broken.parent.mkdir()
    broken.write_text("{")
    done = run("connect", "--all", "--write", "--json")
    assert done.status == 1
    assert {one["client"]: one["status"] for one in done.json} == {
        "cursor": "changed",
        "codex": "changed",
        "gemini": "failed",
    }
    assert broken.read_text() == "{"
    assert {row["client"]: row["state"] for row in run("connect", "--json").json}["cursor"] == "connected"


def test_a_file_that_the_client_would_refuse_is_not_made(run: Run, home: Path) -> None:
    """Continue starts with no file, and not with one that has no name: what is missing is said."""
    done = run("connect", "continue", "--write")
    file = home / "home/.continue/config.yaml"
    assert done.status == 1 and not file.exists()
    assert "has no 'name' and 'version', without which Continue CLI refuses it" in done.err
    whole = "name: Mine\nversion: 1.0.0\n"
    file.parent.mkdir()
    file.write_text(whole)
    assert run("connect", "continue", "--write", "--json").json[0]["status"] == "changed"
    assert run("disconnect", "continue", "--json").json[0]["status"] == "restored"
    assert file.read_text() == whole


def test_servers_that_were_taken_over_move(run: Run, cursor: Path) -> None:
    """`init`, then `connect --move`: the client keeps what the gateway does not have, and gets all back."""
    cursor.write_text(CURSOR.replace('"gh": {', '"other": {"command": "o"},\n    "gh": {'))
    before = cursor.read_text()
    run("server", "add", "gh", "--env", f"TOKEN={SECRET}", "--", "gh")
    run("server", "add", "other", "--", "something-else")
    done = run("connect", "cursor", "--move")
    assert SECRET not in done.out + done.err
    (done,) = run("connect", "cursor", "--move", "--write", "--json").json
    assert done["moved"] == ["gh"]
    after = cursor.read_text()
    assert '"gh"' not in after and '"other"' in after and '"mcpproxy"' in after
    run("disconnect", "cursor")
    assert cursor.read_text() == before


def test_servers_that_changed_after_their_diff_are_not_written(run: Run, cursor: Path) -> None:
    """The second time, with the new difference seen, they are."""
    run("connect", "cursor")
    changed = CURSOR.replace('"gh": {"command": "gh"', '"gh": {"command": "hg"')
    cursor.write_text(changed)
    done = run("connect", "cursor", "--write")
    assert done.status == 1 and "changed after their difference was shown" in done.err
    assert cursor.read_text() == changed
    assert run("connect", "cursor", "--write").status == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "line 1, column 2"),
        (b'{"mcpServers": {}, "mcpServers": {"a": 1}}', "twice"),
        (b'{"mcpServers": [1]}', "'mcpServers' holds a list. Expected names with their values."),
        (b'{"mcpServers": "x"}', "'mcpServers' holds text"),
        (b"[1]", "mcp.json holds a list"),
        (b"\0" * 64, "is no text: it begins with the bytes 00 00 00 00"),
        (bytes(range(256)), "is no text: it begins with the bytes 00 01 02 03"),
        ("{}".encode("utf-16"), "is UTF-16 text"),
        ("{}".encode("utf-16-be"), "iconv -f UTF-16BE -t UTF-8"),
        ("{}".encode("utf-16-le"), "is UTF-16LE text"),
        ("{}".encode("utf-32"), "is UTF-32 text"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"x": ' * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_used_is_left_alone(run: Run, cursor: Path, content: bytes, said: str) -> None:
    """With a sentence that names file and reason; nothing is lost, no copy is made."""
    cursor.write_bytes(content)
    for words in (["connect", "cursor", "--write"], ["disconnect", "cursor"]):
        done = run(*words)
        assert done.status == 1
        assert said in done.err and str(cursor) in done.err and "Traceback" not in done.err
    assert cursor.read_bytes() == content and os.listdir(cursor.parent) == ["mcp.json"]


def test_a_folder_in_the_place_of_a_file_is_named(run: Run, cursor: Path) -> None:
    """It is no question of who may read it."""
    cursor.unlink(missing_ok=True)
    cursor.mkdir()
    assert "is a folder. Expected a file." in run("connect", "cursor", "--write").err
    assert "is a folder. Expected a file." in run("init", "--dry-run").err


def test_what_failed_is_tried_again_by_the_next_command(run: Run, cursor: Path) -> None:
    """The list of clients names the file's fault once, below the table."""
    cursor.write_bytes(b"{")
    assert run("connect", "cursor", "--write").next_command == "mcpproxy connect cursor"
    assert run("disconnect", "cursor").next_command == "mcpproxy disconnect cursor"
    listed = run("connect")
    assert "cannot be read" in listed.out and "line 1" not in listed.out and "line 1, column 2" in listed.err


def test_a_clients_own_name_is_understood(run: Run, cursor: Path) -> None:
    """As it stands in tables, and as people write it."""
    assert "Cursor is connected" in run("connect", "Cursor", "--write").err
    assert "VS Code is connected" in run("connect", "VS Code", "--write").err


def test_all_of_a_project_are_those_that_keep_servers_there(run: Run, cursor: Path, home: Path) -> None:
    """No failure of those that do not; and it is undone where it was done."""
    (home / "home/.codeium/windsurf").mkdir(parents=True)
    done = run("connect", "--all", "--project", "--write")
    assert done.status == 0 and "Windsurf" not in done.err
    assert done.next_command == "Undo: mcpproxy disconnect --all --project"
    assert (home / ".cursor/mcp.json").exists()
    assert run("disconnect", "--all", "--project").status == 0
    assert not (home / ".cursor/mcp.json").exists()


def test_links_and_read_only_files(run: Run, cursor: Path, home: Path) -> None:
    """A link is followed and stays one; dead links, hard links, pipes, folders and read-only files are refused."""
    real = home / "dot files.json"
    cursor.rename(real)
    cursor.symlink_to(real)
    assert run("connect", "cursor", "--write").status == 0
    assert cursor.is_symlink() and "mcpproxy" in real.read_text()
    run("disconnect", "cursor")
    assert cursor.is_symlink() and real.read_text() == CURSOR
    real.chmod(0o444)
    refused = run("connect", "cursor", "--write").err
    assert f"read-only.\nIf it may be changed: chmod u+w '{real}'\n" in refused and real.read_text() == CURSOR
    real.chmod(0o644)
    os.link(real, home / "second")
    assert "hard link" in run("connect", "cursor", "--write").err
    (home / "second").unlink()
    real.unlink()
    assert "not there" in run("connect", "cursor", "--write").err
    cursor.unlink()
    os.mkfifo(cursor)
    assert "not a regular file" in run("connect", "cursor", "--write").err
    cursor.unlink()
    cursor.mkdir()
    assert run("connect", "cursor", "--write").status == 1


def test_a_file_on_a_disk_that_can_only_be_read_is_no_matter_of_its_mode(
    run: Run, cursor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is sent to chmod, which would change nothing."""
    facts = list(os.statvfs(cursor))
    facts[8] |= os.ST_RDONLY
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(facts))
    done = run("connect", "cursor", "--write")
    assert done.status == 1 and "disk that can only be read" in done.err and "chmod" not in done.err
    assert cursor.read_text() == CURSOR


def test_a_projects_file_does_not_lead_out_of_the_project(run: Run, home: Path) -> None:
    """A stranger's checkout may hold a link to anything."""
    (home / "proj").mkdir()
    os.chdir(home / "proj")
    (home / "outside.json").write_text("{}")
    Path(".mcp.json").symlink_to(home / "outside.json")
    done = run("connect", "claude-code", "--project", "--write")
    assert "out of the project" in done.err and (home / "outside.json").read_text() == "{}"
    Path(".mcp.json").unlink()
    assert run("connect", "claude-code", "--project", "--write").status == 0
    assert json.loads(Path(".mcp.json").read_text())["mcpServers"]["mcpproxy"]["alwaysLoad"] is True


@pytest.mark.long  # four processes
def test_many_at_once_end_with_one_entry(home: Path, cursor: Path) -> None:
    """Four processes: each says that it is connected, or that the file was changed meanwhile."""
    env = environment(home / "data") | {"HOME": str(home / "home")}
    running = [
        subprocess.Popen(
            [*PROGRAM, "connect", "cursor", "--write"], cwd=home, env=env, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    said = [process.communicate(timeout=60)[1] for process in running]
    assert all("is connected" in text or "changed meanwhile" in text for text in said), said
    assert cursor.read_text().count('"mcpproxy"') == 1


def test_an_entry_leads_to_the_same_servers_and_data(run: Run, cursor: Path, home: Path) -> None:
    """A client starts the gateway in another folder and without this shell's variables."""
    (home / "mcp_config.json").write_text('{"mcpServers": {}}')
    run("connect", "cursor", "--write")
    entry = parse_jsonc(cursor.read_bytes(), "cursor")["mcpServers"]["mcpproxy"]
    assert entry["env"] == {
        "MCPPROXY_DATA_DIR": str(home / "data"),
        "MCPPROXY_CONFIG_PATH": str(home / "mcp_config.json"),
    }
    assert Path(entry["command"]).is_absolute()
    done = run("connect", "cursor", CONFIG_JSON='{"mcpServers": {}}')
    assert done.status == 2 and "--http" in done.err


def test_a_token_is_named_and_not_written(run: Run, cursor: Path) -> None:
    """The client takes it from its environment."""
    run("connect", "cursor", "--write", "--http", AUTH_TOKEN="t" * 32)
    text = cursor.read_text()
    assert "Bearer ${env:MCPPROXY_AUTH_TOKEN}" in text and "t" * 32 not in text
    done = run("connect", "claude-desktop", "--http", AUTH_TOKEN="t" * 32)
    assert done.status == 1 and "--stdio" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["connect", "cursr"], "Did you mean cursor?"),
        (["connect", "cursor", "--all"], "Use one of the two"),
        (["connect", "cursor", "--http", "--stdio"], "both given"),
        (["connect", "goose", "--project"], "keeps no servers in a project"),
        (["connect", "--write"], "No client is named"),
        (["connect", "cursor", "--url", "h.example/mcp?key=s3cret"], "is not an address"),
        (["connect", "cursor", "--url", ""], "is not an address"),
        (["connect", "cursor", "--url", "https://me:s3cret@h.example/mcp"], "password"),
        (["disconnect"], "No client is named"),
        (["disconnect", "nope"], "Known: claude-code"),
    ],
)
def test_mistakes_name_the_way_out(run: Run, words: list[str], said: str) -> None:
    """On stderr, with the next command."""
    done = run(*words)
    assert done.status in (1, 2) and said in done.err and "Next: mcpproxy" in done.err
    assert "s3cret" not in done.out + done.err


def test_an_end_in_the_middle_loses_nothing(run: Run, cursor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before the file is replaced: it is as it was, and the next try is like the first."""

    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("smart_mcp_proxy.client_files.files.replace_file", killed)
        assert run("connect", "cursor", "--write").status == 130
    assert cursor.read_text() == CURSOR
    assert run("connect", "cursor", "--write").status == 0
    run("disconnect", "cursor")
    assert cursor.read_text() == CURSOR and os.listdir(cursor.parent) == ["mcp.json"]
