"""The gateway: the only place where catalog, search, upstream and policy meet."""

from smart_mcp_proxy.gateway.app import Gateway, GatewayStatus

__all__ = ["Gateway", "GatewayStatus"]
