"""The tools that agents see, one file a tool."""

from smart_mcp_proxy.gateway.shared.agent_tools import AgentTool, Caller
