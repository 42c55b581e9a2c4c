"""Plain questions asked of a catalog of published servers."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = [
    {"server": "files", "name": "write_file", "description": "Write a text into a file."},
    {"server": "maps", "name": "get_route", "description": "Directions by car between two places."},
]
QUESTIONS = """
[tune]
"find a route by car" = ["maps:get_route"]
"write a text into a file" = ["maps:get_route"]
[held]
"knit a scarf" = []
"water my plants" = ["garden:water"]
"""


def test_there_are_a_hundred_questions_half_of_them_kept_from_tuning() -> None:
    """Each asks another thing."""
    parts = tomllib.loads((ROOT / "tests" / "atlas" / "questions.toml").read_text(encoding="utf-8"))
    assert {part: len(asked) for part, asked in parts.items()} == {"tune": 50, "held": 50}
    assert len({question for asked in parts.values() for question in asked}) == 100


@pytest.mark.long  # a third of a second of processor time
def test_answers_are_judged_by_the_first_place_and_by_what_is_said_where_nothing_fits(tmp_path: Path) -> None:
    """A question none of whose tools is there is left out."""
    tools, questions = tmp_path / "tools.jsonl", tmp_path / "questions.toml"
    tools.write_text("".join(json.dumps(tool) + "\n" for tool in TOOLS), encoding="utf-8")
    questions.write_text(QUESTIONS, encoding="utf-8")
    command = [sys.executable, ROOT / "scripts" / "ask_questions.py", tools, "--questions", questions, "--peers"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "tune: 2 questions, right tool first 1, among 5 1; 0 that nothing fits, 0 of them said so" in said
    assert "SQLite FTS5, porter, tune: 2 questions, right tool first 1, among 5 1" in said
    assert "SQLite FTS5, porter, held: 0 questions" in said
    assert "write a text into a file" in said and "find a route by car" not in said
    assert "held: 0 questions, right tool first 0, among 5 0; 1 that nothing fits, 1 of them said so" in said
