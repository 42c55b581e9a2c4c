"""Membership of a process among those that share a store."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from sqlalchemy import Connection

from smart_mcp_proxy.catalog.store.repository import Archive
from smart_mcp_proxy.catalog.store.store import StorageError, Store
from smart_mcp_proxy.catalog.tables import instances, tools
from smart_mcp_proxy.catalog.tables.instances import Instance


class Membership(Archive):
    """The part of a catalog by which processes know of each other."""

    def __init__(self, database: Store, *, clock: Callable[[], float]) -> None:
        super().__init__(database, clock=clock)
        self._instance: Instance | None = None
        self._unsaved_syncs: dict[str, float] = {}
        self._gateways: tuple[Instance, ...] = ()

    @property
    def gateways(self) -> tuple[Instance, ...]:
        """The living gateways that serve, as of the last heartbeat, oldest first; this one too, if it serves.

        While the store fails they are those of the last heartbeat that it took.
        """
        return self._gateways

    @property
    def other_gateways(self) -> tuple[Instance, ...]:
        """The same without this process."""
        own = None if self._instance is None else self._instance.id
        return tuple(one for one in self._gateways if one.id != own)

    async def register_instance(self, pid: int, servers: Collection[str], *, serves: bool = True) -> Instance:
        """Tells other processes that this one lives and uses `servers`; again, when these change.

        Args:
            pid: Process id.
            servers: Names of its servers.
            serves: Whether agents call through it, so that it needs its share of limits; not asked again.
        """
        return await self._database.run(partial(self._register, pid, tuple(sorted(servers)), serves=serves))

    async def heartbeat(self) -> None:
        """Tells other processes that this one still lives, and drops those not heard of for 30 s.

        Raises:
            RuntimeError: `register_instance` was not called before.
        """
        await self._database.run(self._beat)

    # From here on: in the database's thread.

    def _register(self, pid: int, servers: tuple[str, ...], *, serves: bool) -> Instance:
        now_s = self.now_s()
        if self._instance is not None:
            self._instance = replace(self._instance, pid=pid, servers=servers)
            self._beat()
            return self._instance

        def register(connection: Connection) -> tuple[Instance, tuple[Instance, ...]]:
            own = instances.register(connection, pid, servers, now_s, serves=serves)
            return own, instances.live_instances(connection, now_s)

        try:
            self._instance, living = self._write(register)
        except StorageError:
            self._instance = Instance(instances.UNREGISTERED, pid, now_s, now_s, servers, serves)
        else:
            self._note(living)
        return self._instance

    def _register_again(self, connection: Connection, now_s: float) -> Instance | None:
        """Register this process in a store that does not know it."""
        own = self._instance
        if own is None:
            return None
        return instances.register(connection, own.pid, own.servers, now_s, serves=own.serves)

    def _beat(self) -> None:
        if self._instance is None:
            raise RuntimeError("heartbeat before register_instance")
        instance = self._instance = replace(self._instance, heartbeat_s=self.now_s())

        def beat(connection: Connection) -> tuple[Instance, ...]:
            instances.beat(connection, instance)
            tools.note_syncs(connection, self._unsaved_syncs)
            return instances.live_instances(connection, instance.heartbeat_s)

        try:
            living = self._write(beat, is_ordered=False)
        except StorageError:
            return  # said already; other processes take this one for dead until the file is back
        self._unsaved_syncs.clear()
        self._note(living)

    def _note(self, living: tuple[Instance, ...]) -> None:
        self._gateways = tuple(one for one in living if one.serves)

    def _farewell(self, connection: Connection) -> None:
        """Leave nothing undone that waits for the next heartbeat, and remove this process."""
        tools.note_syncs(connection, self._unsaved_syncs)
        if self._instance is not None:
            instances.unregister(connection, self._instance)
