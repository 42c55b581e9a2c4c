"""The gateway: the only place where catalog, search, upstream and policy meet."""

from smart_mcp_proxy.gateway.admin.status import GatewayStatus
from smart_mcp_proxy.gateway.app import open_gateway
from smart_mcp_proxy.gateway.gateway import Gateway
