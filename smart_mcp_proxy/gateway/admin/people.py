"""People who approve: how many a server needs, and whether there are so many."""

from collections.abc import Callable, Mapping

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.gateway.admin.agent_tokens import AgentTokens
from smart_mcp_proxy.gateway.admin.roles import REST, is_allowed
from smart_mcp_proxy.models import ROLES
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.settings import Settings


def count_needed(settings: Settings, servers: Callable[[], Mapping[str, ServerConfig]], server: str) -> int:
    """Return how many different people approve a definition of a server."""
    config = servers().get(server)
    return settings.approvals if config is None else max(settings.approvals, config.approvals)


async def require_people(
    settings: Settings, servers: Mapping[str, ServerConfig], tokens: AgentTokens, *, is_http: bool
) -> None:
    """Pass if there can be as many people as the configuration asks for.

    Raises:
        ConfigError: There cannot, so that nothing that changes would ever be served.
    """
    needed = max([settings.approvals, *(config.approvals for config in servers.values())])
    roles = [role for role in ROLES if is_allowed(role, REST["POST /approvals/approve"])]
    may_approve = settings.oidc_operators or any(text.rpartition("=")[2] in roles for text in settings.group_roles)
    is_signing_in = settings.oidc_url or settings.jwt_jwks_url or settings.jwt_public_key
    if needed == 1 or (is_http and is_signing_in and may_approve):
        return
    held = [each for each in await tokens.tokens() if tokens.find_holder(each.principal_id) is not None]
    made = [each for each in held if each.role in roles]
    people = 1 + (len({each.made_by or each.principal_id for each in made}) if is_http else 0)
    if people < needed:
        raise ConfigError(
            f"{needed} different people are to approve what changes (MCPPROXY_APPROVALS, or 'approvals' in an entry), "
            f"and there {'is' if people == 1 else 'are'} {people}: the user of this gateway"
            f"{', and tokens that may approve' if people > 1 else ''}.",
            hint="Serve HTTP (mcpproxy serve --http) and let people sign in, see docs/roles.md, or make a token for "
            "each: mcpproxy token create NAME --role approver",
        )
