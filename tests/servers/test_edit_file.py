"""The server file is changed whole or not at all, by one process at a time, and stays the user's file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.errors import ConfigError, ConflictError, RequestError
from smart_mcp_proxy.servers import ServerEdits, load_servers
from smart_mcp_proxy.servers.edit_file import change_entries, read_list
from smart_mcp_proxy.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


def added(name: str, **entry: Any) -> Any:
    return lambda entries: {**entries, name: entry or {"command": "true"}}


def test_the_first_server_makes_the_file(tmp_path: Path, settings: Settings) -> None:
    """In the data directory, for the owner only, where a start finds it."""
    after = change_entries(settings, tmp_path, added("a"))
    path = settings.data_dir / "mcp_config.json"
    assert after.path == path
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(load_servers(path).servers) == ["a"]
    assert os.listdir(settings.data_dir) == ["mcp_config.json"]


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"a": {"command": "x"}}, "profiles": {}}',
        '{"servers": {"a": {"command": "x"}}, "inputs": []}',
        '{"a": {"command": "x"}}',
        '[{"name": "a", "command": "x"}]',
        '{"mcpServers": [{"name": "a", "command": "x"}]}',
        '\ufeff{"mcpServers": {"a": {"command": "x"}}}',
        '{"mcpServers": {"broken": 1, "a": {"command": "x"}}}',
    ],
)
def test_every_shape_of_file_keeps_its_shape(tmp_path: Path, settings: Settings, text: str) -> None:
    """Objects under either heading, bare entries and lists of named ones; what else is in the file stays."""
    path = tmp_path / "mcp_config.json"
    path.write_text(text, "utf-8")
    change_entries(settings, tmp_path, added("b"))
    assert list(load_servers(path).usable) == ["a", "b"]
    change_entries(settings, tmp_path, lambda entries: {name: one for name, one in entries.items() if name != "b"})
    found = path.read_text("utf-8")
    assert found.startswith("\ufeff") == text.startswith("\ufeff")
    assert json.loads(found.lstrip("\ufeff")) == json.loads(text.lstrip("\ufeff"))


@pytest.mark.parametrize("name", ["profiles", "inputs", "$schema"])
def test_a_server_never_takes_the_place_of_what_else_is_in_the_file(
    tmp_path: Path, settings: Settings, name: str
) -> None:
    """Where the servers stand at the top level, beside it."""
    path = tmp_path / "mcp_config.json"
    path.write_text(json.dumps({"a": {"command": "x"}, "profiles": {"p": {}}, "inputs": [], "$schema": "s"}))
    before = path.read_text()
    with pytest.raises(RequestError, match="heading"):
        change_entries(settings, tmp_path, added(name))
    assert path.read_text() == before


def test_mode_and_link_stay(tmp_path: Path, settings: Settings) -> None:
    """A link into a folder of dot files is followed, not replaced."""
    real = tmp_path / "dotfiles" / "servers.json"
    real.parent.mkdir()
    real.write_text('{"mcpServers": {}}')
    real.chmod(0o640)
    (tmp_path / "mcp_config.json").symlink_to(real)
    assert change_entries(settings, tmp_path, added("a")).path == real
    assert (tmp_path / "mcp_config.json").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert "a" in load_servers(real).servers


def test_a_change_of_nothing_writes_nothing(tmp_path: Path, settings: Settings) -> None:
    """Not even the file's date."""
    path = tmp_path / "mcp_config.json"
    path.write_text('{"mcpServers":{"a":{"command":"x"}}}')
    before = path.stat()
    change_entries(settings, tmp_path, added("a", command="x"))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_revision_that_is_not_the_present_one_is_a_conflict(tmp_path: Path, settings: Settings) -> None:
    """The change is refused with the present revision; based on that one it is made."""
    seen = read_list(settings, tmp_path).revision
    now = change_entries(settings, tmp_path, added("a"), based_on=seen).revision
    with pytest.raises(ConflictError) as caught:
        change_entries(settings, tmp_path, added("b"), based_on=seen)
    assert caught.value.error_code == "revision_conflict"
    assert caught.value.data == {"revision": now}
    assert list(change_entries(settings, tmp_path, added("b"), based_on=now).entries) == ["a", "b"]


def test_a_save_by_an_editor_in_the_middle_of_a_change_is_not_lost(tmp_path: Path, settings: Settings) -> None:
    """An editor knows no lock: the change begins anew on what it saved."""
    path = tmp_path / "mcp_config.json"
    path.write_text('{"mcpServers": {}}')
    saves = ['{"mcpServers": {"editor": {"command": "x"}}}']

    def change(entries: Any) -> Any:
        if saves:
            path.write_text(saves.pop())
        return {**entries, "a": {"command": "y"}}

    assert list(change_entries(settings, tmp_path, change).entries) == ["editor", "a"]


@pytest.mark.parametrize("text", ["", "null", "{", "[1", '{"mcpServers": 3}', "\x00{\x00}\x00"])
def test_a_file_that_cannot_be_read_is_left_alone(tmp_path: Path, settings: Settings, text: str) -> None:
    """It may hold the user's only copy of something."""
    path = tmp_path / "mcp_config.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        change_entries(settings, tmp_path, added("a"))
    assert path.read_text() == text
    assert os.listdir(tmp_path) == ["mcp_config.json"]


def test_inline_servers_cannot_be_changed(tmp_path: Path) -> None:
    """There is no file to keep a change in; the message says what to do."""
    settings = Settings(data_dir=tmp_path, config_json='{"mcpServers": {}}')
    with pytest.raises(RequestError, match="MCPPROXY_CONFIG_JSON") as caught:
        change_entries(settings, tmp_path, added("a"))
    assert caught.value.error_code == "config_read_only"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """Neither is a pipe, which would be waited for."""
    with pytest.raises(ConfigError):
        change_entries(Settings(data_dir=tmp_path, config_path=tmp_path), tmp_path, added("a"))


PATCHER = """
import sys
from pathlib import Path
from smart_mcp_proxy.servers import ServerEdits
from smart_mcp_proxy.settings import Settings
folder, name = Path(sys.argv[1]), sys.argv[2]
edits = ServerEdits(Settings(data_dir=folder / "data"), folder)
for count in range(int(sys.argv[3])):
    edits.patch("shared", {"env": {f"{name}{count}": str(count)}}, "operator")
    edits.add(f"{name}-{count}", {"command": "true"}, "agent")
"""


@pytest.mark.long  # two processes that edit one file by turns
@pytest.mark.parametrize("edits", [15, pytest.param(50, marks=pytest.mark.soak)])
def test_two_processes_lose_nothing_of_each_other(tmp_path: Path, edits: int) -> None:
    """So many patches of one server and new servers from each; a reader never sees half a file."""
    path = tmp_path / "mcp_config.json"
    path.write_text('{\n  // kept\n  "mcpServers": {"shared": {"command": "true"}}\n}\n')
    command = [sys.executable, "-c", PATCHER, str(tmp_path)]
    processes = [
        subprocess.Popen([*command, name, str(edits)], stderr=subprocess.PIPE, text=True) for name in ("one", "two")
    ]
    while any(process.poll() is None for process in processes):
        assert "shared" in load_servers(path).servers
    assert [process.communicate()[1] for process in processes] == ["", ""]
    entries = ServerEdits(Settings(data_dir=tmp_path / "data"), tmp_path).read().entries
    names = [f"{name}{count}" for name in ("one", "two") for count in range(edits)]
    assert sorted(entries["shared"]["env"]) == sorted(names)
    assert len(entries) == 1 + 2 * edits
    assert "// kept" in path.read_text()
