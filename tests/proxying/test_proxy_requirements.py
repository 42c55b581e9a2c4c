"""The promises of the `proxy` tool, and the tests that show them: each names the other."""

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
NAMED = re.compile(r"mark\.seed\(\"([^\"]+)\"\)")


def promises() -> dict[str, dict[str, str]]:
    """The manifest by id."""
    return tomllib.loads((HERE / "requirements.toml").read_text("utf-8"))


def named_ids() -> set[str]:
    """Every id that a test names."""
    files = HERE.parent.glob("*/test_proxy_*.py")
    return {id_ for file in files for id_ in NAMED.findall(file.read_text("utf-8"))}


def test_every_line_is_shown_by_a_test_and_every_id_is_a_line() -> None:
    """A line that nothing checks is a wish, and a typo hides a missing test."""
    assert {id_ for id_, promise in promises().items() if "behaviour" in promise} == named_ids()


def test_every_line_says_where_it_comes_from_and_what_holds() -> None:
    """And no member that nobody reads."""
    for id_, promise in promises().items():
        assert {"source"} < promise.keys() <= {"source", "behaviour", "divergence"}, id_
        assert all(promise[member].endswith(".") for member in promise.keys() - {"source"}), id_
