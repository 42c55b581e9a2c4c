"""Files of tests in which a tier may have one: to import all of them takes each process ten seconds."""

import re

__all__ = ["may_have_tests"]

SINGLE = ("clients", "image")
"""Tiers whose tests carry the mark where they stand."""
_WHOLE = re.compile(r"^pytestmark = .*\bmark\.(?:long|soak|clients|image)\b", re.MULTILINE)
"""A file without a quick test."""


def may_have_tests(text: str, tier: str) -> bool:
    """Whether a file may have tests of a tier.

    Args:
        text: Of the file.
        tier: The expression of marks by which pytest selects; all files may have tests of one that is not known here.
    """
    words = tier.split()
    if words and words[0] in SINGLE:
        return f"mark.{words[0]}" in text
    return "not long" not in tier or _WHOLE.search(text) is None
