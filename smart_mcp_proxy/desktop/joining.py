"""Connection to the gateway of a user, data directory and server file, which is started if need be."""

import errno
import json
import os
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

from smart_mcp_proxy import __version__
from smart_mcp_proxy.desktop.places import (
    CONFIG_NAME,
    PREFIX,
    data_directory,
    make_private,
    meeting_point,
    names_relative_files,
    read_network,
    read_option,
    server_source,
    shared_socket,
)
from smart_mcp_proxy.desktop.withholding import is_reference


class Place:
    """The gateway that a client wants, whether it runs or not.

    Args:
        words: The client's command line.
        environ: Its environment.

    Raises:
        OSError: Its working directory is gone.
    """

    def __init__(self, words: list[str], environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._data_dir = data_directory(environ)
        self._directory = os.getcwd()
        self._source = server_source(words, environ)
        self._has_relative_files = names_relative_files(self._source, environ)
        self._meeting_point = meeting_point(words, environ)
        self._profile = read_option("--profile", words) or ""
        self.path = shared_socket(self._data_dir, self._meeting_point)

    @property
    def log(self) -> str:
        """File of what a gateway in the background writes to stderr."""
        return os.path.join(self._data_dir, "run", "background.log")

    def hello(self) -> bytes:
        """The first line that the gateway is sent."""
        # A server file in a variable is long, and part of the source.
        wanted = (each for each in self._environ if each.startswith(PREFIX) and each != f"{PREFIX}CONFIG_JSON")
        settings = {name: text for name in wanted if (text := self._environ[name])}
        said = {
            "version": __version__,
            "pid": os.getpid(),
            "directory": self._directory,
            "data_dir": os.path.realpath(self._data_dir),
            "source": self._meeting_point,
            "profile": self._profile,
            "settings": settings,
            "network": read_network(),
        }
        return json.dumps({"join": said}).encode() + b"\n"

    def tell_variables(self, names: list[Any]) -> bytes:
        """The values of variables that the server file names, as far as this client has them."""
        here = {name: self._environ[name] for name in names if name in self._environ}
        values = {name: text for name, text in here.items() if not is_reference(name, text)}
        return json.dumps({"variables": values}).encode() + b"\n"

    def connect(self) -> socket.socket:
        """A connection to the gateway, which is started if it does not run. It need not have answered yet.

        Raises:
            OSError: Nothing can be started here.
        """
        if (found := self._find()) is not None:
            return found
        # Here and not above: who joins a gateway that runs does without it.
        from smart_mcp_proxy.desktop.background import listen_at, lock_socket

        with lock_socket(self.path):
            if (found := self._find()) is None:
                with listen_at(self.path) as listener:
                    self._start(listener)
                    found = self._find()
        if found is None:
            raise ConnectionRefusedError(0, "The gateway's socket is not there", self.path)
        return found

    def _find(self) -> socket.socket | None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.connect(self.path)
            if (owner := peer_uid(link)) not in (None, os.getuid()):
                raise PermissionError(errno.EPERM, f"The gateway at this socket is of user {owner}", self.path)
        except (FileNotFoundError, ConnectionRefusedError):
            link.close()
            return None
        except OSError as exc:
            link.close()
            exc.filename = self.path
            raise
        return link

    def _start(self, listener: socket.socket) -> None:
        from smart_mcp_proxy.desktop.background import start_in_background
        from smart_mcp_proxy.desktop.variables import select_own

        make_private(os.path.dirname(self.log))
        if not os.path.exists(self.log) and os.path.exists(os.path.join(self._data_dir, "proxy.db")):
            sys.stderr.write(
                "Clients now share one gateway in the background: mcpproxy status shows it, mcpproxy serve --alone has "
                "one for its client.\n"
            )
        environ = select_own(self._environ)
        if os.path.isfile(self._source):
            environ[f"{PREFIX}CONFIG_PATH"] = self._source
        environ[f"{PREFIX}TRANSPORT"] = "stdio"
        folder = self._choose_folder(environ.get("HOME", ""))
        start_in_background(["serve", "--background"], listener, environ, folder, self.log)

    def _choose_folder(self, home: str) -> str:
        """The working directory of the gateway: the client's only where the server file's words depend on it."""
        if self._has_relative_files:
            return self._directory
        if not os.path.isfile(self._source):
            return self._data_dir
        if self._source == os.path.realpath(os.path.join(self._directory, CONFIG_NAME)):
            return os.path.dirname(self._source)
        return home if os.path.isdir(home) else self._data_dir


def peer_pid(link: socket.socket) -> int:
    """The process at the other end of a Unix socket.

    Raises:
        OSError: The system does not say.
    """
    # Of macOS LOCAL_PEERPID at level SOL_LOCAL.
    level, option = (socket.SOL_SOCKET, socket.SO_PEERCRED) if hasattr(socket, "SO_PEERCRED") else (0, 2)
    return int.from_bytes(link.getsockopt(level, option, 4), sys.byteorder)


def peer_uid(link: socket.socket) -> int | None:
    """The user at the other end of a Unix socket; None where the system does not say."""
    if hasattr(socket, "SO_PEERCRED"):
        _, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return int(uid)
    if sys.platform == "darwin":
        # LOCAL_PEERCRED at level SOL_LOCAL gives a version, the user, and groups.
        _, uid = struct.unpack("2I", link.getsockopt(0, 1, 8))
        return int(uid)
    return None
