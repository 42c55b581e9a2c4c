"""Every refusal there is: what it says, who can lift it, and what it leaves unsaid."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "smart_mcp_proxy"
KINDS = {"QuarantinedError", "RateLimitedError", "RefusedError", "ShuttingDownError", "UnauthorizedError"}

LIFTED_BY = {
    "user": re.compile(r"\b(?:[Tt]he|[Ii]ts) user\b|_ONLY_THE_USER"),
    "operator": re.compile(r"\boperator\b|MCPPROXY_[A-Z]|runs the gateway|data directory"),
    "caller": re.compile(
        r"\b(?:Use|Read|Look|Send|Split|Run|Unsubscribe|Leave|Add|Call|Try|Wait|Ask by url|Ask again)\b|"
        r"decision\.hint|error\.hint"
    ),
    "nobody": re.compile(r"Nothing lifts this"),
}
"""Who can lift a refusal, and the words of a hint that say so."""

REFUSALS = {
    "gateway/agent.py:_shutting_down": "caller",
    "gateway/brokering.py:_require": "user",
    "gateway/calls.py:_admit": "caller",
    "gateway/calls.py:_definition_changed": "caller",
    "gateway/clients.py:_refused": "caller",
    "gateway/gates.py:_full": "caller",
    "gateway/gates.py:_too_fast_a_caller": "operator",
    "gateway/gates.py:_too_fast_for_server": "user",
    "gateway/gates.py:_wait": "caller",
    "gateway/inputs.py:_refused": "nobody",
    "gateway/refusals.py:content_changed": "caller",
    "gateway/refusals.py:content_differs_here": "user",
    "gateway/refusals.py:content_unlisted": "user",
    "gateway/refusals.py:content_withheld": "user",
    "gateway/refusals.py:server_quarantined": "user",
    "gateway/refusals.py:tool_differs_here": "user",
    "gateway/refusals.py:tool_withheld": "user",
    "gateway/sandbox/run.py:_too_many_calls": "operator",
    "gateway/sandbox/sandbox.py:_take_slot": "operator",
    "gateway/subscriptions.py:_too_many": "caller",
    "gateway/tools/code_execution.py:_request": "caller",
    "gateway/visible.py:_refuse_access": "operator",
    "gateway/visible.py:_refuse_kept_back": "user",
    "proxying/perform.py:_perform_batch": "caller",
    "servers/edit_servers.py:_guarded": "user",
    "servers/edit_servers.py:_refuse_own_keys": "caller",
    "servers/edit_servers.py:_require": "operator",
    "servers/edit_servers.py:approve_server": "user",
    "upstream/own.py:_new_place": "user",
    "web/broker/app.py:_admitted": "caller",
    "web/broker/app.py:_place": "operator",
    "web/refusals.py:refusal_of": "operator",
    "web/rest/doors.py:admit": "operator",
    "web/sign_in_bounds.py:_count": "caller",
}
"""Where each is made, and who can lift it."""

WITHHELD = re.compile(
    r"description|title|schema|definition|annotations|arguments\b(?!\.servers)|\btext\b|params|body|value"
)
"""What a message must not be made of."""


class Refusal(NamedTuple):
    """One place that refuses.

    Attributes:
        message: Its text, with the expressions in it.
        hint: Likewise.
        keywords: What it is given besides.
        inserted: The expressions in both.
    """

    message: str
    hint: str
    keywords: frozenset[str]
    inserted: tuple[str, ...]


def written(node: ast.expr | None) -> tuple[str, list[str]]:
    """The text of an expression, and the expressions that are put into it."""
    match node:
        case None:
            return "", []
        case ast.Constant(value=str(text)):
            return text, []
        case ast.JoinedStr(values=parts):
            both = [written(part) for part in parts]
            return "".join(text for text, _ in both), [each for _, inner in both for each in inner]
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            (first, one), (second, other) = written(left), written(right)
            return first + second, one + other
        case ast.FormattedValue(value=value):
            return ast.unparse(value), [ast.unparse(value)]
        case _:
            return ast.unparse(node), [ast.unparse(node)]


def refusals() -> dict[str, list[Refusal]]:
    """Every refusal that the package makes, by where."""
    found: dict[str, list[Refusal]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for function in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
                    given = {word.arg: word.value for word in node.keywords if word.arg}
                    message, said = written(node.args[0])
                    hint, hinted = written(given.get("hint"))
                    place = f"{file.relative_to(PACKAGE)}:{function.name}"
                    refusal = Refusal(message, hint, frozenset(given), (*said, *hinted))
                    found.setdefault(place, []).append(refusal)
    return found


FOUND = refusals()


def test_the_table_has_every_refusal_there_is() -> None:
    """Who adds one says who can lift it."""
    assert FOUND.keys() == REFUSALS.keys()


@pytest.mark.parametrize("place", FOUND)
def test_a_refusal_says_what_and_who_can_lift_it(place: str) -> None:
    """A sentence, and a hint in whose words somebody is named or something is to be done."""
    hints = " ".join(refusal.hint for refusal in FOUND[place])
    assert LIFTED_BY[REFUSALS[place]].search(hints), hints
    for refusal in FOUND[place]:
        assert refusal.message and refusal.hint, refusal
        assert any(words.search(refusal.hint) for words in LIFTED_BY.values()), refusal.hint


@pytest.mark.parametrize("place", FOUND)
def test_a_refusal_is_not_made_of_what_it_refuses(place: str) -> None:
    """Names and numbers go into it; nothing of a definition, of arguments or of a body does."""
    for refusal in FOUND[place]:
        assert not [each for each in refusal.inserted if WITHHELD.search(each)], refusal


def test_what_is_refused_for_a_while_says_for_how_long() -> None:
    """All that are about too much at once carry `retry_after_s`."""
    for place in REFUSALS:
        if place.startswith("gateway/gates.py"):
            assert all("retry_after_s" in refusal.keywords for refusal in FOUND[place]), place
