"""Every sentence with a figure in README and the first hour's page names, here, what the figure comes from."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documents import README, ROOT, name_of

from smart_mcp_proxy.cli.commands.servers.first_call import WAIT_S
from smart_mcp_proxy.client_files.bounds import BOUNDS
from smart_mcp_proxy.client_files.clients import KNOWN_CLIENTS
from smart_mcp_proxy.gateway.admin.page_sessions import LINK_S

START = ROOT / "docs" / "start.md"
WORDS = "two|three|four|five|six|seven|eight|nine|ten|fourteen|fifteen|twenty|half|quarter|third|thousands?|millions?"
FIGURE = re.compile(rf"\d|\b({WORDS})\b", re.IGNORECASE)
NOT_PROSE = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+")
"""Code, addresses and the ends of links: their digits are names."""
MEASURED = re.compile(r"\d (s|ms|MB|%)(?!\w)|\d tokens")
"""What a line of a block has to hold to be a figure."""
GENERATED = re.compile(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", re.DOTALL)
WAYS = "python scripts/first_ways.py"
SEARCH = "make bench-search"
BENCHMARKS = "docs/benchmarks.md"

FIGURES: dict[Path, dict[str, str]] = {
    README: {
        "the few tools that fit out of thousands": SEARCH,
        "The five servers of `make run` cost an agent 7,500 tokens": "make run",
        "six tools, about 1,400 tokens": "tests/interaction/golden/test_tools_list.py",
        "installs the gateway into `.venv` (310 MB with uv)": "make run",
        "Python 3.11 or newer": "pyproject.toml",
        "**Six tools** whose list never changes": "tests/interaction/golden/test_tools_list.py",
        "fifteen agent libraries": "tests/clients/libraries/table.py",
        "2025-11-25 and before and 2026-07-28": "tests/interaction/requirements.toml",
        "It adds 0.1 ms to a call": "python scripts/bench_calls.py",
        "| patterns, no ranking": "docs/comparison.md",
        "between September and November 2026": "docs/comparison.md",
        "Of 786 queries over 4,975 public tools the right one is among the first five in 71 %, by words alone in 68 %, "
        "with an embedder in 73 %": SEARCH,
        "a quarter of them with low confidence": BENCHMARKS,
    },
    START: {
        "Python 3.11 or newer": "pyproject.toml",
        "about a minute, 280 MB": "make run",
        "installed in 41 s": "make run",
        "7,513 tokens; this answer about 572 (92.4% less": "make run",
        "That took 84 s": "make run",
        "works once, in the next five minutes": "smart_mcp_proxy/gateway/admin/page_sessions.py",
        "3,778 tokens; this answer about 353 (90.7% less": "mcpproxy demo",
        "206 MB of cache": "uvx --from .",
        "Two commands, for twenty-five [clients]": "smart_mcp_proxy/client_files/clients.py",
        "larger than 50 MB (YAML and TOML 1 MB), or that holds more than a million members (YAML 20,000 values": (
            "smart_mcp_proxy/client_files/bounds.py"
        ),
        "more than 1,000 servers, and one that was not begun after ten seconds": (
            "smart_mcp_proxy/client_files/bounds.py"
        ),
        "Waiting up to 300 s": "smart_mcp_proxy/cli/commands/servers/first_call.py",
        "On a machine with two cores": WAYS,
        "| A fresh clone |": WAYS,
        "| Four clients with 19 entries |": WAYS,
        "| A team's container": WAYS,
        "three clients with 12 servers took 18 steps, five of them edits of JSON (commit `62836cc`)": (
            "git show 62836cc"
        ),
        "At commit `94e5bc46` of 27 November `make run` was silent for 57 s": "git show 94e5bc46",
    },
}
"""By page: words around each figure, and the command that yields it or the file that has it."""


def split_sentences(text: str) -> list[str]:
    """The sentences, tables and lines of blocks of a page that hold a figure."""
    found = []
    for part in re.split(r"(^```.*?^```)", GENERATED.sub("", text), flags=re.DOTALL | re.MULTILINE):
        if part.startswith("```"):
            found += [line for line in part.splitlines() if MEASURED.search(line)]
            continue
        for paragraph in part.split("\n\n"):
            if paragraph.lstrip().startswith("|"):
                sentences = [paragraph]
            else:
                items = re.split(r"\n(?=[-\d])", paragraph)
                sentences = [each for item in items for each in re.split(r"(?<=[.:;!?]) ", " ".join(item.split()))]
            found += [each for each in sentences if FIGURE.search(NOT_PROSE.sub("", each))]
    return [each for each in found if not each.startswith("#")]


def find_untraced(text: str, rows: dict[str, str]) -> list[str]:
    """The sentences whose figures no row has."""
    return [each for each in split_sentences(text) if not any(words in each for words in rows)]


@pytest.mark.parametrize("page", FIGURES, ids=name_of)
def test_every_figure_is_traced_to_what_yields_it(page: Path) -> None:
    """A new figure, or one that became another, needs a row; a row whose figure has gone goes as well."""
    rows, text = FIGURES[page], page.read_text("utf-8")
    sentences = split_sentences(text)
    assert find_untraced(text, rows) == []
    assert [words for words in rows if not any(words in each for each in sentences)] == []


@pytest.mark.parametrize("source", sorted({source for rows in FIGURES.values() for source in rows.values()}))
def test_what_yields_a_figure_is_there(source: str) -> None:
    """A file, a target of make, a script, or a command of ours."""
    program, *words = source.split()
    if program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    elif program not in ("mcpproxy", "uvx", "git"):
        assert (ROOT / (words[0] if program == "python" else program)).is_file()


TOOLS_LIST = ROOT / "tests" / "interaction" / "golden" / "tools_list.handshake.json"
LIBRARIES = ROOT / "tests" / "clients" / "libraries" / "table.py"
STATED: dict[str, Callable[[], Any]] = {
    "six tools, about 1,400 tokens": lambda: (
        len((listing := json.loads(TOOLS_LIST.read_text("utf-8")))["tools"]),
        round(len(json.dumps(listing, ensure_ascii=False, separators=(",", ":")).encode()) / 4, -2),
    ),
    "fifteen agent libraries": lambda: len(re.findall(r"^ {4}Library\(", LIBRARIES.read_text("utf-8"), re.MULTILINE)),
    "twenty-five [clients]": lambda: len(KNOWN_CLIENTS),
    "in the next five minutes": lambda: LINK_S / 60,
    "up to 300 s": lambda: WAIT_S,
    "50 MB (YAML and TOML 1 MB)": lambda: [BOUNDS.size_bytes[each] >> 20 for each in ("json", "yaml", "toml")],
    "a million members (YAML 20,000 values": lambda: BOUNDS.values,
    "1,000 servers, and one that was not begun after ten seconds": lambda: (BOUNDS.servers, BOUNDS.time_s),
}
VALUES: tuple[Any, ...] = (*((6, 1_400), 15, 25, 5, 300, [50, 1, 1], {"json": 1_000_000, "yaml": 20_000}, (1_000, 10)),)


@pytest.mark.parametrize(("words", "value"), [*zip(STATED, VALUES, strict=True)])
def test_a_figure_of_the_code_is_that_of_the_code(words: str, value: object) -> None:
    """The pages say it in words; this is the number that they mean."""
    assert words in README.read_text("utf-8") + START.read_text("utf-8")
    assert STATED[words]() == value


@pytest.mark.parametrize("column", ["72.6 %", "70.6 %", "68.4 %"])
def test_the_shares_of_the_right_tool_are_those_of_the_benchmarks(column: str) -> None:
    """README has them without their decimals."""
    assert column in (ROOT / BENCHMARKS).read_text("utf-8")
    assert f"{float(column.split(maxsplit=1)[0]):.0f} %" in README.read_text("utf-8")


def test_a_figure_without_a_source_is_seen() -> None:
    """The measure itself."""
    rows = {"about 5 ms": "make bench"}
    assert find_untraced("It takes about 5 ms. It saves 90 % of them.", rows) == ["It saves 90 % of them."]
    assert find_untraced("See `x86` and [this](page-2.md).\n\n```text\nwait 3 s\nport 80\n```\n", rows) == ["wait 3 s"]
