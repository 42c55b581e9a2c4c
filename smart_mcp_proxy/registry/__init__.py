"""Servers as registries list them (`server.json`), and entries of the server file made of that."""

from smart_mcp_proxy.registry.listing import Listing, Page, Standing, read_listing, read_page
from smart_mcp_proxy.registry.plan import Given, Need, Offer, Plan, plan_of

__all__ = ["Given", "Listing", "Need", "Offer", "Page", "Plan", "Standing", "plan_of", "read_listing", "read_page"]
