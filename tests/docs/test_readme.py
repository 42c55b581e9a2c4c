"""README and docs say what the code does: the picture is fresh, commands exist, links lead somewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import DOCUMENTS, README, ROOT, blocks, name_of

from smart_mcp_proxy.cli.app import main
from smart_mcp_proxy.servers import load_servers

COMMAND_LINE = ROOT / "docs" / "command-line.md"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)")
MOST_LINES = 150


@pytest.mark.long  # a demo on a terminal of its own
def test_the_picture_is_that_of_a_run() -> None:
    """What the demo prints today."""
    done = subprocess.run(
        [sys.executable, "scripts/terminal_picture.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_is_short() -> None:
    """Everything else has a page."""
    assert len(README.read_text("utf-8").splitlines()) <= MOST_LINES


def test_no_tracked_text_holds_a_line_of_an_unfinished_merge() -> None:
    """A merge that was resolved by halves reads like text, and no other check of a document sees it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    files = [ROOT / name for name in listed.split("\0") if name.endswith((".md", ".toml", ".json", ".yml", ".mjs"))]
    marker = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [str(file) for file in files if file.is_file() and marker.search(file.read_text("utf-8"))] == []
    assert marker.search("a\n" + "<" * 7 + " HEAD\n")


@pytest.mark.parametrize("document", [each for each in DOCUMENTS if blocks(each, "json")], ids=name_of)
def test_every_json_example_is_a_server_list_without_problems(document: Path) -> None:
    """What a user copies works."""
    for block in blocks(document, "json"):
        assert json.loads(block)
        loaded = load_servers(block)
        assert loaded.servers and not loaded.problems


def targets(document: Path) -> set[str]:
    """The anchors of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_to_a_file_and_an_anchor(document: Path) -> None:
    """Also where pages are read in the repository, and not as a site."""
    for path, anchor in LINK.findall(document.read_text("utf-8")):
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), path
        assert not anchor or anchor in targets(target), f"{path}#{anchor}"


def command_lines() -> list[str]:
    (commands,) = [block for block in blocks(COMMAND_LINE, "text") if block.startswith("mcpproxy  ")]
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


@pytest.mark.parametrize("file", [README, ROOT / "docs" / "comparison.md"], ids=name_of)
def test_each_row_about_another_gateway_links_to_its_source(file: Path) -> None:
    """What is said of others can be looked up, and when it was read stands beside the table."""
    text = file.read_text("utf-8")
    rows = re.search(r"^\| mcpproxy \|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert rows is not None and "September" in text
    assert [row for row in rows[1].splitlines() if not row.startswith("| [") or "](https://" not in row] == []
