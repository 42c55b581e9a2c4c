"""Servers: `mcp_config.json` as frozen values, one per server, variables expanded at connect."""

from smart_mcp_proxy.servers.config import (
    Allowance,
    IsolationMode,
    Problem,
    Profile,
    ServerConfig,
    ServerFile,
    ServerLimits,
    ServersDiff,
    ToolFilter,
    diff,
    next_servers,
    with_inherited,
)
from smart_mcp_proxy.servers.edit_masks import mask_entry
from smart_mcp_proxy.servers.edit_review import mask_unless_quarantined, warnings_about
from smart_mcp_proxy.servers.edit_servers import SERVER_NAME, Author, ServerEdit, ServerEdits, require_named
from smart_mcp_proxy.servers.expand import UnsetVariableError, collect_secrets, expand, find_variables, uses_workspace
from smart_mcp_proxy.servers.isolation import (
    describe_isolation,
    explain_isolation,
    explain_reach,
    has_process_here,
    identify_program,
    isolate,
)
from smart_mcp_proxy.servers.known import describe_known, describe_missing, find_known_server
from smart_mcp_proxy.servers.load import (
    FILE_LIMIT_BYTES,
    find_config,
    list_guarded_places,
    load_configured_servers,
    load_servers,
)
from smart_mcp_proxy.servers.oauth import ExchangeOptions, OAuthOptions, read_oauth
from smart_mcp_proxy.servers.runner_options import may_be_passed
from smart_mcp_proxy.servers.separation import expand_for_client, explain_separation, with_own_processes
