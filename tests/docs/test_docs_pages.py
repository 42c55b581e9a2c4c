"""What the pages name in the code exists, and the map of the code names every room."""

import re
from pathlib import Path

import pytest
from documents import DOCUMENTS, ROOT, name_of

FOR_DEVELOPERS = {"docs/architecture.md", "docs/contributing.md"}
"""They are about the code, and name many files of it."""
NAMED_PATH = re.compile(r"`((?:smart_mcp_proxy|tests|docs|scripts)/[\w/.]+)`|`(pyproject\.toml|README\.md)`")
NAMED_SCRIPT = re.compile(r"python (scripts/[\w.]+)")
NAMED_TARGET = re.compile(r"make ([a-z][a-z-]*)")
NO_ROOMS = {"__main__.py"}
"""Files of the ground floor that one other module uses."""


def paths_in(text: str) -> set[str]:
    """Every path that a page names as code."""
    return {first or second for first, second in NAMED_PATH.findall(text)} | set(NAMED_SCRIPT.findall(text))


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """A page that leads to a file that was moved is worse than none."""
    named = paths_in(page.read_text("utf-8"))
    assert len(named) > 10 or name_of(page) not in FOR_DEVELOPERS
    assert {path for path in named if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    """Read from code spans and blocks, where "make" is a command."""
    text = page.read_text("utf-8")
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(NAMED_TARGET.findall(code)) <= targets


def test_every_room_of_the_house_and_of_the_gateway_is_named() -> None:
    """A new room gets its line in the tables."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    house = ROOT / "smart_mcp_proxy"
    rooms = [*house.iterdir(), *(part for part in (house / "gateway").iterdir() if part.is_dir())]
    missing = {
        path
        for room in rooms
        if room.name[0] != "_" and room.name not in NO_ROOMS
        if room.suffix == ".py" or any(room.glob("*.py"))  # a room that has moved leaves its caches behind
        if f"`{(path := room.relative_to(ROOT).as_posix())}`" not in text
    }
    assert missing == set()
