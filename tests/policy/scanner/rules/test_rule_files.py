"""Rule files are read as they are written, and none has an entry that nothing reads."""

import tomllib
from pathlib import Path

import pytest

from smart_mcp_proxy.policy.scanner.rules import rule_files
from smart_mcp_proxy.policy.scanner.rules.rule_files import RuleFile

FILES = sorted(Path(rule_files.__file__).parent.glob("*.toml"))
FRAGMENTS = """
[fragments]
person = ['user', 'human']
the_person = '(?:the )?(?&person)'

[expressions]
told = 'tell (?&the_person)'

[[phrase]]
check = "secrecy"
weight = "middle"
reason = "It tells."
patterns = ['\\bnever tell (?&the_person)', '\\bhide from (?&person)']
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RuleFile:
    """The rules of a file that is written here."""
    (tmp_path / "own.toml").write_text(FRAGMENTS, encoding="utf-8")
    monkeypatch.setattr(rule_files, "__file__", str(tmp_path / "rule_files.py"))
    return RuleFile("own")


def test_a_fragment_stands_for_its_pattern(rules: RuleFile) -> None:
    """A list as a group of alternatives; one fragment may use another that stands before it."""
    assert rules.expression("told").pattern == "tell (?:the )?(?:user|human)"


def test_a_phrase_has_a_way_for_each_pattern(rules: RuleFile) -> None:
    """Its weight is written as a word."""
    (phrase,) = rules.phrases()
    assert phrase[:3] == ("secrecy", rule_files.MIDDLE, "It tells.")
    assert [bool(way.pattern.search("hide from user")) for way in phrase.ways] == [False, True]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_fragment_is_used(path: Path) -> None:
    """A name that nothing refers to would be a rule that is believed to hold."""
    text = path.read_text(encoding="utf-8")
    assert [name for name in tomllib.loads(text).get("fragments", {}) if f"(?&{name})" not in text] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_weight_and_check_is_said(path: Path) -> None:
    """An entry of a phrase has what a finding shows."""
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("phrase", []):
        assert entry.keys() == {"check", "weight", "reason", "patterns"}
        assert entry["reason"].endswith(".")
