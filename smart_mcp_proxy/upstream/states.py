"""Which state of a server may follow which."""

from collections.abc import Mapping
from typing import Final

from smart_mcp_proxy.models import ServerState as State

__all__ = ["TRANSITIONS", "check_transition"]

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.DISCONNECTED: frozenset({State.CONNECTING, State.DISABLED, State.QUARANTINED}),
    State.CONNECTING: frozenset(
        {
            State.READY,
            State.AUTHENTICATING,
            State.ERROR,
            State.NEEDS_ENV,
            State.NEEDS_AUTH,
            State.DISCONNECTED,
        }
    ),
    State.AUTHENTICATING: frozenset({State.CONNECTING, State.ERROR, State.NEEDS_AUTH, State.DISCONNECTED}),
    State.READY: frozenset({State.ERROR, State.NEEDS_AUTH, State.DISCONNECTED}),
    State.ERROR: frozenset({State.CONNECTING, State.DISCONNECTED}),
    State.NEEDS_ENV: frozenset({State.DISCONNECTED}),
    State.NEEDS_AUTH: frozenset({State.CONNECTING, State.AUTHENTICATING, State.DISCONNECTED}),
    State.QUARANTINED: frozenset({State.DISCONNECTED}),
    State.DISABLED: frozenset({State.DISCONNECTED}),
}
"""Source: seeds/3_mcp_protocol_surface.md, connection states; product.md, Upstreams."""


def check_transition(server: str, old: State, new: State) -> None:
    """Raises RuntimeError if `new` may not follow `old`: that is a bug of ours, never of a server."""
    if new not in TRANSITIONS[old]:
        raise RuntimeError(f"server {server}: state {new} cannot follow {old}")
