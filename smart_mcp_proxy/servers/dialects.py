"""Server files of other clients: one row a client, with its sections and its keys."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from smart_mcp_proxy.models import Transport


class ClientDialect(NamedTuple):
    """Form in which one client writes its servers down. A file may mix several of them.

    Attributes:
        name: The client, or the format that several share.
        section: Key of the file under which the servers stand, a map by name or a list.
        url_key: Key of a server's address.
        is_http: Whether an address under that key is one of streamable HTTP, whatever it looks like.
        types: Its names of transports, in lower case without hyphens and underscores; None lets the address decide.
        keys: Its other keys that `entry.py` reads.
        include_keys: Its keys for a list of the only tools to use.
        exclude_keys: Its keys for a list of tools not to use.
    """

    name: str
    section: str = "mcpServers"
    url_key: str = "url"
    is_http: bool = False
    types: tuple[tuple[str, Transport | None], ...] = ()
    keys: tuple[str, ...] = ()
    include_keys: tuple[str, ...] = ()
    exclude_keys: tuple[str, ...] = ()


DIALECTS = (
    ClientDialect(
        "Claude, Cursor",
        types=(("stdio", "stdio"), ("http", "http"), ("sse", "sse")),
        keys=("type", "command", "args", "env", "cwd", "headers", "disabled"),
    ),
    ClientDialect("VS Code", section="servers"),
    ClientDialect("Windsurf", url_key="serverUrl"),
    ClientDialect(
        "Gemini CLI", url_key="httpUrl", is_http=True, include_keys=("includeTools",), exclude_keys=("excludeTools",)
    ),
    ClientDialect("Cline", types=(("streamablehttp", "http"),)),
    ClientDialect(
        "mcpproxy-go, Codex",
        keys=("protocol", "working_dir", "created", "updated", "startup_timeout_sec", "startup_timeout_ms"),
        include_keys=("enabled_tools",),
        exclude_keys=("disabled_tools",),
    ),
    ClientDialect("Kiro", exclude_keys=("disabledTools",)),
    ClientDialect("FastMCP", keys=("transport",)),
    ClientDialect("Anthropic API", types=(("url", None),), keys=("name", "authorization_token", "tool_configuration")),
)
"""As the clients' own documentation has it.

Source: docs/design/protocol-surface.md#configuration; docs/design/broker.md#which-servers"""

SECTIONS = tuple(dict.fromkeys(client.section for client in DIALECTS))
"""In the order in which they are looked for."""
URL_KEYS = tuple(dict.fromkeys(client.url_key for client in DIALECTS))
HTTP_URL_KEYS = frozenset(client.url_key for client in DIALECTS if client.is_http)
ADDRESS_KEYS = ("command", *URL_KEYS)
"""An entry has exactly one of these."""
INCLUDE_KEYS = tuple(key for client in DIALECTS for key in client.include_keys)
"""Lists of the only tools that are used."""
EXCLUDE_KEYS = tuple(key for client in DIALECTS for key in client.exclude_keys)
"""Lists of tools that are not used."""
SANDBOX_KEYS = ("sandboxEnabled", "sandbox")
"""VS Code's: a server that was meant to be shut in must not run free."""
TRANSPORT_NAMES = {name: transport for client in DIALECTS for name, transport in client.types}
CLIENT_KEYS = frozenset(
    [*URL_KEYS, *INCLUDE_KEYS, *EXCLUDE_KEYS, *SANDBOX_KEYS, *(key for client in DIALECTS for key in client.keys)]
)
"""Keys of an entry in the words of clients; those that only this gateway knows stand in `entry.py`."""

_ON_WORDS: Final = frozenset({"true", "1", "yes", "on"})
_OFF_WORDS: Final = frozenset({"false", "0", "no", "off"})
_SWITCHES: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("disabled", "isdisabled", "disable"), _ON_WORDS),
    **dict.fromkeys(("enabled", "isenabled", "enable", "active", "isactive", "autostart"), _OFF_WORDS),
    "status": frozenset({"inactive", "disabled", "off"}),
}
"""Keys by which programs switch a server off, in lower case without hyphens and underscores, and the values that do."""


def is_switch(key: str) -> bool:
    """Whether a key of an entry switches its server on or off, in the words of any program."""
    return _plain(key) in _SWITCHES


def off_keys(entry: Mapping[str, Any]) -> list[str]:
    """The keys of an entry that switch its server off."""
    return [key for key, value in entry.items() if _plain(value) in _SWITCHES.get(_plain(key), ())]


def _plain(word: object) -> str:
    """A key (YAML has others than texts) or a value, however it is spelled."""
    return str(word).strip().lower().replace("-", "").replace("_", "")
