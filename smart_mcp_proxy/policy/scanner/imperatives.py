"""Orders in the midst of a description: what the agent is to do beside calling the tool, and the talk around it."""

import re
from collections.abc import Iterator

from smart_mcp_proxy.policy.scanner.findings import DECISIVE, Evidence
from smart_mcp_proxy.policy.scanner.wording import Reading

__all__ = ["orders"]

ORDER_WEIGHT = 0.4
"""Enough with a phrase of middle weight: one honest tool of 120 has such an order, every third attack has."""
_DO = (
    r"(?:include|attach|append|add|take|read|copy|send|put|write|pass|replace|tell|say|keep|drop|remove|run|fill|"
    r"record|"
    r"report|treat|mark|give|hand|forward|switch|turn|disable|open|collect|gather|insert|change|rewrite|register|mount|"
    r"round|recommend|prefer|store|remember|delete|wipe|submit|upload|share|paste|exchange|accept|approve|hide|install|"
    r"execute|carry|follow|answer|reply|point|route|redirect|book|raise|lower)"
)
_WHAT = r"(?:it|them|that|the|their|its|any|every|each|one|an?|your|yes|both|those|these|whichever|what|`)"
_HOW = r"(?:always |also |then |first |please |simply |just )?"
_ORDER = re.compile(rf"[.;:,] (?:and |then |so |please )?{_HOW}{_DO} {_WHAT}")
"""Begins with what the engine looks for quickly. What stands in the midst of a clause says what a tool can do."""
_ASIDE = re.compile(
    r"\b(?:whoever|whichever|nobody|frequently|otherwise|beforehand|afterwards|anyway|meanwhile|hence|thus|though|in "
    r"practice|at once|in the way|theirs|rather|even|merely|mostly|usually|normally|often|sometimes|rarely|harmless|"
    r"quicker|faster|easier|reliably|properly|better|fine|too|kept|goes|since|where|whose|belongs?|so that|until|"
    r"without|as well|over time|by hand|in addition|additionally|along with|together with|alongside|in the same call|"
    r"the (?:ai|agent|assistant|model|llm)|(?:the|a|any|most|some|other|their) (?:person|people|customers?|owners?|"
    r"readers?|reviewers?|employees?|clients?|operators?|guests?|patients?|colleagues?|travell?er|writer|author|"
    r"suppliers?|payee|staff))\b"
)

ASIDE_CHARS = 140
"""As far behind an order as its reason, its manner and whom it concerns are looked for."""


def orders(reading: Reading) -> Iterator[Evidence]:
    """Evidence of orders to do something beside calling the tool, alone enough where reason or manner are named."""
    text = reading.text
    for match in _ORDER.finditer(text):
        start, end = match.span()
        line = text.find("\n", end)
        stop = min(end + ASIDE_CHARS, line if line >= 0 else len(text))
        aside = _ASIDE.search(text, end, stop)
        if aside is None:
            yield reading.evidence("order", ORDER_WEIGHT, start, end, "It orders the agent to do something else.")
        else:
            reason = "It orders the agent to do something else, and says why, with whom or how."
            yield reading.evidence("order", DECISIVE, start, aside.end(), reason)
