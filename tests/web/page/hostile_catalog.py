"""Definitions of a server that wants to run something, hide something or be too much."""

from typing import Any

from page_gateway import tool

__all__ = ["HIDDEN", "MARKUP", "hostile", "many"]

MARKUP = '"><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'"><svg onload=alert(1)>'
HIDDEN = (
    "plain\u202egnp.exe\u2066x\u2069 zero\u200bwidth \ufeff tag"
    + "".join(chr(0xE0000 + ord(char)) for char in "hide!")
    + " end\x1b[31m"
)
TEMPLATE = "{{ 7919*7907 }} {% raw %} ${7919*7907} #{7919*7907}"
LONG = "word " * 200_000
"""A megabyte."""


def hostile() -> list[dict[str, Any]]:
    """A list of them; each of the texts stands wherever a text may."""
    texts = {"markup": MARKUP, "hidden": HIDDEN, "template": TEMPLATE, "long": LONG}
    found = []
    for name, text in texts.items():
        schema = {
            "type": "object",
            "properties": {
                text[:300]: {"type": "string", "description": text, "default": text[:300]},
                "choice": {"enum": [text[:300], {"a": text[:300]}], "description": text},
                "</textarea><script>": {"type": "array", "default": [text[:300]]},
            },
            "required": [text[:300]],
        }
        annotations = {"title": text[:1_000], "readOnlyHint": name == "markup"}
        found.append(tool(name, text, title=text[:1_000], inputSchema=schema, annotations=annotations))
    found.append(tool('<b id="x">bold</b>', "Its name is markup."))
    found.append(
        tool("odd", "Odd schema.", inputSchema={"type": "object", "properties": {"x": True, "y": {"enum": []}}})
    )
    return found


def many(count: int, description: str = "Does a thing.") -> list[dict[str, Any]]:
    """A list of many tools, every thousandth with a description of a megabyte."""
    return [
        tool(f"tool_{number:05}", f"{description} {number} {LONG if number % 1_000 == 0 else ''}")
        for number in range(count)
    ]
