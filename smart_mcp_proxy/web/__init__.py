"""Endpoints for programs: streamable HTTP, SSE, stdio, and REST on a Unix socket."""
