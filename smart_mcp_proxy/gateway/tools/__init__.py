"""The tools that agents see, one file a tool."""

from smart_mcp_proxy.gateway.shared.base import AgentTool, Caller

__all__ = ["AgentTool", "Caller"]
