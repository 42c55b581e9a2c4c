"""Asks plain questions of a catalog of published servers, as the gateway ranks by default, and says what comes first.

TOOLS: JSON lines with server, name, description, input_schema, as `make atlas` writes them; several files are one
catalog, of tools with one name the first counts. Questions none of whose tools is in the catalog are left out. Of the
half that is kept from tuning only sums are printed. With --peers others are asked the same, those that tools answer.
"""

import argparse
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.search_candidates import CANDIDATES, WITH_MINILM
from bench.search_data import name_of, read_rows
from bench_answers import build_index

from smart_mcp_proxy.search import SearchIndex

QUESTIONS = Path(__file__).parent.parent / "tests" / "atlas" / "questions.toml"
SHOWN = 5
"""Tools in an answer."""
OTHERS = (WITH_MINILM, "ours, product path", "FastMCP BM25SearchTransform", "SQLite FTS5, porter")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=Path, nargs="+")
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--peers", action="store_true", help="ask other engines, too")
    arguments = parser.parse_args()
    rows = {name_of(row): row for path in reversed(arguments.tools) for row in read_rows(path)}
    index, records = build_index([{"description": "", **row} for row in rows.values()])
    names = {id: str(record.key) for id, record in records.items()}
    print(f"{len(names)} tools of {len({name.partition(':')[0] for name in names.values()})} servers")
    questions = tomllib.loads(arguments.questions.read_text(encoding="utf-8"))
    for part, asked in questions.items():
        answers = judge(index, names, asked)
        print(f"{part}: {sum_up(answers)}")
        for question, answer in answers.items() if part == "tune" else ():
            if not answer["is_right"]:
                print(f"  {question}\n    {answer['found']}")
    for name in OTHERS if arguments.peers else ():
        find = CANDIDATES[name]([{"description": "", **row} for row in rows.values()]).find
        for part, asked in questions.items():
            places = place_right(find, list(rows), asked)
            first, shown = places.count(1), len(places) - places.count(0)
            print(f"{name}, {part}: {len(places)} questions, right tool first {first}, among {SHOWN} {shown}")


def place_right(
    find: Callable[[str, int], Sequence[int]], names: Sequence[str], asked: Mapping[str, Sequence[str]]
) -> list[int]:
    """The place of the first right tool for each question that has one, 0 where it is not found."""
    places = []
    for question, right in asked.items():
        if wanted := set(right).intersection(names):
            found = [names[row] for row in find(question, SHOWN)]
            places.append(next((place for place, name in enumerate(found, 1) if name in wanted), 0))
    return places


def judge(
    index: SearchIndex, names: Mapping[int, str], asked: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Any]]:
    """The answer to each question: what was found, whether that is sure, and the place of the first right tool."""
    known, answers = set(names.values()), {}
    for question, right in asked.items():
        wanted = known.intersection(right)
        if right and not wanted:
            continue
        result = index.search(question, limit=SHOWN)
        found = [names[hit.id] for hit in result.hits]
        place = next((place for place, name in enumerate(found, 1) if name in wanted), 0)
        is_open = not found or not result.is_sure
        answers[question] = {
            "found": found, "is_sure": result.is_sure, "place": place, "has_answer": bool(right),
            "is_right": place == 1 if right else is_open,
        }  # fmt: skip
    return answers


def sum_up(answers: Mapping[str, Mapping[str, Any]]) -> str:
    answered = [answer for answer in answers.values() if answer["has_answer"]]
    others = [answer for answer in answers.values() if not answer["has_answer"]]
    first = sum(answer["place"] == 1 for answer in answered)
    shown = sum(answer["place"] > 0 for answer in answered)
    told = sum(answer["is_right"] for answer in others)
    return (
        f"{len(answered)} questions, right tool first {first}, among {SHOWN} {shown}; "
        f"{len(others)} that nothing fits, {told} of them said so"
    )


if __name__ == "__main__":
    main()
