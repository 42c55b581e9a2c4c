"""Program that starts a command in a network of its own, and hands what listens there to the gateway.

Arguments: descriptor of a socket that the gateway holds the other end of, places to listen at (`ADDRESS:PORT`,
separated by commas), the command. In that network there is nothing but what the gateway serves.

Runs on its own with `python -I -S`: the standard library only.

Source: https://man7.org/linux/man-pages/man7/network_namespaces.7.html,
https://man7.org/linux/man-pages/man7/user_namespaces.7.html
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_SET_FLAGS, _UP = 0x8914, 1


def main() -> None:
    """Become the command, or tell the gateway why not."""
    with socket.socket(fileno=int(sys.argv[1])) as gateway:
        try:
            _leave_network()
            listeners = [_listen(*place.rsplit(":", 1)) for place in sys.argv[2].split(",")]
            socket.send_fds(gateway, [b"ready"], [listener.fileno() for listener in listeners])
        except OSError as error:
            gateway.sendall(str(error).encode())
            sys.exit(1)
    os.execv(sys.argv[3], sys.argv[3:])  # descriptors of ours close with it


def _leave_network() -> None:
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER | _NEW_NETWORK):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    with socket.socket() as end:
        fcntl.ioctl(end, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


def _listen(address: str, port: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, int(port)), family=family)


if __name__ == "__main__":
    main()
