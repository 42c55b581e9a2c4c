"""Tests of `make test` read no clock: a limit in seconds says something of the machine, and fails for a newcomer."""

import ast
from collections.abc import Iterator
from pathlib import Path

from syntax_trees import parsed

TESTS = Path(__file__).parent
CLOCKS = {
    *("time.monotonic", "time.perf_counter", "time.process_time", "time.thread_time", "time.time"),
    "asyncio.get_running_loop().time",
}
SLOW_TIERS = {"pytest.mark.long", "pytest.mark.soak", "pytest.mark.clients", "pytest.mark.agents"}


ALLOWED = {
    "interaction/test_clock_jumps.py",
    "interaction/test_routing_matrix.py",
    "interaction/test_signed_tokens.py",
    "interaction/test_agent_toolset.py",
    "upstream/oauth/test_auth_exchange.py",
}
"""Their tests wait by a clock, hand one in or make a time stamp of it; none compares it with a limit."""


def marks(node: ast.AST) -> set[str]:
    """Names of the marks inside an expression."""
    return {ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def is_slow_module(tree: ast.Module) -> bool:
    """Whether `pytestmark` takes a whole file out of `make test`."""
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark" and marks(node) & SLOW_TIERS
        for node in tree.body
    )


def timed_assertions(tree: ast.Module) -> Iterator[int]:
    """Lines of quick tests that read a clock in a file of tests."""
    if is_slow_module(tree):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
            continue
        if any(marks(decorator) & SLOW_TIERS for decorator in node.decorator_list):
            continue
        yield from (
            call.lineno for call in ast.walk(node) if isinstance(call, ast.Call) and ast.unparse(call.func) in CLOCKS
        )


def names_a_clock(file: Path) -> bool:
    """Whether a clock stands in its text, so that a closer look is worth its time."""
    text = file.read_text(encoding="utf-8")
    return any(clock in text for clock in CLOCKS)


def test_no_quick_test_asserts_on_seconds() -> None:
    """Work is counted, or measured in a test marked `long` that compares two sizes."""
    found = [
        f"{file.relative_to(TESTS)}:{line}"
        for file, tree in parsed(each for each in sorted(TESTS.rglob("test_*.py")) if names_a_clock(each)).items()
        for line in timed_assertions(tree)
        if file.relative_to(TESTS).as_posix() not in ALLOWED
    ]
    assert found == []


def test_the_rule_finds_what_it_forbids() -> None:
    """A clock in a quick test is found; the same in a slow one, or outside a test, is not."""
    quick = "import time\ndef test_a():\n    assert time.perf_counter() < 1\ndef wait():\n    time.monotonic()\n"
    assert list(timed_assertions(ast.parse(quick))) == [3]
    assert list(timed_assertions(ast.parse(quick.replace("def test_a", "@pytest.mark.long\ndef test_a")))) == []
    assert list(timed_assertions(ast.parse("pytestmark = [pytest.mark.anyio, pytest.mark.soak]\n" + quick))) == []
