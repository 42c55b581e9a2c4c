"""The hint for a missing variable: it names the client that keeps it back, where that is known."""

import pytest

from smart_mcp_proxy.desktop.present import JoinedClient, bind_present_client
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.upstream.states import build_not_ready


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("codex-mcp-client", "Codex gives the servers that it starts none of your variables: mcpproxy connect codex"),
        ("gemini-cli-mcp-client", "Gemini CLI gives the servers that it starts no variable that looks like a secret"),
        ("Qoder", "'env' of the entry for mcpproxy"),
        ("claude-code", "Set it."),
        ("", "Set it."),
    ],
)
def test_the_hint_names_the_client_that_withholds_a_variable(name: str, said: str) -> None:
    """With the command that lets it through; another state, and nobody in particular, keep the usual one."""
    status = ServerStatus("s", "stdio", ServerState.NEEDS_ENV, error="It lacks KEY.", hint="Set it.")
    with bind_present_client(JoinedClient(1, "1.0", "/", 0.0, {}, name)):
        assert said in build_not_ready(status).hint
        assert build_not_ready(ServerStatus("s", "stdio", ServerState.ERROR, hint="Look.")).hint == "Look."
    assert build_not_ready(status).hint == "Set it."
