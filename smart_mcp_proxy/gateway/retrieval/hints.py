"""Hints in search answers: the next step for the agent."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from smart_mcp_proxy.models import ServerState
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.search.naming import space_words
from smart_mcp_proxy.search.text import QUERY_LIMIT_CHARS

PARTLY_LEFT_OUT = "partly_left_out"
"""State of a server in `not_covered` some of whose tools cannot be used."""
PARTLY_QUARANTINED = "partly_quarantined"
"""State of a server in `not_covered` some of whose tools wait for the user."""

_ECHO_LIMIT_CHARS = 500
_QUOTE_LIMIT_CHARS = 80
"""Characters of a query that an answer repeats: the caller knows what the query says."""

_WAITING = (
    "What is named in waiting fits and cannot be called: its definition has changed since the user approved it. "
    "Ask the user to look at it, with the command in approve, before you take another tool in its place."
)
_NAMES = 5
"""Names that a hint repeats."""
_FOR_THE_USER = frozenset({ServerState.QUARANTINED, PARTLY_QUARANTINED})
_OUT_OF_USE: Mapping[str, str] = {
    ServerState.DISABLED: "is disabled by the user, so its tools are not searched",
    ServerState.QUARANTINED: "waits for the user's approval, so its tools are not searched",
    ServerState.ERROR: "has failed (state error): tools of its last session are all that is searched",
    ServerState.NEEDS_ENV: "lacks a variable that its entry names (state needs_env): the user has to set it",
    ServerState.NEEDS_AUTH: "wants a sign-in (state needs_auth)",
}
"""The rest of a sentence about a server in a state that does not end by itself, or not soon."""
_FAILED = frozenset({ServerState.ERROR, ServerState.NEEDS_ENV})
_ON_ITS_WAY = frozenset({ServerState.CONNECTING, "unlisted"})
_PASSING = _ON_ITS_WAY | {ServerState.DISCONNECTED, ServerState.AUTHENTICATING}
"""States that end by themselves: whatever is asked for, the right tool may come with one of these servers."""


def shorten_text(text: str, limit_chars: int = _ECHO_LIMIT_CHARS) -> str:
    """The beginning of a text, with three dots where it goes on."""
    return text if len(text) <= limit_chars else f"{text[:limit_chars]}..."


def find_named_servers(queries: Iterable[str], servers: Iterable[str]) -> set[str]:
    """The servers whose names stand in a query, whatever the case and the separators between their words."""
    asked = [f" {space_words(query[:QUERY_LIMIT_CHARS])} " for query in queries]
    return {name for name in servers if any(f" {space_words(name)} " in query for query in asked)}


def select_uncovered(
    rows: Iterable[Mapping[str, str]], about: Collection[str], retried: Collection[str] = (), *, is_closed: bool
) -> list[Mapping[str, str]]:
    """The rows of `not_covered` that concern a question; all where it is about no server in particular.

    Args:
        rows: A row for each server that is not covered.
        about: The servers that the question names, and those of the tools found; empty where there are neither.
        retried: Servers that have failed and are tried again: those count as failed.
        is_closed: Whether no others were searched.
    """
    if not about:
        return list(rows)
    open_rows = [row for row in rows if not is_closed and _is_passing(row) and row["server"] not in retried]
    return [row for row in rows if row["server"] in about or row in open_rows]


def _is_passing(row: Mapping[str, str]) -> bool:
    return row["state"] in _PASSING and "reason" not in row


def build_answer_hint(
    answer: Mapping[str, Any],
    queries: Iterable[str],
    unanswered: Sequence[str],
    *,
    was_capped: bool,
    detail: str,
    knows_tools: bool,
    named: Collection[str] = (),
    kept_back: str = "",
) -> str:
    """Build the hint of a search answer: one to six sentences.

    Args:
        answer: All else that is sent.
        queries: All that was asked.
        unanswered: Those of them that nothing fits.
        was_capped: Whether tools were left out for their size.
        detail: As asked for.
        knows_tools: Whether there are any tools at all.
        named: The servers that alone were asked for.
        kept_back: Why a tool that was asked for by name is not found, as a sentence.
    """
    hint = f"{kept_back} " if kept_back else ""
    if "waiting" in answer:
        hint += f"{_WAITING} " if answer["tools"] else _WAITING
    if answer["tools"] or "waiting" not in answer:
        hint += _hint(answer, was_capped=was_capped, detail=detail, knows_tools=knows_tools)
    if answer["tools"] and unanswered:
        hint += f" Nothing fits {', '.join(repr(shorten_text(query, _QUOTE_LIMIT_CHARS)) for query in unanswered)}."
    longest = max(map(len, queries))
    if longest > QUERY_LIMIT_CHARS:
        hint += f" Only the first {QUERY_LIMIT_CHARS:,} of {longest:,} characters of the query were read."
    return hint + _build_named_hint(answer["not_covered"], named) + _wait_hint(answer["not_covered"])


def _build_named_hint(not_covered: Sequence[Mapping[str, str]], named: Collection[str]) -> str:
    """Hint about servers asked for by name that need somebody's action first."""
    kept = [row for row in not_covered if row["server"] in named and row["state"] in _OUT_OF_USE]
    return "".join(f" Server '{row['server']}' {_OUT_OF_USE[row['state']]}." for row in kept)


def _hint(answer: Mapping[str, Any], *, was_capped: bool, detail: str, knows_tools: bool) -> str:
    if not answer["total"]:
        return _empty_hint(answer["not_covered"], knows_tools=knows_tools)
    if not answer["tools"] and answer.get("found"):
        return "No tool fits."
    if not answer["tools"]:
        return "Nothing fits. Say it in other words, or search for one step of the task at a time."
    hint = "Call a tool with the one named in call_with, by name."
    if answer.get("confidence") == "low":
        hint = f"It is not certain that one of these fits: compare before you call, or search in other words. {hint}"
    if new := answer["newly_registered"]:
        names = f"{', '.join(new[:_NAMES])}{' and more' if len(new) > _NAMES else ''}"
        hint += f" Now in your own list of tools as well, to be called directly: {names}."
    if detail == "compact":
        hint += " describe_tool has the full schema."
    if answer["more"]:
        hint += " Those in more fit less well; describe_tool says how to call them."
    if was_capped:
        hint += " More tools fit than could be sent; ask more precisely."
    if any(tool["stale"] for tool in answer["tools"]):
        hint += " Stale tools come from the last session; their server has not confirmed them yet."
    return hint


def _empty_hint(not_covered: Sequence[Mapping[str, str]], *, knows_tools: bool) -> str:
    """Why there was nothing to search."""
    if knows_tools:
        hint = "No tools match these filters."
        return hint + (" not_covered names servers whose tools may be missing." if not_covered else "")
    if not_covered and {row["state"] for row in not_covered} <= _FAILED:
        return "No server can be used (see not_covered). The user sees why with: mcpproxy server list"
    return "No tools are known yet." if not_covered else "No server offers any tools."


def _wait_hint(not_covered: Sequence[Mapping[str, str]]) -> str:
    """Hint while servers connect: an early search would take the next best tool."""
    states = {row["state"] for row in not_covered}
    hint = ""
    if any(row["state"] in _ON_ITS_WAY and "reason" not in row for row in not_covered):
        hint = " Some servers are still connecting (see not_covered): if the right tool is missing, search again soon."
    elif ServerState.DISCONNECTED in states:
        hint = " Some servers are not connected yet (see not_covered): if the right tool is missing, search again soon."
    if states & _FOR_THE_USER:
        hint += " Quarantined tools wait for the user, who sees them with: mcpproxy approve --list"
    return hint


def language_hint(language: str | None) -> str:
    """Hint where a query is in another language than the definitions, as a further sentence; else empty."""
    return f" The definitions are in {language}: search in that language." if language else ""


def sign_in_hint(not_covered: Sequence[Mapping[str, str]], open_to_people: Collection[str]) -> str:
    """Hint about servers that let nobody in, as a further sentence for each kind; empty if there are none.

    Args:
        not_covered: As in the answer.
        open_to_people: The servers that a user can sign in to.
    """
    hint = ""
    shut_out = [row["server"] for row in not_covered if row["state"] == ServerState.NEEDS_AUTH]
    if signed_out := [name for name in shut_out if name in open_to_people]:
        hint += f" {', '.join(signed_out)}: the user has to sign in: mcpproxy server login {shell_word(signed_out[0])}"
    if refused := [name for name in shut_out if name not in open_to_people]:
        hint += f" {', '.join(refused)}: refuses the configured credentials; the user sees why with: mcpproxy doctor"
    return hint
