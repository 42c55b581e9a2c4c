"""`mcpproxy service`: the files that are written, and what the service manager is told."""

import plistlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import Run

from smart_mcp_proxy.cli.commands.machine.service import ServicePlan, launchd_list, systemd_unit
from smart_mcp_proxy.errors import ConfigError

ODD = ServicePlan(
    ["/opt/my tools/mcpproxy", "serve", "--http", "--config", '/home/a%b/"c"$d/mcp\\config.json'],
    {"PATH": "/usr/bin:/bin", "MCPPROXY_PORT": "9000", "MCPPROXY_INSTRUCTIONS": 'say "hi" 100%'},
    Path("/home/a b/.mcpproxy"),
)
MANAGER = """#!/bin/sh
echo "$@" >>"$FAKE_LOG"
[ "$FAKE_FAILS" = "$2" ] && { echo "no bus" >&2; exit 1; }
exit 0
"""


@pytest.fixture
def manager(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the service manager that writes down what it is told; returns that file."""
    folder = home / "bin"
    folder.mkdir()
    for name in ("systemctl", "launchctl"):
        (folder / name).write_text(MANAGER)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("FAKE_LOG", str(home / "told"))
    return home / "told"


def test_a_unit_quotes_what_systemd_would_read_otherwise() -> None:
    """Spaces, quotes, backslashes, and the two signs by which it fills something in."""
    lines = systemd_unit(ODD).splitlines()
    (start,) = (line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart="))
    assert start == '"/opt/my tools/mcpproxy" "serve" "--http" "--config" "/home/a%%b/\\"c\\"$$d/mcp\\\\config.json"'
    assert 'Environment="MCPPROXY_INSTRUCTIONS=say \\"hi\\" 100%%"' in lines
    assert "EnvironmentFile=-/home/a b/.mcpproxy/service.env" in lines
    with pytest.raises(ConfigError, match="line break"):
        systemd_unit(ServicePlan(["x"], {"A": "b\nExecStartPre=rm"}, Path("/d")))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing to say about it; of a broken one it does."""
    plan = ServicePlan([sys.executable, *ODD.command[1:]], ODD.variables, tmp_path)
    unit = tmp_path / "mcpproxy.service"
    for text, is_good in ((systemd_unit(plan), True), (systemd_unit(plan).replace("ExecStart=", "ExecStrat="), False)):
        unit.write_text(text)
        words = ["systemd-analyze", "verify", "--user", "--man=no", "--recursive-errors=no", str(unit)]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, env={"XDG_RUNTIME_DIR": str(tmp_path)}
        )
        complaints = [line for line in done.stderr.splitlines() if "mcpproxy.service" in line]
        assert (not complaints and done.returncode == 0) == is_good, done.stderr


def test_a_property_list_is_read_back_as_it_was_meant() -> None:
    """By the reader of the standard library, which is the format's own."""
    read = plistlib.loads(launchd_list(ODD).encode())
    assert read["ProgramArguments"] == list(ODD.command)
    assert read["EnvironmentVariables"] == ODD.variables
    assert (read["RunAtLoad"], read["KeepAlive"]) == (True, {"SuccessfulExit": False})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="units are for Linux")
def test_install_status_and_uninstall(home: Path, run: Run, manager: Path) -> None:
    """The file, what systemd is told, no secret anywhere; a file of somebody else's stays."""
    (home / "mcp_config.json").write_text('{"mcpServers": {}}')
    unit = home / ".config" / "systemd" / "user" / "mcpproxy.service"
    dry = run("service", "install", "--dry-run", PORT="9001", AUTH_TOKEN="hidden-token-1234567890")
    assert (dry.status, unit.exists(), manager.exists()) == (0, False, False)
    assert 'Environment="MCPPROXY_PORT=9001"' in dry.out
    assert "hidden-token" not in dry.out + dry.err
    assert "MCPPROXY_AUTH_TOKEN is a secret and is left out" in dry.err
    assert f'"--config" "{home / "mcp_config.json"}"' in dry.out
    assert run("service", "status").status == 1
    assert run("service", "install").status == 0
    assert manager.read_text().splitlines() == ["--user daemon-reload", "--user enable --now mcpproxy.service"]
    assert run("service", "status", "--json").json == {"file": str(unit), "is_installed": True, "is_running": True}
    assert (run("service", "uninstall").status, unit.exists()) == (0, False)
    assert "disable --now mcpproxy.service" in manager.read_text()
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    done = run("service", "install")
    assert (done.status, done.next_command) == (2, "mcpproxy service install --dry-run")
    assert unit.read_text() == "[Service]\nExecStart=/bin/true\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="units are for Linux")
def test_a_manager_that_refuses_or_is_missing_is_named(
    home: Path, run: Run, manager: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own words and where its log is; without one nothing is written."""
    monkeypatch.setenv("FAKE_FAILS", "enable")
    done = run("service", "install")
    assert (done.status, "no bus" in done.err) == (1, True)
    assert shlex.split(done.next_command)[0] == "journalctl"
    monkeypatch.setenv("PATH", str(home))
    (home / ".config" / "systemd" / "user" / "mcpproxy.service").unlink()
    done = run("service", "install")
    assert (done.status, done.next_command) == (2, "mcpproxy serve --http")
    assert not (home / ".config" / "systemd" / "user" / "mcpproxy.service").exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="units are for Linux")
def test_a_folder_that_takes_no_unit_is_not_said_to_be_full(home: Path, run: Run, manager: Path) -> None:
    """Room is one thing that may be missing there."""
    (home / ".config").write_text("")
    done = run("service", "install")
    assert (done.status, "mcpproxy.service cannot be written" in done.err) == (1, True)
    assert "Look whether the disk is full and who may write there" in done.err
