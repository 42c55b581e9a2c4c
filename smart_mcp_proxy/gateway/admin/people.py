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
    roles = tuple(f"={role}" for role in ROLES if is_allowed(role, REST["POST /approvals/approve"]))
    can_vote = is_http and (settings.oidc_operators or any(text.endswith(roles) for text in settings.group_roles))
    if needed == 1 or (can_vote and (settings.oidc_url or settings.jwt_jwks_url or settings.jwt_public_key)):
        return
    await tokens.refresh()  # nobody follows them yet
    held = filter(None, map(tokens.find_holder, (each.principal_id for each in await tokens.tokens())))
    made = {each.made_by or each.id for each in held if f"={each.role}" in roles}
    people = 1 + (len(made) if is_http else 0)
    if people < needed:
        raise ConfigError(
            f"{needed} different people are to approve what changes (MCPPROXY_APPROVALS, or 'approvals' in an entry), "
            f"and there {'is' if people == 1 else 'are'} {people}: the user of this gateway"
            f"{', and tokens that may approve' if people > 1 else ''}.",
            hint="Serve HTTP (mcpproxy serve --http) and let people sign in, see docs/roles.md, or make a token for "
            "each: mcpproxy token create NAME --role approver",
        )
