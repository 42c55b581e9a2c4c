"""Says at once whether `make run` will be able to listen: before anything is installed or fetched.

Usage: check_port.py [OPTIONS OF mcpproxy serve]; needs nothing but Python 3.9.
"""

import os
import runpy
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def wanted(words):
    """Host and port from `--host`, `--port` and the environment, as `mcpproxy serve` reads them."""
    found = {"host": os.environ.get("MCPPROXY_HOST") or "127.0.0.1", "port": os.environ.get("MCPPROXY_PORT") or "8000"}
    for place, word in enumerate(words):
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in found:
            found[name] = value if equals else "".join(words[place + 1 : place + 2])
    return found["host"], found["port"]


def describe_holder(port):
    """Says who has the port, where that can be seen; the gateway of `make run` has a command of its own."""
    find = runpy.run_path(str(ROOT / "smart_mcp_proxy" / "desktop" / "port_holder.py"))["find_port_holder"]
    holder = find(port)
    if holder.data_dir == str(ROOT / ".cache" / "run" / "data"):
        return f" The gateway of make run has it (process {holder.pid}). Open its page: make ui"
    if holder.data_dir:
        return f" A gateway has it (process {holder.pid}), with its data in {holder.data_dir}."
    return f" Process {holder.pid} ({holder.name}) has it." if holder.pid else ""


def main() -> int:
    host, port = wanted(sys.argv[1:])
    if not port.isdigit() or int(port) > 65535:
        return 0  # mcpproxy itself says what is wrong with it
    try:
        addresses = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(addresses, key=lambda each: each[0] != socket.AF_INET)
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
    except OSError as exc:
        sys.stderr.write(f"Port {port} on {host} cannot be used: {exc.strerror or exc}.{describe_holder(int(port))}\n")
        sys.stderr.write("Stop the program that uses it, or choose a free port: MCPPROXY_PORT=0 make run\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
