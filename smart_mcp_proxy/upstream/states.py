"""State machine of a server, and the delay before a failed one is tried again."""

import random
from collections.abc import Mapping
from typing import Final

from smart_mcp_proxy.desktop.present import get_present_client
from smart_mcp_proxy.desktop.withholding import explain_withholding
from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.models import ServerState as State
from smart_mcp_proxy.models import ServerStatus
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig, describe_isolation

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
_OTHER_VERSION: Final = "The gateway's program has been changed or removed while it runs: restart the gateway."
_OWN_FAULT: Final = "It is tried again. If it stays so, restart the gateway; its log says more."

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.DISCONNECTED: frozenset({State.CONNECTING, State.DISABLED, State.QUARANTINED}),
    State.CONNECTING: frozenset(
        {State.READY, State.AUTHENTICATING, State.ERROR, State.NEEDS_ENV, State.NEEDS_AUTH, State.DISCONNECTED}
    ),
    State.AUTHENTICATING: frozenset({State.CONNECTING, State.ERROR, State.NEEDS_AUTH, State.DISCONNECTED}),
    State.READY: frozenset({State.CONNECTING, State.ERROR, State.NEEDS_AUTH, State.DISCONNECTED}),
    State.ERROR: frozenset({State.CONNECTING, State.DISCONNECTED}),
    State.NEEDS_ENV: frozenset({State.DISCONNECTED}),
    State.NEEDS_AUTH: frozenset({State.CONNECTING, State.AUTHENTICATING, State.DISCONNECTED}),
    State.QUARANTINED: frozenset({State.DISCONNECTED}),
    State.DISABLED: frozenset({State.DISCONNECTED}),
}
"""Source: docs/design/protocol-surface.md#states-of-servers"""


def first_status(config: ServerConfig) -> ServerStatus:
    """The status of a server that is not started yet, or that is not to be started at all."""
    state, error, hint, reason = State.DISCONNECTED, "", "", ""
    if config.quarantined:
        state, error = State.QUARANTINED, "It waits for its user's approval."
        hint = f"Approve it with: mcpproxy server approve {shell_word(config.name)}"
    elif config.disabled:
        state, hint = State.DISABLED, f"Switch it on with: mcpproxy server enable {shell_word(config.name)}"
    elif config.refusal is not None:
        state, (error, hint) = State.ERROR, config.refusal
        reason = error
    isolation = describe_isolation(config)
    return ServerStatus(config.name, config.transport, state, error, hint, reason=reason, isolation=isolation)


def check_transition(server: str, old: State, new: State) -> None:
    """Raises RuntimeError if `new` may not follow `old`: that is a bug of ours, never of a server."""
    if new not in TRANSITIONS[old]:
        raise RuntimeError(f"server {server}: state {new} cannot follow {old}")


def backoff_s(failures: int, rng: random.Random) -> float:
    """The pause before the next try: 0.5 s doubling up to 60 s, of which a random half is left out.

    Args:
        failures: Tries that failed in a row, at least 1.
        rng: Spreads the servers, so that they do not all come back at once.
    """
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16))
    return longest * rng.uniform(0.5, 1.0)


def build_not_ready(status: ServerStatus) -> UpstreamError:
    """Error for a request to a server that is not ready."""
    kind = UpstreamAuthError if status.state is State.NEEDS_AUTH else UpstreamError
    message = f"Server '{status.name}' is not ready ({status.state})" + (":" if status.cause else ".")
    return kind(message, hint=_choose_hint(status), data={"state": str(status.state)}, said=status.cause)


def explain_fault(name: str, exc: Exception) -> tuple[str, str]:
    """Error and hint where no connection could be made for a reason of the gateway's own."""
    error = f"Server '{name}' could not be connected: {type(exc).__name__}: {exc}"
    return error, _OTHER_VERSION if isinstance(exc, ImportError) else _OWN_FAULT


def _choose_hint(status: ServerStatus) -> str:
    """The hint of a state; where a variable is missing, that for the client whose request this is."""
    client = get_present_client() if status.state is State.NEEDS_ENV else None
    return (explain_withholding(client.name) if client is not None else "") or status.hint
