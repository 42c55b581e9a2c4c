"""Clients by the name they give, with what was seen of them: evidence, never a guess."""

from typing import Final, NamedTuple


class SeenClient(NamedTuple):
    """Client as it was observed in one version.

    Attributes:
        names: That it gives in `clientInfo`, in lower case.
        heeds_changes: Whether, in the handshake era, it asks for its list again when it is told of a change, and
            offers its model what it then gets.
        version: That was seen; the commit where its source was read.
        seen: The day, as ISO 8601 writes it.
        source: A test that runs the client, or a URL.
    """

    names: tuple[str, ...]
    heeds_changes: bool
    version: str
    seen: str
    source: str


_RUN: Final = "tests/agents/test_growing_agents.py"
_VSCODE: Final = "https://github.com/microsoft/vscode/blob/1418a96/src/vs/workbench/contrib/mcp/common/mcpServer.ts"

SEEN_CLIENTS: Final = (
    SeenClient(("claude-code",), True, "2.1.332", "2026-11-28", _RUN),
    SeenClient(("gemini-cli-mcp-client",), True, "0.61.0", "2026-11-28", _RUN),
    SeenClient(("opencode",), True, "1.18.33", "2026-11-28", _RUN),
    SeenClient(("codex-mcp-client",), False, "0.171.0", "2026-11-28", _RUN),
    SeenClient(("qwen-cli-mcp-client-mcpproxy",), False, "0.24.4", "2026-11-29", "scripts/observe_clients.py"),
    SeenClient(("continue-cli-client",), False, "1.5.47", "2026-11-29", _RUN),
    SeenClient(("visual studio code", "visual studio code - insiders"), True, "commit 1418a96", "2026-11-28", _VSCODE),
)
"""Clients seen, one row each. A client that is not here gets what every client can live with."""


def find_client(name: str) -> SeenClient | None:
    """Find the client that gives this name; None where it was not seen."""
    folded = name.casefold()
    return next((client for client in SEEN_CLIENTS if folded in client.names), None)
