"""JSON-RPC and MCP with a server, whatever the transport."""
