"""Entrances that servers of this machine may not take: operators', and open ones of agents."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NoReturn

import msgspec
from anyio import to_thread

from smart_mcp_proxy.errors import RefusedError
from smart_mcp_proxy.io.server_processes import (
    Address,
    Peer,
    ServerProcesses,
    Strangers,
    ask_connection,
    find_connection,
    is_still,
    may_gain_privileges,
)
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import Activity, get_logger

TELL_S: Final = 60.0
"""The log and the activity log tell this often that processes of a server are refused."""
REFUSED_CHANGE: Final = "operator's door"
"""By which the activity log knows them."""

log = get_logger("doors")


@dataclass(eq=False, repr=False)
class OperatorDoors:
    """Refuses processes of servers: an approval means nothing that a server can give itself.

    Where agents need no token they are refused as well: one in a sandbox would call tools of those that have none.

    Attributes:
        running: Names of the servers that run, by the process of each.
        servers: All of them.
        record: Takes activity records.
        clock: Monotonic seconds.

    Source: docs/design/processes.md#the-operators-doors
    """

    running: Callable[[], Mapping[int, str]]
    servers: Callable[[], Mapping[str, ServerConfig]]
    record: Callable[[Activity], None]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._told: dict[str, tuple[float, int]] = {}
        self._strangers = Strangers()

    def __repr__(self) -> str:
        return f"<OperatorDoors, {len(self._told)} servers refused>"

    def check_peer(self, peer: Peer | None, *, is_agent: bool = False) -> None:
        """Let in the process at the other end of a Unix socket, if it is no server's or cannot be told.

        Args:
            peer: The process.
            is_agent: It asks for tools. Such clients may stand in a sandbox of their own.

        Raises:
            RefusedError: It is, or may be, a process of a server.
        """
        # One outside of the container is no child of ours.
        if peer is None or peer.pid == 0 or _is_strangers(peer.uid):
            return
        server = ServerProcesses(self.running(), self.servers()).find_server(peer.pid)
        is_confined = not is_agent and not may_gain_privileges(peer.pid) and may_gain_privileges(os.getpid())
        if server is not None:
            self._refuse(
                server, _build_server_error(server, f"Process {peer.pid}", is_agent), peer.pid if is_agent else 0
            )
        if is_confined:
            self._refuse("", _build_confined_error(peer.pid))
        if not is_still(peer):  # asked last: what was read before may be of a later process with its number
            self._refuse("", _build_gone_error())

    async def check_connection(
        self, client: Address | None, server: Address | None, *, is_read: bool = False, is_agent: bool = False
    ) -> None:
        """Let in who made a TCP connection, as far as that is a process of this machine.

        Args:
            client: The other end.
            server: Ours.
            is_read: Nothing is changed: who has left learns nothing, as a browser that goes to another page, and is
                not told of.
            is_agent: It asks for tools, without a token.

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
            if is_read or is_agent:
                raise _build_gone_error()
            self._refuse("", _build_gone_error())
        if found is not None and not _is_strangers(found.uid):
            # Not in a thread: servers come and go meanwhile.
            processes = ServerProcesses(self.running(), self.servers())
            strangers = self._strangers if is_agent else None
            if (holder := await to_thread.run_sync(processes.find_holder, found.inode, strangers)) is not None:
                name, pid = holder
                error = _build_server_error(name, f"Process {pid} at port {client[1]}", is_agent)
                self._refuse(name, error, pid if is_agent else 0)

    def knows(self, client: Address | None, server: Address | None) -> bool:
        """Whether a connection of an agent can be let in at once: a process that was let in before made it."""
        if client is None or server is None or not self._has_processes():
            return True
        found = ask_connection(client, server)
        if found is None or found.inode == 0:
            return False
        return _is_strangers(found.uid) or self._strangers.hold(found.inode, is_near=True)

    def _has_processes(self) -> bool:
        """Whether a server is started here, also one whose command makes a container."""
        return any(each.transport == "stdio" for each in self.servers().values())

    def _refuse(self, server: str, error: RefusedError, pid: int = 0) -> NoReturn:
        """Tell it once a minute and server; of an agent's process, whose number is given, once only."""
        now_s = self.clock()
        told_s, told_of = self._told.get(server, (-TELL_S, 0))
        if told_s + TELL_S <= now_s and (pid == 0 or pid != told_of):
            self._told[server] = now_s, pid
            log.warning("refused: %s", error.message)
            facts = {"change": REFUSED_CHANGE, "reason": error.message}
            self.record(Activity("config", "local", server, error.error_code, 0.0, time.time(), facts, server=server))
        raise error


class AgentCaller(msgspec.Struct, eq=False):
    """The process at the other end of an agent's connection, which is looked at once.

    Attributes:
        doors: Find out whose process it is.
        client: Its end of the connection.
        server: Our end.
        is_let_in: Whether it is known to be no server's.
    """

    doors: OperatorDoors
    client: Address | None
    server: Address | None
    is_let_in: bool = False

    def is_known(self) -> bool:
        """Whether it is let in, as far as that can be said at once."""
        self.is_let_in = self.is_let_in or self.doors.knows(self.client, self.server)
        return self.is_let_in

    async def check(self) -> None:
        """Let it in, if it is no server's or cannot be told.

        Raises:
            RefusedError: It is, or may be, a process of a server.
        """
        if not self.is_known():
            await self.doors.check_connection(self.client, self.server, is_agent=True)
            self.is_let_in = True


def _build_server_error(server: str, caller: str, is_agent: bool) -> RefusedError:
    owner = f"server {server!r}" if server else "a server of this gateway or another"
    deed = "call tools without a token" if is_agent else "do what is for their operator"
    token = " Or give it a token of its own, if it is to call them: mcpproxy token create NAME" if is_agent else ""
    return RefusedError(
        f"{caller} belongs to {owner}, and servers may not {deed}.",
        hint=f"Run it in a terminal that no server started.{token}",
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
