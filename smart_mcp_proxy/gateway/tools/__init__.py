"""What the agent sees: one file per tool."""

from smart_mcp_proxy.gateway.shared.base import AgentTool, Caller

__all__ = ["AgentTool", "Caller"]
