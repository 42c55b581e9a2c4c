"""The README says what the code does: its tables come from the code, its commands exist, its examples parse."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smart_mcp_proxy.cli.app import main
from smart_mcp_proxy.servers import load_servers

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_generated_tables_are_those_of_the_code() -> None:
    """A setting or an error class that changes shows in the README, or this fails."""
    done = subprocess.run(
        [sys.executable, "scripts/regenerate_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_no_tracked_text_holds_a_line_of_an_unfinished_merge() -> None:
    """A merge that was resolved by halves reads like text, and no other check of a document sees it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    files = [ROOT / name for name in listed.split("\0") if name.endswith((".md", ".toml", ".json", ".yml", ".mjs"))]
    marker = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [str(file) for file in files if file.is_file() and marker.search(file.read_text("utf-8"))] == []
    assert marker.search("a\n" + "<" * 7 + " HEAD\n")


def test_every_json_example_is_a_server_list_without_problems() -> None:
    """What a user copies works."""
    for block in blocks("json"):
        assert json.loads(block)
        loaded = load_servers(block)
        assert loaded.servers and not loaded.problems


def command_lines() -> list[str]:
    (commands,) = [block for block in blocks("text") if block.startswith("mcpproxy  ")]
    return [line.split("  ")[0].split("[")[0].strip() for line in commands.splitlines()]


@pytest.mark.parametrize("line", command_lines())
def test_every_command_of_the_table_has_a_help_text(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No command is promised that is not there."""
    words = [word.split("|")[0] for word in line.split()[1:] if word.islower() and "=" not in word]
    monkeypatch.setattr(sys, "argv", ["mcpproxy", *words, "--help"])
    assert main() == 0
    assert "Usage" in capsys.readouterr().out


def test_make_targets_named_in_the_readme_exist() -> None:
    """The commands of the README are those of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"make ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
