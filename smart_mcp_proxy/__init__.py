"""Gateway with one search tool in front of all your MCP servers.

The names listed here are the public API; `docs/contributing.md` says what else may change at any time.
"""

from importlib import import_module
from typing import Any

__all__ = [
    "ConfigError",
    "Gateway",
    "ProxyClient",
    "ProxyError",
    "ProxyFastMCP",
    "ProxyMCP",
    "ProxyResponseInfo",
    "Settings",
    "__version__",
    "load_servers",
    "open_gateway",
]

__version__ = "1.1.0"

_HOMES = {
    "ConfigError": "errors",
    "Gateway": "gateway",
    "ProxyClient": "client",
    "ProxyError": "errors",
    "ProxyFastMCP": "client",
    "ProxyMCP": "client",
    "ProxyResponseInfo": "client",
    "Settings": "settings",
    "load_servers": "servers",
    "open_gateway": "gateway",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a client's first answer must not wait for all of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
