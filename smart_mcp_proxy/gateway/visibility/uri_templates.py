"""URIs of upstream resources as agents see them, and templates matched without backtracking.

An agent meets the resource `file:///a b` of the server `docs` as `mcpproxy://docs/file%3A%2F%2F%2Fa%20b`. Of a template
only the text around its expressions is encoded, so that an agent fills it in as it would fill in the server's own.
Hosts know a user interface by its scheme: `ui://chart` of `docs` is `ui://docs/chart`, and `skill://notes/SKILL.md` is
`skill://docs/notes/SKILL.md`. A URI of the web names the same
page whoever says it, and stays as it is.
"""

import re
from urllib.parse import quote, unquote

SCHEME = "mcpproxy://"
"""Source: docs/design/wire-formats.md#addresses"""
UI_SCHEME = "ui://"
"""Source: https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx"""
SKILL_SCHEME = "skill://"
"""A skill's path has to stay readable; prefixes are the server's choice.

Source: https://modelcontextprotocol.io/seps/2640-skills-extension"""
_COLON = "%3A"
_SCHEME_SEGMENT = r"(?i)([^/%]+)%3A/"
_WEB = r"(?i)https?://"
_EXPRESSION = r"\{[^{}]*\}"
_PARTS = r"(?:([^:/?#]*):)?(?://([^/?#]*))?([^?#]*)(\?[^#]*)?"
"""Scheme, host, path and query. Source: RFC 3986, appendix B."""
_SIMPLE = r"(?:[A-Za-z0-9._~,=-]|%[0-9A-Fa-f]{2})*"
_RESERVED = r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
"""Values that may stand for an expression: for `{name}`, and for one with an operator or, as servers use it, `{name*}`.

Source: RFC 6570, sections 1.5 and 3.2"""


def is_web(uri: str) -> bool:
    """Whether a URI is one of the web, which is the same one whichever server names it."""
    return re.match(_WEB, uri) is not None


def gateway_uri(server: str, uri: str) -> str:
    """The URI under which agents reach a server's resource."""
    if is_web(uri):
        return uri
    if uri.startswith(UI_SCHEME) and uri != UI_SCHEME:
        return f"{UI_SCHEME}{quote(server, safe='')}/{uri.removeprefix(UI_SCHEME)}"
    if uri.startswith(SKILL_SCHEME) and uri != SKILL_SCHEME:
        return gateway_skill_uri(server, uri)
    return f"{SCHEME}{quote(server, safe='')}/{quote(uri, safe='')}"


def gateway_skill_uri(server: str, uri: str) -> str:
    """The URI of a skill's file or directory, of whatever scheme; its path stays, for hosts resolve by it.

    Another scheme is the first segment: `repo://a/b/SKILL.md` of `docs` is `skill://docs/repo%3A/a/b/SKILL.md`.
    """
    scheme, _, path = uri.partition("://")
    if scheme == "skill" and not re.match(_SCHEME_SEGMENT, path):
        return f"{SKILL_SCHEME}{quote(server, safe='')}/{path}"
    return f"{SKILL_SCHEME}{quote(server, safe='')}/{scheme}{_COLON}/{path}"


def gateway_template(server: str, template: str) -> str:
    """The template under which agents reach a server's resources; its expressions are the server's own."""
    if is_web(template) or template.startswith((UI_SCHEME, SKILL_SCHEME)):
        return gateway_uri(server, template)
    parts, expressions = re.split(_EXPRESSION, template), re.findall(_EXPRESSION, template)
    encoded = [quote(part, safe="") for part in parts]
    return f"{SCHEME}{quote(server, safe='')}/{_interleave_parts(encoded, expressions)}"


def variables(template: str) -> list[str]:
    """The names that a template's expressions stand for, each once, in order.

    An operator, names apart by commas, and behind a name `*` or `:` and a length. Source: RFC 6570, section 2.3
    """
    names = (name for each in re.findall(_EXPRESSION, template) for name in each.strip("{}+#./;?&").split(","))
    return [*dict.fromkeys(name.partition(":")[0].rstrip("*") for name in names if name)]


def split_gateway_uri(uri: str) -> tuple[str, str] | None:
    """Server and upstream URI that an agent's URI names; None if it names no server."""
    if uri.startswith(UI_SCHEME):
        server, slash, rest = uri.removeprefix(UI_SCHEME).partition("/")
        return (unquote(server), UI_SCHEME + rest) if server and slash and rest else None
    if uri.startswith(SKILL_SCHEME):
        server, _, path = uri.removeprefix(SKILL_SCHEME).partition("/")
        found = re.match(_SCHEME_SEGMENT, path)
        own = f"{found[1]}://{path[found.end() :]}" if found is not None else SKILL_SCHEME + path
        return (unquote(server), own) if server and path and own != SKILL_SCHEME else None
    if not uri.startswith(SCHEME):
        return None
    server, slash, rest = uri.removeprefix(SCHEME).partition("/")
    return (unquote(server), unquote(rest)) if server and slash and rest else None


def match(template: str, uri: str) -> tuple[str, ...] | None:
    """Match a URI: the value of each expression of `template`; None if it does not fit.

    Each expression stands for as little text as lets the rest fit. That takes time in proportion to the length of
    both, whatever a server lists.
    """
    first, *others = re.split(_EXPRESSION, template)
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


def fits(template: str, uri: str) -> bool:
    """Whether a client that fills the template in by its rules may get this URI."""
    values = match(template, uri)
    if values is None:
        return False
    expressions = re.findall(_EXPRESSION, template)
    return all(
        re.fullmatch(_choose_value_pattern(each), value) for each, value in zip(expressions, values, strict=True)
    )


def _choose_value_pattern(expression: str) -> str:
    is_simple = expression[1:2].isalnum() and "*" not in expression
    return _SIMPLE if is_simple else _RESERVED


def canonical(uri: str) -> str:
    """Normalise a URI for refusals: spellings that a server may treat alike, rather too many.

    Case of scheme and host, percent-encoding, dot segments, empty segments and the fragment make no difference.
    """
    found = re.match(_PARTS, uri)
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
    return match(canonical(re.sub(_EXPRESSION, "{}", template)), canonical(uri)) is not None


def expand_template(template: str, values: tuple[str, ...]) -> str:
    """The URI with these texts in the place of the template's expressions."""
    return _interleave_parts(re.split(_EXPRESSION, template), values)


def _interleave_parts(parts: list[str], between: "list[str] | tuple[str, ...]") -> str:
    pieces = [piece for pair in zip(parts, between, strict=False) for piece in pair]
    return "".join((*pieces, parts[-1]))
