"""Servers: `mcp_config.json` as frozen values, one per server, variables expanded at connect."""

from smart_mcp_proxy.servers.config import (
    Limits,
    Problem,
    Profile,
    ServerConfig,
    ServerFile,
    ServersDiff,
    ToolFilter,
    diff,
    next_servers,
    with_inherited,
)
from smart_mcp_proxy.servers.edit_masks import masked
from smart_mcp_proxy.servers.edit_review import reviewed, warnings_about
from smart_mcp_proxy.servers.edit_servers import (
    SERVER_NAME,
    Author,
    ServerEdit,
    ServerEdits,
    ServerImport,
    require_named,
)
from smart_mcp_proxy.servers.expand import UnsetVariableError, expand, secrets_of
from smart_mcp_proxy.servers.load import FILE_LIMIT_BYTES, configured_servers, find_config, load_servers
from smart_mcp_proxy.servers.oauth import OAuthOptions, read_oauth

__all__ = [
    "FILE_LIMIT_BYTES",
    "SERVER_NAME",
    "Author",
    "Limits",
    "OAuthOptions",
    "Problem",
    "Profile",
    "ServerConfig",
    "ServerEdit",
    "ServerEdits",
    "ServerFile",
    "ServerImport",
    "ServersDiff",
    "ToolFilter",
    "UnsetVariableError",
    "configured_servers",
    "diff",
    "expand",
    "find_config",
    "load_servers",
    "masked",
    "next_servers",
    "read_oauth",
    "require_named",
    "reviewed",
    "secrets_of",
    "warnings_about",
    "with_inherited",
]
