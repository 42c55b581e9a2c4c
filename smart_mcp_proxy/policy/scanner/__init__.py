"""Scanner of tool definitions for attacks on agents: pure functions over one definition."""

from typing import TYPE_CHECKING, Any

from smart_mcp_proxy.policy.scanner.findings import Finding

if TYPE_CHECKING:
    from smart_mcp_proxy.policy.scanner.peers import Peers, PeerTool
    from smart_mcp_proxy.policy.scanner.scanning import scan

__all__ = ["Finding", "PeerTool", "Peers", "scan"]


def __getattr__(name: str) -> Any:
    """Load the rules at the first scan: few starts need them, and they take a fifth of a second."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from smart_mcp_proxy.policy.scanner import peers, scanning

    globals().update(PeerTool=peers.PeerTool, Peers=peers.Peers, scan=scanning.scan)
    return globals()[name]
