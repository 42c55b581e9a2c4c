"""Servers: what `mcp_config.json` says, one frozen value per server, and its variables filled in at connect."""

from smart_mcp_proxy.servers.config import (
    Limits,
    Problem,
    Profile,
    ServerConfig,
    ServerFile,
    ServersDiff,
    ToolFilter,
    Transport,
    diff,
)
from smart_mcp_proxy.servers.expand import UnsetVariableError, expand, secrets_of
from smart_mcp_proxy.servers.load import configured_servers, find_config, load_servers

__all__ = [
    "Limits",
    "Problem",
    "Profile",
    "ServerConfig",
    "ServerFile",
    "ServersDiff",
    "ToolFilter",
    "Transport",
    "UnsetVariableError",
    "configured_servers",
    "diff",
    "expand",
    "find_config",
    "load_servers",
    "secrets_of",
]
