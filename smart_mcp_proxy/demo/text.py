"""Demo server `text`: counting, rewriting, searching and encoding text."""

import base64
import difflib
import hashlib
import re
import unicodedata
from typing import Any

from smart_mcp_proxy.demo.tool import Server, Tool, boolean, integer, items, string

__all__ = ["SERVER"]

MAX_TEXT_CHARS = 100_000
MAX_MATCHES = 100


def count_words(text: str) -> dict[str, Any]:
    """The size of a text."""
    return {"words": len(text.split()), "characters": len(text), "lines": len(text.splitlines())}


def slugify(text: str) -> str:
    """A text as part of a web address."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def diff_texts(before: str, after: str) -> str:
    """What changed between two texts."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
    return "\n".join(lines) or "The texts are equal."


def find_pattern(text: str, pattern: str, ignore_case: bool) -> dict[str, Any]:
    """Where a regular expression matches."""
    matches = list(_compiled(pattern, ignore_case).finditer(text))
    shown = [{"text": match.group(), "position": match.start()} for match in matches[:MAX_MATCHES]]
    return {"matches": shown, "total": len(matches)}


def replace_pattern(text: str, pattern: str, replacement: str, ignore_case: bool) -> dict[str, Any]:
    """A text with the matches of a regular expression replaced."""
    size = 0

    def expand(match: re.Match[str]) -> str:
        nonlocal size
        expanded = match.expand(replacement)
        size += len(expanded)
        if size > MAX_TEXT_CHARS:
            raise ValueError(f"The replacements have more than {MAX_TEXT_CHARS} characters together.")
        return expanded

    try:
        replaced, count = _compiled(pattern, ignore_case).subn(expand, text)
    except (re.error, IndexError) as exc:
        raise ValueError(f"'{replacement}' is not a valid replacement: {exc}.") from exc
    return {"text": replaced, "replacements": count}


def encode_base64(text: str) -> str:
    """The Base64 form of a text."""
    return base64.b64encode(text.encode("utf-8")).decode("ascii")


def decode_base64(encoded: str) -> str:
    """The text behind its Base64 form."""
    return base64.b64decode(encoded, validate=True).decode("utf-8")


def hash_text(text: str, algorithm: str) -> str:
    """A checksum of a text."""
    return hashlib.new(algorithm, text.encode("utf-8"), usedforsecurity=False).hexdigest()


def _compiled(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, RecursionError) as exc:
        raise ValueError(f"'{pattern}' is not a regular expression: {exc}.") from exc


def _text(description: str) -> dict[str, Any]:
    return string(description, maxLength=MAX_TEXT_CHARS)


_PATTERN = string("Python regular expression", minLength=1, maxLength=500)
_IGNORE_CASE = boolean("Match upper and lower case alike", default=False)

SERVER = Server(
    instructions="Count, compare, search, rewrite and encode text.",
    tools=(
        Tool(
            count_words,
            title="Count words",
            description="Count the words, characters and lines of a text.",
            parameters={"text": _text("The text")},
            output={"words": integer("Words"), "characters": integer("Characters"), "lines": integer("Lines")},
        ),
        Tool(
            slugify,
            title="Make a slug",
            description="Turn a title into a URL slug: lower-case ASCII words joined by hyphens.",
            parameters={"text": _text("The title")},
        ),
        Tool(
            diff_texts,
            title="Compare texts",
            description="Compare two versions of a text line by line and show the differences as a unified diff.",
            parameters={"before": _text("The old version"), "after": _text("The new version")},
        ),
        Tool(
            find_pattern,
            title="Find a pattern",
            description=f"Find all matches of a regular expression in a text; the first {MAX_MATCHES} are listed.",
            parameters={"text": _text("The text to search"), "pattern": _PATTERN, "ignore_case": _IGNORE_CASE},
            output={
                "matches": items(
                    "In order", {"text": string("What matched"), "position": integer("Offset in characters")}
                ),
                "total": integer("How many matches there are"),
            },
        ),
        Tool(
            replace_pattern,
            title="Replace a pattern",
            description="Search and replace in a text with a regular expression.",
            parameters={
                "text": _text("The text to change"),
                "pattern": _PATTERN,
                "replacement": string(r"What to put in place of each match; \1 is its first group", maxLength=1000),
                "ignore_case": _IGNORE_CASE,
            },
            output={"text": string("The changed text"), "replacements": integer("How many were made")},
        ),
        Tool(
            encode_base64,
            title="Encode Base64",
            description="Encode a text as Base64.",
            parameters={"text": _text("The text, encoded as UTF-8 first")},
        ),
        Tool(
            decode_base64,
            title="Decode Base64",
            description="Decode Base64 to the UTF-8 text in it.",
            parameters={"encoded": _text("Base64 with padding")},
        ),
        Tool(
            hash_text,
            title="Hash a text",
            description="Calculate the checksum (MD5, SHA-1, SHA-256 or SHA-512) of a text as hexadecimal digits.",
            parameters={
                "text": _text("The text, encoded as UTF-8 first"),
                "algorithm": string("Hash function", enum=["md5", "sha1", "sha256", "sha512"], default="sha256"),
            },
        ),
    ),
)
