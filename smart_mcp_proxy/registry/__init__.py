"""Servers as registries list them (`server.json`), and entries of the server file made of that."""

from smart_mcp_proxy.registry.inputs import Given, Need
from smart_mcp_proxy.registry.listing import Listing, read_listing, read_page
from smart_mcp_proxy.registry.plan import Plan, plan_entry
