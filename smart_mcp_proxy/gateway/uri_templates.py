"""URIs of upstream resources as agents see them, and templates of URIs, matched without ever going back.

An agent meets the resource `file:///a b` of the server `docs` as `mcpproxy://docs/file%3A%2F%2F%2Fa%20b`. Of a template
only the text around its expressions is encoded, so that an agent fills it in as it would fill in the server's own.
"""

import re
from urllib.parse import quote, unquote

__all__ = ["canonical", "covers", "filled", "gateway_template", "gateway_uri", "match", "split_gateway_uri"]

SCHEME = "mcpproxy://"
"""Source: contract.md, Names."""
_EXPRESSION = re.compile(r"\{[^{}]*\}")
_PARTS = re.compile(r"(?:([^:/?#]*):)?(?://([^/?#]*))?([^?#]*)(\?[^#]*)?")
"""Scheme, host, path and query. Source: RFC 3986, appendix B."""


def gateway_uri(server: str, uri: str) -> str:
    """The URI under which agents reach a server's resource."""
    return f"{SCHEME}{quote(server, safe='')}/{quote(uri, safe='')}"


def gateway_template(server: str, template: str) -> str:
    """The template under which agents reach a server's resources; its expressions are the server's own."""
    parts, expressions = _EXPRESSION.split(template), _EXPRESSION.findall(template)
    encoded = [quote(part, safe="") for part in parts]
    return f"{SCHEME}{quote(server, safe='')}/{_joined(encoded, expressions)}"


def split_gateway_uri(uri: str) -> tuple[str, str] | None:
    """Server and upstream URI that an agent's URI names; None if it is not one of the gateway's."""
    if not uri.startswith(SCHEME):
        return None
    server, slash, rest = uri.removeprefix(SCHEME).partition("/")
    return (unquote(server), unquote(rest)) if server and slash and rest else None


def match(template: str, uri: str) -> tuple[str, ...] | None:
    """What stands in `uri` for each expression of `template`; None if it does not fit.

    Each expression stands for as little text as lets the rest fit. That takes time in proportion to the length of
    both, whatever a server lists.
    """
    first, *others = _EXPRESSION.split(template)
    if not others:
        return () if uri == template else None
    last = others.pop()
    end = len(uri) - len(last)
    if not uri.startswith(first) or not uri.endswith(last) or end < len(first):
        return None
    values, place = [], len(first)
    for literal in others:
        found = uri.find(literal, place, end)
        if found < 0:
            return None
        values.append(uri[place:found])
        place = found + len(literal)
    return (*values, uri[place:end])


def canonical(uri: str) -> str:
    """One spelling of all the URIs that a server may take for this one. Made for refusals: it likens rather too many.

    Case of scheme and host, percent-encoding, dot segments, empty segments and the fragment make no difference.
    """
    found = _PARTS.match(uri)
    scheme, host, path, query = (unquote(part or "") for part in (found.groups() if found else ()))
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    host = "" if host.lower() == "localhost" else host.lower()  # Source: RFC 8089, section 2
    return f"{scheme.lower()}:{host}/{'/'.join(segments)}{query}"


def covers(template: str, uri: str) -> bool:
    """Whether a URI is one of a template's, under whatever spelling."""
    if match(template, uri) is not None:
        return True
    return match(canonical(_EXPRESSION.sub("{}", template)), canonical(uri)) is not None


def filled(template: str, values: tuple[str, ...]) -> str:
    """The URI with these texts in the place of the template's expressions."""
    return _joined(_EXPRESSION.split(template), values)


def _joined(parts: list[str], between: "list[str] | tuple[str, ...]") -> str:
    pieces = [piece for pair in zip(parts, between, strict=False) for piece in pair]
    return "".join((*pieces, parts[-1]))
