"""The site is built strictly: a broken link, a broken anchor and a page without a place fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import PAGES, ROOT

pytestmark = pytest.mark.long  # a build for each

INDEX = "# Site\n\n[first](page.md#first)\n\n```{toctree}\npage\n```\n"
PAGE = "# Page\n\n## First\n\n[site](index.md)\n"


def build(folder: Path, pages: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Builds pages with the configuration of our own site, and its options from the Makefile."""
    folder.mkdir(exist_ok=True)
    shutil.copy(ROOT / "docs" / "conf.py", folder)
    for name, text in pages.items():
        (folder / name).write_text(text, "utf-8")
    command = next(line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if "-m sphinx" in line)
    options = [word for word in command.split() if word.startswith("--") and word != "--jobs"]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(folder), str(folder / "out")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_site_without_fault_is_built(tmp_path: Path) -> None:
    """Its links lead to the anchors of headings; nothing in it is fetched from elsewhere."""
    done = build(tmp_path / "docs", {"index.md": INDEX, "page.md": PAGE})
    assert (done.returncode, done.stderr) == (0, "")
    built = (tmp_path / "docs" / "out" / "index.html").read_text("utf-8")
    assert 'href="page.html#first"' in built
    assert 'src="http' not in built and 'rel="stylesheet" type="text/css" href="http' not in built


@pytest.mark.parametrize(
    ("index", "page", "fault"),
    [
        (INDEX.replace("page.md#first", "gone.md"), PAGE, "gone.md"),
        (INDEX.replace("#first", "#second"), PAGE, "second"),
        (INDEX.replace("toctree}\npage", "toctree}\ngone"), PAGE, "gone"),
        ("# Site\n", PAGE, "page.md"),
    ],
    ids=["link", "anchor", "index", "page without a place"],
)
def test_a_fault_fails_the_build(tmp_path: Path, index: str, page: str, fault: str) -> None:
    """And is named."""
    done = build(tmp_path / "docs", {"index.md": index, "page.md": page})
    assert done.returncode != 0
    assert fault in done.stderr


def test_no_page_has_the_name_of_one_that_the_generator_makes() -> None:
    """It would be overwritten without a word: `search.md` was."""
    made = {"search", "genindex", "modindex"}
    assert made.isdisjoint(page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in PAGES)
