"""Servers as registries list them (`server.json`), and entries of the server file made of that."""

from smart_mcp_proxy.registry.inputs import Given, Need
from smart_mcp_proxy.registry.listing import Listing, VersionStatus, read_listing, read_page
from smart_mcp_proxy.registry.plan import Offer, Plan, plan_entry

__all__ = [
    "Given",
    "Listing",
    "Need",
    "Offer",
    "Plan",
    "VersionStatus",
    "plan_entry",
    "read_listing",
    "read_page",
]
