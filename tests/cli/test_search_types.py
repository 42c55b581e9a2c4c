"""`mcpproxy search --types`: prompts, resources and templates, for people and for programs."""

import json
import sys
from pathlib import Path

import pytest
from cli_runs import Run

# Marked long: starts programs.
pytestmark = pytest.mark.long

SERVER = """
from fastmcp import FastMCP

server = FastMCP("harbour")

@server.tool
def warn(harbour: str) -> str:
    "Send a storm warning to a harbour."
    return harbour

@server.prompt
def draft(harbour: str) -> str:
    "Draft a storm warning for a harbour. Be kind."
    return harbour

@server.resource("log://storms")
def storms() -> str:
    "Storm warnings so far."
    return ""

@server.resource("log://storms/{day}")
def day(day: str) -> str:
    "Storm warnings of one day."
    return day

server.run(show_banner=False)
"""


@pytest.fixture
def harbour(home: Path) -> Path:
    """A working directory with one server of all kinds in its server file."""
    (home / "server.py").write_text(SERVER)
    entry = {"command": sys.executable, "args": [str(home / "server.py")]}
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": {"harbour": entry}}))
    return home


def test_all_kinds_are_found_from_the_first_search_on(harbour: Path, run: Run) -> None:
    """With what they are used by; then from the stored catalog; tools alone where nothing else is asked for."""
    first = run("search", "storm warning", "--types", "prompt,resource, resource_template")
    assert first.status == 0, first.err
    for said in (
        "harbour__draft",
        "mcpproxy://harbour/log%3A%2F%2Fstorms",
        "resource_template",
        "Draft a storm warning",
    ):
        assert said in first.out.replace("\n", ""), first.out
    assert "harbour:warn" not in first.out
    second = run("search", "storm warning", "--types", "tool,prompt", "--json")
    assert "From the stored catalog." in second.err
    assert sorted((entry["kind"], entry["name"]) for entry in second.json["found"]) == [
        ("prompt", "harbour__draft"),
        ("tool", "harbour:warn"),
    ]
    assert "found" not in run("search", "storm warning", "--json").json
    explained = run("search", "storm warning", "--types", "tool,prompt", "--why")
    assert "description: storm, warn" in explained.out
    nothing = run("search", "xylophone", "--types", "prompt")
    assert "Nothing of these types fits." in nothing.err
