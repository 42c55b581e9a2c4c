"""The only place that touches private names of fastmcp and mcp.

`client` opens sessions with upstream servers, `server` serves agents. tests/fastmcp_compat holds the contract
test: each private name used here, with what is expected of it, so that an upgrade fails there and not in the field.
"""
