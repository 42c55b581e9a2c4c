"""A raw MCP server of the handshake era on stdin and stdout whose list of tools grows: each call of `grow` adds one.

It announces the change twice, as busy servers do.
"""

from raw_server import TOOLS_CHANGED, send, serve

names = ["grow"]


def grow(name):
    names.append(f"grown_{len(names)}")
    send(method=TOOLS_CHANGED)
    send(method=TOOLS_CHANGED)
    return {"content": []}


serve("growing", lambda: [{"name": name, "inputSchema": {"type": "object"}} for name in names], grow)
