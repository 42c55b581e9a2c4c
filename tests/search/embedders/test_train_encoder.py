"""The training of the static encoder: it brings pairs together, and does it the same way every time."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smart_mcp_proxy.search.embedders.wordpieces import Wordpieces

SCRIPT = Path(__file__).parents[3] / "scripts" / "train_encoder.py"
WORDS = ["picture", "image", "bill", "invoice", "trip", "flight", "note", "message", "remove", "list", "find", "send"]
PAIRS = {"picture": "image", "bill": "invoice", "trip": "flight", "note": "message"}


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    """Four pairs, and one whose query an evaluation asks."""
    rows = [{"q": asked, "v": [tool, tool, tool], "src": "made", "g": tool} for asked, tool in PAIRS.items()]
    rows.append({"q": "remove", "v": ["list"] * 3, "src": "dev", "g": "list"})
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_queries_of_an_evaluation_are_left_out(script: dict[str, Any], pairs_file: Path) -> None:
    """By their source."""
    pairs = script["read_pairs"](pairs_file, ["dev"], Wordpieces(WORDS))
    assert len(pairs.queries) == len(PAIRS)
    assert pairs.views.shape == (len(PAIRS), 3)


def test_training_brings_pairs_together_and_repeats_itself(script: dict[str, Any], pairs_file: Path) -> None:
    """From a start in which no word is near to its pair."""
    pairs = script["read_pairs"](pairs_file, ["dev"], Wordpieces(WORDS))
    start = np.random.default_rng(3).standard_normal((len(WORDS), 16)).astype(np.float32)
    plan = script["Plan"](epochs=60, batch=4, rate=0.05, temperature=0.1, seed=0)
    trained = script["train"](start, pairs, plan)
    unit = trained / np.linalg.norm(trained, axis=1, keepdims=True)
    numbers = {word: number for number, word in enumerate(WORDS)}
    for asked, tool in PAIRS.items():
        cosines = {other: float(unit[numbers[asked]] @ unit[numbers[other]]) for other in PAIRS.values()}
        assert max(cosines, key=lambda other: cosines[other]) == tool
    assert (script["train"](start, pairs, plan) == trained).all()
    assert (trained[numbers["send"]] == start[numbers["send"]]).all()


def test_frequent_pieces_count_less(script: dict[str, Any]) -> None:
    """The number of a piece is its rank."""
    vectors = np.random.default_rng(1).standard_normal((2_000, 20)).astype(np.float32)
    reduced = script["reduce_dimension"](vectors, 8)
    lengths = np.linalg.norm(reduced, axis=1)
    assert reduced.shape == (2_000, 8)
    assert lengths[:5].mean() < lengths[-500:].mean() / 2
    assert lengths.mean() == pytest.approx(1, abs=1e-3)
