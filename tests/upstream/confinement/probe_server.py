"""A harmless server on stdio that says what it could open; it reads, changes and sends nothing."""

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable


def can(attempt: Callable[[], object]) -> bool:
    """Whether it is let."""
    try:
        attempt()
    except OSError:
        return False
    return True


def open_file(path: str, flags: int) -> None:
    """Open and close a file."""
    os.close(os.open(path, flags))


def reach(kind: int, address: object) -> None:
    """Connect and hang up."""
    with socket.socket(kind, socket.SOCK_STREAM) as connection:
        connection.settimeout(2)
        connection.connect(address)


def open_through(make: Callable[[str, str], None], path: str) -> None:
    """Open a file by another name in the home, which is taken away again."""
    name = os.path.join(os.environ["HOME"], "another-name")
    make(path, name)
    try:
        open_file(name, os.O_RDONLY)
    finally:
        os.unlink(name)


def take_descriptor(pid: int) -> None:
    """Copy a descriptor of another process, and close the copy."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    process = os.pidfd_open(pid)
    try:
        copy = call(438, process, 0, 0)  # pidfd_getfd, the same number on all processors
        if copy < 0:
            raise OSError(ctypes.get_errno(), "refused")
        os.close(copy)
    finally:
        os.close(process)


def find_inherited(first: int) -> None:
    """Find a descriptor from this one on that nobody here has opened."""
    if not any(can(lambda fd=fd: os.fstat(fd)) for fd in range(first, 256)):
        raise OSError


ATTEMPTS: dict[str, Callable[[str], object]] = {
    "read": lambda path: open_file(path, os.O_RDONLY),
    "write": lambda path: open_file(path, os.O_WRONLY | os.O_APPEND),
    "list": os.listdir,
    "socket": lambda path: reach(socket.AF_UNIX, path),
    "abstract": lambda name: reach(socket.AF_UNIX, f"\0{name}"),
    "port": lambda port: reach(socket.AF_INET, ("127.0.0.1", int(port))),
    "signal": lambda pid: os.kill(int(pid), 0),
    "environment": lambda pid: open_file(f"/proc/{pid}/environ", os.O_RDONLY),
    "memory": lambda pid: open_file(f"/proc/{pid}/mem", os.O_RDONLY),
    "link": lambda path: open_through(os.link, path),
    "symlink": lambda path: open_through(os.symlink, path),
    "root": lambda pid: open_file(f"/proc/{pid}/root/etc/hostname", os.O_RDONLY),
    "descriptor": lambda pid: take_descriptor(int(pid)),
    "inherited": lambda first: find_inherited(int(first)),
    "arguments": lambda pid: open_file(f"/proc/{pid}/cmdline", os.O_RDONLY),
}


def probe(wanted: list[str]) -> list[str]:
    """Those of the attempts, each `KIND:WHAT`, that succeed."""
    parts = [(each, *each.partition(":")[::2]) for each in wanted]
    return [each for each, kind, what in parts if can(lambda kind=kind, what=what: ATTEMPTS[kind](what))]


def probe_as_grandchild(wanted: list[str], *, is_detached: bool) -> list[str]:
    """The same in a process of its own, in a session of its own whose parent is gone if it is detached."""
    words = [sys.executable, __file__, "--probe", *wanted]
    if is_detached:
        words = ["/bin/sh", "-c", 'setsid "$@" & wait', "sh", *words]
    done = subprocess.run(words, capture_output=True, check=True)
    return json.loads(done.stdout)


def answer(method: str, params: dict) -> dict:
    """The result of a request."""
    if method == "initialize":
        info = {"name": "probe", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"wanted": {"type": "array"}, "how": {"type": "string"}}}
        return {"tools": [{"name": "probe", "description": "Says what it can open.", "inputSchema": schema}]}
    wanted, how = params["arguments"]["wanted"], params["arguments"].get("how", "self")
    found = probe(wanted) if how == "self" else probe_as_grandchild(wanted, is_detached=how == "detached")
    return {"content": [{"type": "text", "text": json.dumps(found)}]}


def main() -> None:
    """Serve until the input ends."""
    if "--probe" in sys.argv:
        print(json.dumps(probe(sys.argv[sys.argv.index("--probe") + 1 :])))
        return
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = answer(request["method"], request.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
