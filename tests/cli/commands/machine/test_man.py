"""The manual page: every command, readable at any width, and shown by a command of its own."""

import os
import shutil
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from cli_runs import Run

from smart_mcp_proxy.cli.app import COMMANDS

PAGE = files("smart_mcp_proxy.cli").joinpath("mcpproxy.1").read_text("utf-8")


def test_it_has_every_command_and_is_written_off_a_terminal(run: Run) -> None:
    """For a file of one's own, byte for byte."""
    done = run("man")
    assert (done.status, done.out, done.err) == (0, PAGE, "")
    assert [name for name in COMMANDS if f"\n.SS {name}\n" not in PAGE] == []


def test_a_wheel_brings_it_to_where_man_looks() -> None:
    """From the one file that the package holds as well."""
    build = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    shared = {"smart_mcp_proxy/cli/mcpproxy.1": "share/man/man1/mcpproxy.1"}
    assert build["targets"]["wheel"]["shared-data"] == shared


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
@pytest.mark.parametrize("columns", [80, 60, 40])
def test_it_is_set_without_a_warning_at_any_width(columns: int) -> None:
    """Lines that are too long are commands to copy."""
    words = ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", f"-rLL={columns}n"]
    done = subprocess.run(words, input=PAGE.encode(), capture_output=True, check=True, env={"PATH": os.environ["PATH"]})
    lines = done.stdout.decode().splitlines()
    warned = done.stderr.decode().splitlines()
    assert [line for line in warned if not line.endswith(("cannot break line", "cannot adjust line"))] == []
    long = [line for line in lines if len(line) > columns and len(line.split()) > 1]
    assert [line for line in long if not line.startswith("         ")] == []  # remarks of examples stand below them
