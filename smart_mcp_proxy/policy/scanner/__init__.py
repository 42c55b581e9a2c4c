"""Does a tool's definition look like an attack on the agent that reads it? Pure functions over one definition."""

from smart_mcp_proxy.policy.scanner.findings import Finding
from smart_mcp_proxy.policy.scanner.peers import Peer, Peers
from smart_mcp_proxy.policy.scanner.scan import scan

__all__ = ["Finding", "Peer", "Peers", "scan"]
