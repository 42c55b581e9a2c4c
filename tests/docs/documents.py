"""README and the pages of the documentation, as the tests read them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [README, *PAGES]


def name_of(document: Path) -> str:
    """Its path in the repository."""
    return document.relative_to(ROOT).as_posix()


def blocks(document: Path, language: str) -> list[str]:
    """The content of its fenced blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text("utf-8"), re.DOTALL | re.MULTILINE)
