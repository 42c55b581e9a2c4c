"""Questions of agents that a waiting definition repeats, perhaps so as to be found for them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from smart_mcp_proxy.policy.scanner import Finding
from smart_mcp_proxy.policy.scanner.findings import EXCERPT_CHARS, escape_unsafe

QUESTIONS_LIMIT: Final = 1_000
"""The latest questions in the activity log that definitions are compared with."""
_LEAST_WORDS: Final = 5
"""Fewer words in a row are in many descriptions by chance."""
_WORD: Final = re.compile(r"\w+")


class AskedQuestions:
    """Questions that agents asked, to be looked for in definitions.

    No ranking over text tells a tool that repeats a question from one that answers it: of such twins of real tools
    91 % were found first. So a person is told before the definition is approved.

    Args:
        questions: As they were asked.
    """

    def __init__(self, questions: Iterable[str]) -> None:
        spoken = {_normalize_words(question): question for question in questions}
        self._questions = {words: text for words, text in spoken.items() if words.count(" ") > _LEAST_WORDS}

    def findings(self, definition: Mapping[str, Any]) -> tuple[Finding, ...]:
        """At most one finding for each text of a definition."""
        found = []
        for member in ("title", "description") if self._questions else ():
            text = definition.get(member)
            said = _normalize_words(text) if isinstance(text, str) else ""
            if words := next((words for words in self._questions if words in said), None):
                asked = escape_unsafe(self._questions[words])[:EXCERPT_CHARS]
                reason = "It repeats, word for word, a question that an agent asked, and is found first for it."
                found.append(Finding("repeated_question", "note", f"$.{member}", reason, asked))
        return tuple(found)


def _normalize_words(text: str) -> str:
    """The words of a text in lower case, with a space around each."""
    return f" {' '.join(_WORD.findall(text.lower()))} "
