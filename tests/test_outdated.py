"""The list of pins that hold newer releases back: what it reads and how it judges, without a network."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import outdated
from outdated import EXACT_REASON, ROOT, Pin

PYPROJECT = """
[project]
dependencies = [
    "Inner_Name[extra]>=1,<1.5; sys_platform != 'win32'",  # it breaks
    "free>=3",
    "wide>=2,<4",
]
[project.optional-dependencies]
some = ["wide>=2,<4", "inner.name>=1,<2"]
[dependency-groups]
docs = ["exact==7"]
dev = [
    { include-group = "docs" },
    'quoted~=1.1',  # it is "so"
]
"""


def test_ranges_with_an_end_are_read_with_the_reason_at_their_line() -> None:
    """Each range of a package once, also from extras and groups; one reason serves all lines of a package."""
    assert outdated.requirements(PYPROJECT) == [
        Pin("exact", "==7", ""),
        Pin("inner-name", ">=1,<1.5", "it breaks"),
        Pin("inner-name", ">=1,<2", "it breaks"),
        Pin("quoted", "~=1.1", 'it is "so"'),
        Pin("wide", ">=2,<4", ""),
    ]


def test_packages_of_npm_are_read_from_programs_and_scripts() -> None:
    """Ranges and names that are put together are none."""
    texts = (
        'A = "@scope/some.name@1.2.3"\nB = ("ai@2.0.0-alpha.1", "zod@4")',
        "suite=@scope/other@0.2.0\nnpm install other@$version",
        'A = "@scope/some.name@1.2.3"\nD = "kept@1.0.0"  # its next one needs node 30',
    )
    assert outdated.npm_pins(texts) == [
        Pin("@scope/other", "0.2.0", EXACT_REASON, "npm"),
        Pin("@scope/some.name", "1.2.3", EXACT_REASON, "npm"),
        Pin("ai", "2.0.0-alpha.1", EXACT_REASON, "npm"),
        Pin("kept", "1.0.0", "its next one needs node 30", "npm"),
    ]


@pytest.mark.parametrize(
    ("source", "ours", "newest", "is_held_back"),
    [
        ("pip", ">=1,<2", "2.0", True),
        ("pip", ">=1,<2", "1.99", False),
        ("pip", ">=4.2.3,<4.3", "4.3.0", True),
        ("pip", ">=4.2.3,<4.3", "4.2.9", False),
        ("pip", ">=4.2.3,<4.3", "4.1", False),
        ("pip", "~=1.1", "1.9", False),
        ("pip", "==7", "8", True),
        ("npm", "1.10.0", "1.9.9", False),
        ("npm", "1.9.9", "1.10.0", True),
        ("npm", "0.2.0-alpha.9", "0.2.0-alpha.12", True),
        ("npm", "0.2.0-alpha.12", "0.2.0-alpha.12", False),
    ],
)
def test_a_release_beyond_the_end_of_a_range_is_held_back(
    source: Any, ours: str, newest: str, is_held_back: bool
) -> None:
    """One below its beginning, as an index that lags has it, is not."""
    assert outdated.is_held_back(Pin("x", ours, "", source), newest) is is_held_back


def test_bounds_that_are_tighter_than_a_major_version_have_a_reason_beside_them() -> None:
    """Nobody raises a bound whose reason is not known."""
    pins = outdated.requirements((ROOT / "pyproject.toml").read_text("utf-8"))
    tight = [pin for pin in pins if outdated.is_tight(pin.ours)]
    assert {"fastmcp", "mcp", "sqlalchemy"} <= {pin.package for pin in tight}
    assert [pin for pin in tight if not pin.reason] == []
    assert [outdated.is_tight(ours) for ours in ("<1", "<2.0", "<1.5", "<0.5", "==1.2", "~=1.1")] == [
        *(False, False),
        *(True, True, True, True),
    ]


def test_the_suite_that_the_script_installs_is_the_one_that_the_tests_drive() -> None:
    """Two places name it."""
    suites = [pin.ours for pin in outdated.pins_here() if pin.package == "@modelcontextprotocol/conformance"]
    assert len(suites) == 1
    assert "conformance@" + suites[0] in (ROOT / "scripts" / "conformance.sh").read_text("utf-8")


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_without_an_index_it_says_so_and_ends_well(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is known of newer releases, which is not that there are none."""
    monkeypatch.setattr(sys, "argv", ["outdated.py", *words])
    monkeypatch.setattr(outdated, "newest_of", lambda _: None)
    assert outdated.main() == 0
    out, err = capsys.readouterr()
    assert out == ("[]\n" if words else "")
    assert err.splitlines() == [
        "npm reaches no index (is there a network?): its pins were not looked up.",
        "pip reaches no index (is there a network?): its pins were not looked up.",
    ]


def test_what_is_held_back_is_shown_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And those that no index knows are named."""
    pins = [Pin("a", ">=1,<1.5", "it breaks"), Pin("b", ">=1,<2", ""), Pin("c", ">=1,<2", ""), Pin("d", "<2", "")]
    newest = {"a": "2.0", "b": "2.1", "c": "1.4", "pip": "26"}
    monkeypatch.setattr(outdated, "pins_here", lambda: pins)
    monkeypatch.setattr(outdated, "newest_of", lambda pin: newest.get(pin.package))
    monkeypatch.setattr(sys, "argv", ["outdated.py"])
    assert outdated.main() == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "package  ours      newest  reason",
        "a        >=1,<1.5  2.0     it breaks",
        "b        >=1,<2    2.1     none is kept in pyproject.toml",
    ]
    assert err.splitlines()[-1] == "Not found: d."
