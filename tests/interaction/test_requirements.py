"""The list of promises and the tests that show them: each names the other."""

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
MANIFEST = HERE / "requirements.toml"
NAMED = re.compile(r"mark\.requirement\(\"([^\"]+)\"\)")


def promises() -> dict[str, dict[str, str]]:
    """The manifest by id."""
    return tomllib.loads(MANIFEST.read_text("utf-8"))


def named_ids() -> set[str]:
    """Every id that a test names."""
    return {id_ for file in HERE.glob("test_*.py") for id_ in NAMED.findall(file.read_text("utf-8"))}


def test_every_promise_is_shown_by_a_test() -> None:
    """A line that nothing checks is a wish."""
    assert sorted(promises().keys() - named_ids()) == []


def test_every_id_that_a_test_names_is_a_promise() -> None:
    """A typo does not hide a missing test."""
    assert sorted(named_ids() - promises().keys()) == []


def test_every_promise_has_a_source_and_a_sentence() -> None:
    """And no member that nobody reads."""
    for id_, promise in promises().items():
        assert {"source", "behaviour"} <= promise.keys() <= {"source", "behaviour", "divergence"}, id_
        assert promise["behaviour"].endswith("."), id_
