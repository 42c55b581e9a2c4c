"""Tool names: canonical `server:tool`, and the unique, length-limited form that clients list.

Prompts, resources and resource templates of a server stand in the catalog as the tools of a shelf do: a name with a
colon (`server:prompts`), which no server can have, so that none is ever taken for a tool.
"""

import hashlib
import re
import shlex
from collections.abc import Container

from smart_mcp_proxy.models import ContentKind, ToolKey

DATABASE_NAME = "proxy.db"
"""Source: docs/design/processes.md#the-catalog"""
GATEWAYS_CAPABILITY = "dev.smartmcpproxy/gateways"
"""Experimental capability with which a gateway tells another gateway who it is, and who is behind it."""
RESERVED_NAMES = frozenset(
    {
        "retrieve_tools",
        "describe_tool",
        "call_tool_read",
        "call_tool_write",
        "call_tool_destructive",
        "read_output",
        "upstream_servers",
        "code_execution",
        "proxy",
    }
)
"""Names of the gateway's own tools; no upstream tool is ever listed under one of them."""

IDENTITIES: dict[ContentKind, str] = {
    "prompts": "name",
    "resources": "uri",
    "templates": "uriTemplate",
    "skills": "uri",
}
"""The member that tells a server's definitions of one kind apart."""

_SEPARATOR = "__"
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_SUFFIX_CHARS = 8
"""Hex characters of the hash suffix: 32 bits, so a clash within one catalog is rare, and still resolved."""
_LEAST_OF_BOTH = 6
"""Characters of both names together below which parts of them would say nothing."""
_LIKE_SUFFIX = re.compile(r"_(?=[0-9]*[a-f])[0-9a-f]{8}\Z")
"""A suffix has a letter, so that a date at the end of a tool's own name is not taken for one."""


def parse_canonical(name: str) -> ToolKey | None:
    """The key that `server:tool` names, split on the first colon; None if it is not of that form."""
    server, colon, tool = name.partition(":")
    return ToolKey(server, tool) if colon and server and tool else None


def shelf(server: str, kind: ContentKind) -> str:
    """Catalog name of a server's prompts, resources or templates."""
    return f"{server}:{kind}"


def extract_server_name(name: str) -> str:
    """The server that a shelf belongs to; a server's own name as it is."""
    return name.partition(":")[0]


def identity_on(name: str) -> str:
    """The member that tells definitions apart on a server, or on a shelf of one."""
    kind = name.partition(":")[2]
    return next((member for known, member in IDENTITIES.items() if known == kind), "name")


def parse_content(name: str) -> ToolKey | None:
    """The key that `server:prompts:NAME` and the like name; None if it is not of that form."""
    server, _, rest = name.partition(":")
    kind, colon, item = rest.partition(":")
    return ToolKey(f"{server}:{kind}", item) if server and colon and item and kind in IDENTITIES else None


def build_listed_name(key: ToolKey, limit_chars: int, taken: Container[str] = frozenset()) -> str:
    """A name for `key` made of `[A-Za-z0-9_-]`, at most `limit_chars` long, not in `taken`.

    The plain form is `server__tool`. A key that this form would change (illegal characters), shorten, or whose
    parts it would blur (`a` + `b__c` against `a__b` + `c`) gets a suffix from a hash of the key, and so does one that
    ends like such a suffix: different keys get different names whatever else is in the catalog, and in whatever order
    they come. `taken` settles the clashes that remain. Of two names that are too long together, the tool keeps at least
    half of the room.

    Args:
        key: Server and tool name, any text.
        limit_chars: At least 10.
        taken: Names already given to other keys.
    """
    plain = f"{key.server}{_SEPARATOR}{key.tool}"
    legal = _ILLEGAL.sub("_", plain)
    is_plain = (
        legal == plain
        and len(plain) <= limit_chars
        and plain.count(_SEPARATOR) == 1
        and not key.server.endswith("_")
        and not key.tool.startswith("_")
        and plain not in RESERVED_NAMES
        and not _LIKE_SUFFIX.search(plain)
    )
    if is_plain and plain not in taken:
        return plain
    for attempt in range(1 << 16):
        framed = f"{len(key.server)}:{key.server}{key.tool}#{attempt}"
        suffix = "_" + hashlib.sha256(framed.encode("utf-8", "surrogatepass")).hexdigest()[:_SUFFIX_CHARS]
        candidate = _cut(key, limit_chars - len(suffix)) + suffix
        if _LIKE_SUFFIX.search(candidate) and candidate not in taken and candidate not in RESERVED_NAMES:
            return candidate
    raise AssertionError(f"no free listed name for {key}")  # 65,536 clashes of a 32-bit hash


def _cut(key: ToolKey, room: int) -> str:
    """Legal form of a key in at most `room` characters; a part of both names stays."""
    server, tool = (_ILLEGAL.sub("_", part) for part in key)
    both = room - len(_SEPARATOR)
    if len(server) + len(tool) <= both or both < _LEAST_OF_BOTH:
        return f"{server}{_SEPARATOR}{tool}"[:room]
    tool = tool[: max(both // 2, both - len(server))]
    return server[: both - len(tool)] + _SEPARATOR + tool


def build_listed_prefix(server: str) -> str:
    """The beginning of the listed names of a server's tools, where none had to be shortened."""
    return _ILLEGAL.sub("_", server) + _SEPARATOR


def login_hint(server: str) -> str:
    """The command that signs in to a server, as a sentence for people."""
    return f"Sign in with: mcpproxy server login {shell_word(server)}"


def visible_name(name: str) -> str:
    """A name in which every character is seen: itself, or the same with escapes; quoted if it is blank."""
    if not name.strip():
        return repr(name)
    return name if name.isprintable() else repr(name)[1:-1]


def shell_word(name: str) -> str:
    """A name as one word of a command that is suggested to people, whatever a server put into it.

    What cannot be seen or commands a terminal is spelled out in `$'...'`, which bash, zsh and ksh read.
    """
    if name.isprintable():
        return shlex.quote(name)
    return "$'" + "".join(map(_escape_shell_char, name)) + "'"


def _escape_shell_char(char: str) -> str:
    if char.isprintable():
        return f"\\{char}" if char in "\\'" else char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
