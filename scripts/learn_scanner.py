"""Learns what the wording of attacks has in common, and writes smart_mcp_proxy/policy/scanner/classifier.tsv.

It learns from the sets in tests/policy/scanner_set that are not held out or unseen, from labelled definitions (JSON
lines with `label`: malicious, benign or code_only, for an honest text) and from tools taken for honest ones. Needs
scikit-learn: pip install --group learn. `--without SOURCE` leaves a source of the labelled ones out, writes nothing
and says what of that source is found.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench.search_data import read_rows
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from smart_mcp_proxy.policy.scanner.classifier import ALWAYS, LEARNED, Run, compute_log_odds, runs, share
from smart_mcp_proxy.policy.scanner.scanning import passages
from smart_mcp_proxy.policy.scanner.wording import Reading

SETS = Path(__file__).resolve().parent.parent / "tests" / "policy" / "scanner_set"
LEARNED_FROM = ("malicious", "benign", "learned_malicious", "learned_benign")
OPENLY = frozenset(["overt", "overt_malicious_capability"])
"""Kinds that say openly what they do: their words are those of security tools."""
LEAST_TEXTS = 3
"""That have a run of words before it is learned."""
MOST_RUNS = 8_000
STRENGTH = 30.0
"""How closely the model follows its texts: the inverse of the penalty on weights."""
DIGITS = 3
STOPS = frozenset(".:;,!?")
"""Alone they say how a text is set, not what it says."""


class Text(NamedTuple):
    source: str
    is_attack: bool
    runs: frozenset[Run]


def main() -> None:
    arguments = _parsed()
    texts = [*_own(), *_labelled(arguments.labelled), *(text for path in arguments.tools for text in _honest(path))]
    used = [text for text in texts if text.source != arguments.without]
    model = _learned(used)
    print(json.dumps(Counter(f"{text.source}, {'attacks' if text.is_attack else 'honest'}" for text in used), indent=1))
    if arguments.without:
        left_out = [text for text in texts if text.source == arguments.without]
        for is_attack in (True, False):
            like = [
                compute_log_odds(model, text.runs & model.keys()) >= 1
                for text in left_out
                if text.is_attack == is_attack
            ]
            print(f"{arguments.without}, {'attacks' if is_attack else 'honest'}: {sum(like)} of {len(like)}")
        return
    ordered = sorted(model, key=lambda run: (-model[run], run))
    LEARNED.write_text("".join(f"{model[run]:.{DIGITS}f}\t{' '.join(run)}\n" for run in ordered), encoding="utf-8")
    print(f"{LEARNED}: {len(model)} runs of words")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labelled", type=Path, required=True, help="JSON lines of labelled definitions")
    parser.add_argument("--tools", type=Path, nargs="+", default=[], help="JSON lines of tools taken for honest ones")
    parser.add_argument("--without", help="a source of the labelled definitions")
    return parser.parse_args()


def _own() -> Iterator[Text]:
    for name in LEARNED_FROM:
        for row in read_rows(SETS / f"{name}.jsonl"):
            if row["kind"] not in OPENLY:
                yield _text(name, row["label"] == "malicious", row["definition"])


def _labelled(path: Path) -> Iterator[Text]:
    for row in read_rows(path):
        if row["kind"] not in OPENLY:
            yield _text(row["source"], row["label"] == "malicious", _definition(row))


def _honest(path: Path) -> Iterator[Text]:
    for row in read_rows(path):
        yield _text(path.name, False, _definition(row))


def _definition(row: dict[str, Any]) -> dict[str, Any]:
    described = {"name": row["name"], "description": row.get("description") or ""}
    return described | {"inputSchema": row.get("input_schema") or {}}


def _text(source: str, is_attack: bool, definition: dict[str, Any]) -> Text:
    reading = Reading(passages(definition)[0])
    found = frozenset().union(*(runs(line) for _, line in reading.prose()))
    return Text(source, is_attack, frozenset(run for run in found if run[0] not in STOPS or len(run) > 1))


def _learned(texts: Sequence[Text]) -> dict[Run, float]:
    """The weight of each run: of those that several texts have, the ones that weigh most, learned once more."""
    counted = Counter(run for text in texts for run in text.runs)
    chosen = sorted(run for run, count in counted.items() if count >= LEAST_TEXTS)
    weights = _fitted(texts, chosen)
    chosen = sorted(sorted(chosen, key=lambda run: -abs(weights[run]))[:MOST_RUNS])
    return _fitted(texts, chosen)


def _fitted(texts: Sequence[Text], chosen: Sequence[Run]) -> dict[Run, float]:
    column = {run: place for place, run in enumerate(chosen)}
    values, columns, ends = [], [], [0]
    for text in texts:
        known = sorted(column[run] for run in text.runs if run in column)
        columns += known
        values += [share(len(known))] * len(known)
        ends.append(len(columns))
    rows = csr_matrix((values, columns, ends), shape=(len(texts), len(chosen)))
    model = LogisticRegression(C=STRENGTH, max_iter=1_000, class_weight="balanced")
    model.fit(rows, np.array([text.is_attack for text in texts]))
    return {ALWAYS: float(model.intercept_[0]), **dict(zip(chosen, map(float, model.coef_[0]), strict=True))}


if __name__ == "__main__":
    main()
