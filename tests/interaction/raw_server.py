"""What the raw MCP servers with a changing list of tools have in common: the handshake era on stdin and stdout."""

import json
import sys
import threading

TOOLS_CHANGED = "notifications/tools/list_changed"
_written = threading.Lock()


def send(**message):
    """Writes one message; from any thread."""
    with _written:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def serve(name, listed, called, on_greeting=None):
    """Answers until the input ends.

    Args:
        name: The server's.
        listed: The tools, whenever they are asked for.
        called: The result of a call; takes the tool's name.
        on_greeting: Called when a client greets.
    """
    greeting = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": name, "version": "1"},
    }
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        if (method := message["method"]) == "initialize":
            result = greeting
            if on_greeting is not None:
                on_greeting()
        elif method == "tools/list":
            result = {"tools": listed()}
        elif method == "tools/call":
            result = called(message["params"]["name"])
        else:
            send(id=message["id"], error={"code": -32601, "message": "Method not found"})
            continue
        send(id=message["id"], result=result)
