"""Runs the command line as `python -m smart_mcp_proxy`."""

from smart_mcp_proxy.cli import main

main()
