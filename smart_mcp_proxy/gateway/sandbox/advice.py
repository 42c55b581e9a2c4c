"""Advice on scripts without effect: nothing returned, nothing awaited, other language."""

import re
from collections.abc import Sequence
from typing import Final

from smart_mcp_proxy.gateway.sandbox.runtimes import Language

_RETURN: Final = r"\breturn\b"
_CALL: Final = r"\bcall_tools?\s*\("
_TAKEN: Final = r"\bawait\b|\.then\s*\(|\breturn\s+call_tools?\s*\(|=>\s*call_tools?\s*\("
"""Code that waits for a call, or passes its promise on."""
_LOOKS: Final[dict[Language, str]] = {
    "javascript": (
        r"(?m)^\s*(?:const|let|var)\s+[\w{\[]|=>|\bfunction\b\s*\w*\s*\(|\bawait\s+call_tools?\b|\bconsole\.\w+\(|"
        r"^\s*//|\breturn\b[^\n]*;\s*$"
    ),
    "python": (
        r"(?m)^\s*(?:def\s+\w+\(.*\):|(?:for|if|while|elif|try|else|with)\b.*:\s*$|import\s+\w+\s*$|"
        r"from\s+\w+\s+import\b)|\bprint\(|\b(?:None|True|False)\b|^\s*#"
    ),
}
_NAMES: Final[dict[Language, str]] = {"python": "Python", "javascript": "JavaScript"}


def advice_on_result(language: Language, code: str, *, is_null: bool) -> str:
    """Why a script that ended well may not have given what was wanted; empty where nothing points to it."""
    if language != "javascript":
        return ""
    words = []
    if is_null and not re.search(_RETURN, code):
        words.append("The script returned nothing: end it with return VALUE.")
    if re.search(_CALL, code) and not re.search(_TAKEN, code):
        words.append("A call is a promise: write await call_tool(name, args). One not awaited is cancelled at the end.")
    return " ".join(words)


def advice_on_failure(language: Language, code: str, served: Sequence[Language]) -> str:
    """Return the language that a failed script seems to be in; empty for the one it was sent as.

    Args:
        language: It was sent as.
        code: Its text.
        served: Languages that are run here.
    """
    other: Language = "python" if language == "javascript" else "javascript"
    if not re.search(_LOOKS[other], code) or re.search(_LOOKS[language], code):
        return ""
    look = f"This looks like {_NAMES[other]}"
    if other in served:
        return f"{look}: pass language={other}."
    return f"{look}, and only {_NAMES[language]} is run here: write it in {_NAMES[language]}."
