"""A page for each error code: status and fault from the code, meaning and remedy from docs/words/errors.toml."""

import tomllib
from pathlib import Path

from pages.error_codes import Fact, codes

WORDS = Path(__file__).parents[2] / "docs" / "words" / "errors.toml"
NOTE = "<!-- Written by scripts/regenerate_docs.py from the code's errors and docs/words/errors.toml. -->"


def error_pages() -> dict[str, str]:
    """The text of every page by its path below `docs`."""
    known, words = codes(), _words()
    if strange := known.keys() ^ words.keys():
        raise SystemExit(f"docs/words/errors.toml and the codes of the package differ: {', '.join(sorted(strange))}")
    return {f"errors/{code}.md": _page(code, known[code], words[code]) for code in known}


def error_index() -> str:
    """A table of all codes with the first sentence of each."""
    lines = ["| code | meaning |", "|---|---|"]
    for code, words in sorted(_words().items()):
        sentence = " ".join(words["means"].split()).partition(". ")[0].rstrip(".")
        lines.append(f"| [`{code}`]({code}.md) | {sentence}. |")
    return "\n".join(lines)


def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads(WORDS.read_text(encoding="utf-8"))


def _page(code: str, facts: list[Fact], words: dict[str, str]) -> str:
    parts = [f"# {code}", NOTE, words["means"].strip(), "## What to do", words["do"].strip()]
    if facts:
        table = ["| HTTP | JSON-RPC | whose fault |", "|---|---|---|"]
        table += [f"| {fact.http} | {fact.jsonrpc} | {fact.fault} |" for fact in facts]
        parts += ["## On the wire", "\n".join(table)]
    parts.append("[All codes](index.md)")
    return "\n\n".join(parts) + "\n"
