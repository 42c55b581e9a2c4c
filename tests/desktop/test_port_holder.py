"""Who listens at a port: a gateway with its data directory, another program by its name, nobody."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smart_mcp_proxy.cli.app import main
from smart_mcp_proxy.cli.support.api import read_config
from smart_mcp_proxy.desktop.port_holder import find_port_holder
from smart_mcp_proxy.desktop.spelling import spell_command
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.listening import bind

LISTENING = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is seen on Linux alone")


@contextmanager
def listening(*words: str, cwd: Path, **environ: str) -> Iterator[tuple[int, int]]:
    """The port and number of a process with these words on its command line."""
    env = {"PATH": os.environ["PATH"], "HOME": "/home/somebody"} | environ
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", LISTENING, *words], cwd=cwd, env=env, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None and process.stdin is not None
        yield int(process.stdout.readline()), process.pid
        process.stdin.close()
        process.wait(20)


@pytest.mark.parametrize(
    ("words", "environ", "data_dir"),
    [
        (("mcpproxy", "serve", "--http"), {}, "/home/somebody/.mcpproxy"),
        (("-m", "smart_mcp_proxy", "serve"), {"MCPPROXY_DATA_DIR": "~/other"}, "/home/somebody/other"),
        (("/opt/bin/smart-mcp-proxy", "serve"), {"MCPPROXY_DATA_DIR": "run/data"}, "FOLDER/run/data"),
        (("mcpproxy", "demo", "--serve"), {}, ""),
        (("server.py",), {"MCPPROXY_DATA_DIR": "/tmp"}, ""),
    ],
    ids=["usual", "home", "relative", "demo", "other"],
)
def test_the_holder_is_found_with_its_data_directory(
    tmp_path: Path, words: tuple[str, ...], environ: dict[str, str], data_dir: str
) -> None:
    """A relative one from its own working directory; that of a demo is gone when it ends."""
    with listening(*words, cwd=tmp_path, **environ) as (port, pid):
        found = find_port_holder(port)
        assert (found.pid, found.data_dir) == (pid, data_dir.replace("FOLDER", str(tmp_path)))
        assert found.name.startswith("python")
    assert find_port_holder(port).pid == 0


def test_a_port_that_is_taken_names_the_gateway_and_how_to_talk_to_it(tmp_path: Path) -> None:
    """Its data directory is in the command, so that it works as it is printed."""
    with listening("mcpproxy", "serve", cwd=tmp_path, MCPPROXY_DATA_DIR="data") as (port, pid):
        with pytest.raises(ConfigError) as caught:
            bind("127.0.0.1", port)
        setting = f"MCPPROXY_DATA_DIR={tmp_path / 'data'} "
        assert f"A gateway has it (process {pid}), with its data in {tmp_path / 'data'}." in caught.value.message
        assert caught.value.__notes__[0].startswith(setting) and caught.value.__notes__[0].endswith(" ui")


@pytest.mark.anyio
async def test_a_command_without_servers_names_the_gateway_that_has_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was typed, as it reaches that gateway; nothing of it where the data directory is the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["mcpproxy", "search", "a task"])
    with listening("mcpproxy", "serve", cwd=tmp_path, MCPPROXY_DATA_DIR="data") as (port, pid):
        for own, named in (("other", True), ("data", False)):
            with pytest.raises(ConfigError, match="No server file") as caught:
                await read_config(Settings(data_dir=tmp_path / own, port=port))
            assert (f"A gateway has it (process {pid})" in caught.value.message) == named
            start, end = (
                (f"MCPPROXY_DATA_DIR={tmp_path / 'data'} ", "mcpproxy search 'a task'") if named else ("", "init")
            )
            assert caught.value.__notes__[0].startswith(start) and caught.value.__notes__[0].endswith(end)


def test_a_port_of_another_program_names_that() -> None:
    """By its number and name, nothing of its command line."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError) as caught:
        bind("127.0.0.1", taken.getsockname()[1])
    assert f"Process {os.getpid()} (" in caught.value.message and "MCPPROXY_PORT" in caught.value.hint


def test_commands_work_as_they_are_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their name alone where the shell finds them; paths below the home are short, and quoted."""
    script = tmp_path / "my venv/bin/mcpproxy"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert spell_command("ui") == "~/'my venv/bin/mcpproxy' ui"
    assert spell_command("ui", data_dir=str(tmp_path / ".mcpproxy")) == "~/'my venv/bin/mcpproxy' ui"
    assert (
        spell_command("ui", data_dir=str(tmp_path / "a b")) == "MCPPROXY_DATA_DIR=~/'a b' ~/'my venv/bin/mcpproxy' ui"
    )
    monkeypatch.setenv("PATH", str(script.parent))
    assert spell_command("search", "two words") == "mcpproxy search 'two words'"
    script.unlink()
    assert spell_command("ui") == "~/'my venv/bin/python' -m smart_mcp_proxy ui"


@pytest.mark.long  # each opens a store
@pytest.mark.parametrize("words", ["status", "stop", "stats", "activity list", "token list", "tool forget --all"])
def test_a_command_that_needs_no_server_names_the_gateway_at_its_port(
    tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the command that asks it; what was asked is still answered from the own data directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["mcpproxy", *words.split()])
    monkeypatch.setenv("MCPPROXY_DATA_DIR", str(tmp_path / "other"))
    with listening("mcpproxy", "serve", cwd=tmp_path, MCPPROXY_DATA_DIR="data") as (port, pid):
        monkeypatch.setenv("MCPPROXY_PORT", str(port))
        main()
    said = capsys.readouterr().err
    assert f"A gateway has it (process {pid}), with its data in {tmp_path / 'data'}." in said
    assert f"To ask it: MCPPROXY_DATA_DIR={tmp_path / 'data'} " in said and words in said
