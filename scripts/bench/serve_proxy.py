"""FastMCP's `create_proxy`, constructed as its documentation does.

Usage: python -m bench.serve_proxy stdio|http TARGET [PORT], where TARGET is a URL, a JSON array (a command line)
or a JSON object (a configuration with `mcpServers`).
"""

import json
import sys
from typing import Any

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


def main() -> None:
    target: Any = sys.argv[2]
    if target.startswith("["):
        command, *arguments = json.loads(target)
        target = StdioTransport(command, arguments)
    elif target.startswith("{"):
        target = json.loads(target)
    proxy = create_proxy(target)
    if sys.argv[1] == "stdio":
        proxy.run(transport="stdio", show_banner=False)
    else:
        proxy.run(transport="http", host="127.0.0.1", port=int(sys.argv[3]), show_banner=False, log_level="error")


if __name__ == "__main__":
    main()
