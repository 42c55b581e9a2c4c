"""The changelog: dated versions of a readable length, and fragments of the changes since."""

import re
import tomllib
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
from documents import ROOT
from packaging.version import Version

from smart_mcp_proxy import __version__

CHANGES = ROOT / "docs" / "words" / "changes"
MAX_VERSION_LINES = 40
MAX_LINE_CHARS = 130
FRAGMENT = re.compile(r"\+[a-z0-9-]+\.(?P<kind>[a-z]+)\.txt")


def read_versions() -> dict[str, list[str]]:
    """The lines below each version's heading, blank ones left out."""
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    versions = {}
    for section in sections:
        heading, *lines = section.splitlines()
        versions[heading] = [line for line in lines if line]
    return versions


def list_fragments() -> list[Path]:
    """The files beside the template."""
    return sorted(file for file in CHANGES.iterdir() if file.name != "template.jinja")


def test_versions_are_dated_and_the_newest_is_first() -> None:
    """It is the version of the package."""
    headings = [re.fullmatch(r"(\S+) - (\d{4}-\d\d-\d\d)", heading) for heading in read_versions()]
    found = [(Version(heading[1]), date.fromisoformat(heading[2])) for heading in headings if heading]
    assert len(found) == len(headings)
    assert all(newer > older for newer, older in pairwise(found))
    assert str(found[0][0]) == __version__


@pytest.mark.parametrize("version", read_versions())
def test_a_version_can_be_read_in_two_minutes(version: str) -> None:
    """At most forty lines, each of them whole."""
    lines = read_versions()[version]
    assert len(lines) <= MAX_VERSION_LINES
    assert all(line.startswith(("- ", "### ")) and len(line) <= MAX_LINE_CHARS for line in lines)


def test_a_fragment_is_one_line_of_a_known_kind() -> None:
    """Its name says the kind, which the changelog has as a heading."""
    kinds = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]["fragment"]
    for file in list_fragments():
        name = FRAGMENT.fullmatch(file.name)
        assert name is not None and name["kind"] in kinds, f"{file.name}: +WORDS.KIND.txt, KIND one of {sorted(kinds)}"
        assert re.fullmatch(rf"[^-\s][^\n]{{1,{MAX_LINE_CHARS - 3}}}\n", file.read_text("utf-8")), file.name
