"""Fixtures of the command line's tests."""

import io
import os
import sys
from pathlib import Path

import pytest
from cli_runs import Done, Run

from smart_mcp_proxy.cli.app import main


class Keyboard(io.StringIO):
    """Standard input of a command that a person types."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; in it are the data directory, `data`, and the user's home, `home`, empty as well."""
    for name in [name for name in os.environ if name.startswith("MCPPROXY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MCPPROXY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("MCPPROXY_EMBEDDER", "BM25")  # tests/gateway/test_vector_search.py has the default
    monkeypatch.setenv("MCPPROXY_ISOLATION", "none")  # test_server_isolation.py has the sandbox
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `mcpproxy WORDS` in this process."""

    def run_command(*words: str, stdin: str = "", at_terminal: bool = False, **settings: str) -> Done:
        with monkeypatch.context() as patch:
            for name, text in settings.items():
                patch.setenv(f"MCPPROXY_{name}", text)
            patch.setattr(sys, "argv", ["mcpproxy", *words])
            patch.setattr(sys, "stdin", Keyboard(stdin) if at_terminal else io.StringIO(stdin))
            capsys.readouterr()
            status = main()
        return Done(status, *capsys.readouterr())

    return run_command
