"""Entrances for operators, which servers that run on this machine may not take."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NoReturn

from anyio import to_thread

from smart_mcp_proxy.errors import RefusedError
from smart_mcp_proxy.io.server_processes import (
    Address,
    Peer,
    ServerProcesses,
    find_connection,
    is_still,
    may_gain_privileges,
)
from smart_mcp_proxy.telemetry import Activity, get_logger

TELL_S: Final = 60.0
"""The log and the activity log tell this often that processes of a server are refused."""
REFUSED_CHANGE: Final = "operator's door"
"""By which the activity log knows them."""

log = get_logger("doors")


@dataclass(eq=False, repr=False)
class OperatorDoors:
    """Refuses processes of servers: an approval means nothing that a server can give itself.

    Attributes:
        running: Names of the servers that run, by the process of each.
        names: Of all servers.
        record: Takes activity records.
        clock: Monotonic seconds.

    Source: docs/design/processes.md#the-operators-doors
    """

    running: Callable[[], Mapping[int, str]]
    names: Callable[[], Iterable[str]]
    record: Callable[[Activity], None]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._told_s: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<OperatorDoors, {len(self._told_s)} servers refused>"

    def check_peer(self, peer: Peer | None) -> None:
        """Let in the process at the other end of a Unix socket, if it is no server's or cannot be told.

        Raises:
            RefusedError: It is, or may be, a process of a server.
        """
        # One outside of the container is no child of ours.
        if peer is None or peer.pid == 0 or _is_strangers(peer.uid):
            return
        server = ServerProcesses(self.running(), self.names()).find_server(peer.pid)
        is_confined = not may_gain_privileges(peer.pid) and may_gain_privileges(os.getpid())
        if server is not None:
            self._refuse(server, _build_server_error(server, f"Process {peer.pid}"))
        if is_confined:
            self._refuse("", _build_confined_error(peer.pid))
        if not is_still(peer):  # asked last: what was read before may be of a later process with its number
            self._refuse("", _build_gone_error())

    async def check_connection(self, client: Address | None, server: Address | None, *, is_read: bool = False) -> None:
        """Let in who made a TCP connection, as far as that is a process of this machine.

        Args:
            client: The other end.
            server: Ours.
            is_read: Nothing is changed: who has left learns nothing, as a browser that goes to another page, and is
                not told of.

        Raises:
            RefusedError: It is, or may be, a process of a server.
        """
        if client is None or server is None:
            return
        try:
            found = await to_thread.run_sync(find_connection, client, server)
        except OSError:  # the system has no such table
            return
        is_local = client[0] == server[0] or ip_address(client[0].partition("%")[0]).is_loopback
        if found.inode == 0 if found is not None else is_local:
            if is_read:
                raise _build_gone_error()
            self._refuse("", _build_gone_error())
        if found is not None and not _is_strangers(found.uid):
            processes = ServerProcesses(self.running(), self.names())  # not in a thread: servers come and go meanwhile
            holder = await to_thread.run_sync(processes.find_holder, found.inode)
            if holder is not None:
                self._refuse(holder, _build_server_error(holder, f"The process at port {client[1]}"))

    def _refuse(self, server: str, error: RefusedError) -> NoReturn:
        now_s = self.clock()
        if self._told_s.get(server, -TELL_S) + TELL_S <= now_s:
            self._told_s[server] = now_s
            log.warning("refused at the operator's door: %s", error.message)
            facts = {"change": REFUSED_CHANGE, "reason": error.message}
            self.record(Activity("config", "local", server, error.error_code, 0.0, time.time(), facts, server=server))
        raise error


def _build_server_error(server: str, caller: str) -> RefusedError:
    owner = f"server {server!r}" if server else "a server of this gateway or another"
    return RefusedError(
        f"{caller} belongs to {owner}, and servers may not do what is for their operator.",
        hint="Run it in a terminal that no server started.",
        code="server_process",
    )


def _build_confined_error(pid: int) -> RefusedError:
    return RefusedError(
        f"Process {pid} may gain no privileges (NoNewPrivs in /proc/{pid}/status), like a server in a sandbox, and the "
        "gateway may: it cannot be told from one.",
        hint="Run it outside of the sandbox, bubblewrap, Flatpak or unit with NoNewPrivileges=yes; or start the "
        "gateway with NoNewPrivs as well: setpriv --no-new-privs mcpproxy serve",
        code="server_process",
    )


def _build_gone_error() -> RefusedError:
    return RefusedError(
        "The process that asked has ended, or closed its connection: it cannot be told from a server's.",
        hint="Run it again in a terminal that no server started, and wait for the answer.",
        code="server_process",
    )


def _is_strangers(uid: int) -> bool:
    """Whether a process of this user is none of a server: only root's can become another's."""
    return os.geteuid() not in (0, uid)
