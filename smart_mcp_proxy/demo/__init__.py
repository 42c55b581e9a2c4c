"""Small bundled MCP servers for a first try without network and configuration.

One server per file: its tools as data beside the functions that carry them out. The demo is one program, `server.py`,
with one tool helper, `tool.py`: it starts as three servers (clock, colors, todo), so that a search has several servers
to choose from. It speaks the protocol with the standard library alone, so that they start in well under a second.
"""

import sys
from typing import Any

DEMO_NAMES = ("clock", "colors", "todo")


def demo_servers() -> dict[str, dict[str, Any]]:
    """The bundled servers as the `mcpServers` mapping of a configuration file."""
    return {
        name: {"command": sys.executable, "args": ["-m", "smart_mcp_proxy.demo.server", name]} for name in DEMO_NAMES
    }
