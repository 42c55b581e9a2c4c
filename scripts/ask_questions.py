"""Asks plain questions of a catalog of published servers, and says which answers come first.

TOOLS: JSON lines with server, name, description, input_schema, as `make atlas` writes them; several files are one
catalog, of tools with one name the first counts. Questions none of whose tools is in the catalog are left out. Of the
half that is kept from tuning only sums are printed.
"""

import argparse
import json
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.search_data import name_of, read_rows

from smart_mcp_proxy.evaluation.files import read_tools
from smart_mcp_proxy.evaluation.pool import pool_of_tools
from smart_mcp_proxy.gateway.engines import lexical_engine
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.settings import Settings

QUESTIONS = Path(__file__).parent.parent / "tests" / "atlas" / "questions.toml"
SHOWN = 5
"""Tools in an answer."""
NAME_LIMIT = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=Path, nargs="+")
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    arguments = parser.parse_args()
    rows = {name_of(row): row for path in reversed(arguments.tools) for row in read_rows(path)}
    index, names = build_index(list(rows.values()))
    print(f"{len(names)} tools of {len({name.partition(':')[0] for name in names.values()})} servers")
    for part, asked in tomllib.loads(arguments.questions.read_text(encoding="utf-8")).items():
        answers = judge(index, names, asked)
        print(f"{part}: {sum_up(answers)}")
        for question, answer in answers.items() if part == "tune" else ():
            if not answer["is_right"]:
                print(f"  {question}\n    {answer['found']}")


def build_index(rows: Sequence[Mapping[str, Any]]) -> tuple[SearchIndex, dict[int, str]]:
    """Index of the tools, ranked by words, and their names by id."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for row in rows:
            kept = {name: row[name] for name in ("server", "name", "description", "input_schema") if row.get(name)}
            file.write(json.dumps(kept) + "\n")
        file.flush()
        pool = pool_of_tools(read_tools(Path(file.name)), NAME_LIMIT)
    index = SearchIndex(lexical_engine(Settings()))
    index.update(pool.documents())
    return index, {record.id: str(record.key) for record in pool.records}


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
