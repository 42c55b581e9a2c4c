"""Servers as registries describe them (`server.json`), and the entries of the server file that run them."""

from smart_mcp_proxy.registry.listing import Listing, Page, Standing, read_listing, read_page
from smart_mcp_proxy.registry.plan import Given, Need, Offer, Plan, plan_of

__all__ = ["Given", "Listing", "Need", "Offer", "Page", "Plan", "Standing", "plan_of", "read_listing", "read_page"]
