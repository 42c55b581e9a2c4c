"""`mcpproxy completion`: what a shell is offered, and the shells that ask for it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import Run, some_servers

# Marked long: each starts a shell.
pytestmark = pytest.mark.long


@pytest.fixture
def listed(home: Path, run: Run) -> Path:
    """A working directory whose servers have been listed once."""
    (home / "mcp_config.json").write_text(json.dumps(some_servers("todo", "colors")))
    assert run("tool", "list").status == 0
    return home


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["serv"], ["serve", "server", "service"]),
        (["server", "lo"], ["login", "logout", "logs"]),
        (["server", "logs", ""], ["colors", "todo"]),
        (["call", "todo:add"], ["todo:add_task"]),
        (["search", "a task", "--server", "t"], ["todo"]),
        (["search", "--why-"], ["--why-not"]),
        (["approve", "to"], ["todo"]),
        (["completion", ""], []),
        (["nonsense", ""], []),
        ([""], None),
    ],
)
def test_words_are_completed_from_grammar_file_and_catalog(
    listed: Path, run: Run, words: list[str], expected: list[str] | None
) -> None:
    """Commands, options, names of servers and tools; nothing is started for it."""
    done = run("completion", "candidates", "--", *words)
    found = done.out.split()
    assert (done.status, done.err) == (0, "")
    if words[0] == "approve":
        found = [name for name in found if ":" not in name]
    assert found == expected if expected is not None else {"serve", "login", "doctor"} <= set(found)


def test_names_that_a_shell_would_read_as_something_else_are_not_offered(home: Path, run: Run) -> None:
    """A server's name may be chosen by others: `$(...)` in it must not get onto a command line."""
    entries = {"good": {"command": "x"}, "$(touch oops)": {"command": "x"}, "two words": {"command": "x"}}
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": entries}))
    assert run("completion", "candidates", "--", "server", "logs", "").out.split() == ["good"]
    (home / "mcp_config.json").write_text("{")
    assert run("completion", "candidates", "--", "server", "logs", "").out == ""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_a_name_with_a_colon(listed: Path, run: Run, tmp_path: Path) -> None:
    """As bash calls the function; what stands before the colon is on the line already."""
    program = tmp_path / "bin" / "mcpproxy"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m smart_mcp_proxy "$@"\n')
    program.chmod(0o755)
    line = "mcpproxy call todo:add"
    ask = f"COMP_LINE='{line}' COMP_POINT={len(line)}; _mcpproxy; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    script = f"{run('completion', 'bash').out}\n{ask}\n"
    env = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=listed, env=env)
    assert done.stdout.split() == ["add_task"], done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_script(run: Run, tmp_path: Path, shell: str) -> None:
    """Read, not run, by the shell itself where it is there."""
    done = run("completion", shell)
    assert (done.status, "completion candidates" in done.out) == (0, True)
    if (program := shutil.which(shell)) is not None:
        (tmp_path / "script").write_text(done.out)
        checked = subprocess.run([program, "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
