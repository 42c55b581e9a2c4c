"""Linear model of a definition's wording over short runs of words, learned from attacks.

What it learned stands in classifier.tsv, a weight and a run of words to a line; scripts/learn_scanner.py makes it.
It weighs the whole text, so it finds what no single phrase gives away.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import NamedTuple

from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence
from smart_mcp_proxy.policy.scanner.wording import Reading

Run = tuple[str, ...]
"""Single word; two that follow each other; or two with any word between them, for which an empty one stands."""
ALWAYS: Run = ("",)
"""Stands for the weight that every text has."""
LEARNED = Path(__file__).with_name("classifier.tsv")
FEW_RUNS = 64
"""Known runs below which the model is not surer than with as many."""
SCALE = 0.65
"""From the logarithm of odds to a weight beside others, chosen by the sets in tests/policy."""
LEAST, MOST = -0.75, 2.0
"""Weights of a text that is not at all, and very much, like an attack: honest words around them do not outweigh two
plain signs."""
TINY_RUNS, SHORT_RUNS = 16, 32
"""A text with fewer runs that the model knows is too short to be judged, or to speak in its own favour."""
LONG_RUNS, LONGEST_RUNS = 80, 112
"""A text with more known runs than the first, as 3 % of attacks and 14 % of the honest texts that it learned from have,
is doubted: the sum over many words grows with their number alone. From the second on its wording is to weigh a whole
sign more. By steps and not at once, so that a few plain words behind an attack do not hide it."""
WORTH_NAMING = 0.5
REASON = "It chooses its words as attacks on agents do, not as descriptions of tools do; most of all here."
_WORD = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]|[^\\W\\d_]+|[.:;,!?]")
"""A word, a stop, or a letter of a script that puts no blanks between words."""
_SENTENCE = re.compile(r"\S(?:[^.!?]|[.!?](?! ))*[.!?]?")


class Verdict(NamedTuple):
    """Likeness of a definition to attacks.

    Attributes:
        weight: Beside that of other evidence: above 0 if it is more like an attack than like an honest definition.
        evidence: If that is worth naming, at the passage that is most like them.
    """

    weight: float
    evidence: tuple[Evidence, ...]


def classify(reading: Reading) -> Verdict:
    """Weighs the wording of a whole definition."""
    model = _model()
    texts = dict(reading.prose())
    known = {start: model.keys() & runs(text) for start, text in texts.items()}
    together = set[Run]().union(*known.values())
    least, most = _bounds(len(together))
    likeness = SCALE * compute_log_odds(model, together)
    if likeness > 0:  # nothing is taken off other evidence
        likeness = max(0.0, likeness - _doubt(len(together)))
    weight = min(most, max(least, likeness))
    if weight < WORTH_NAMING:
        return Verdict(weight, ())
    passage = max(known, key=lambda start: math.fsum(model[run] for run in known[start]))
    start, end = _most_like_attacks(model, texts[passage])
    return Verdict(weight, (reading.evidence("classifier", weight, passage + start, passage + end, REASON),))


def _most_like_attacks(model: Mapping[Run, float], text: str) -> tuple[int, int]:
    """Start and end of the sentence of a passage that weighs most."""
    sentences = [match.span() for match in _SENTENCE.finditer(text)]
    return max(sentences, key=lambda span: math.fsum(model.get(run, 0) for run in set(runs(text[slice(*span)]))))


def runs(text: str) -> Iterator[Run]:
    """All runs of words in one passage, in lower case; some more than once."""
    words = _WORD.findall(text)
    return chain(zip(words), pairwise(words), zip(words, repeat(""), words[2:]))


def compute_log_odds(model: Mapping[Run, float], known: Collection[Run]) -> float:
    """Log odds that a model gives to the runs that it knows."""
    return model[ALWAYS] + math.fsum(model[run] for run in known) * share(len(known))


def share(count: int) -> float:
    """Weight of each of so many known runs."""
    return 1 / math.sqrt(max(FEW_RUNS, count))


def _bounds(count: int) -> tuple[float, float]:
    """The weights that a text with so many known runs may have."""
    if count < TINY_RUNS:
        return 0.0, 0.0
    return (0.0 if count < SHORT_RUNS else LEAST), MOST


def _doubt(count: int) -> float:
    """Weight that a text with so many known runs needs beyond that of others: 0 to `DECISIVE`."""
    return DECISIVE * min(1.0, max(0, count - LONG_RUNS) / (LONGEST_RUNS - LONG_RUNS))


@cache
def _model() -> Mapping[Run, float]:
    """The weight of each run, above 0 if attacks have it more often."""
    lines = LEARNED.read_text(encoding="utf-8").splitlines()
    return {tuple(words.split(" ")): float(weight) for weight, words in (line.split("\t") for line in lines)}
