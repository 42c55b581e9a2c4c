"""The HTTP broker: any method of one server by one POST, with the gateway's own credentials for it."""

from smart_mcp_proxy.web.broker.app import BrokerBeside
from smart_mcp_proxy.web.broker.openapi import describe_broker

__all__ = ["BrokerBeside", "describe_broker"]
