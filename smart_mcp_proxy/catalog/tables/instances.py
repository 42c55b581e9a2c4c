"""SQL of instances: gateway processes on this data directory, and their servers."""

import json
from collections.abc import Collection

import msgspec
from sqlalchemy import Connection, delete, func, insert, select

from smart_mcp_proxy.catalog.tables.schema import instances
from smart_mcp_proxy.catalog.tables.upsert import replace_columns

UNREGISTERED = 0
"""Id of an instance that no file knows yet; stored ones begin at 1."""
INSTANCE_STALE_S = 30.0
"""A process that has not been heard of for so long is taken for dead: three missed beats of 10 s."""


class Instance(msgspec.Struct, frozen=True):
    """A gateway process on this data directory.

    Attributes:
        id: Never reused.
        pid: Process id.
        started_s: When it registered, in seconds since the epoch.
        heartbeat_s: When it was last heard of, in seconds since the epoch.
        servers: Names of the servers it uses.
        serves: Whether agents call through it; a command that opens a gateway for a moment does not serve.
    """

    id: int
    pid: int
    started_s: float
    heartbeat_s: float
    servers: tuple[str, ...]
    serves: bool = True


def register(
    connection: Connection, pid: int, servers: Collection[str], now_s: float, *, serves: bool = True
) -> Instance:
    """A new instance, heard of now."""
    names = tuple(sorted(servers))
    row = insert(instances).values(
        pid=pid, started=now_s, heartbeat=now_s, servers=json.dumps(names), serves=int(serves)
    )
    id_: int = connection.execute(row.returning(instances.c.id)).scalar_one()
    return Instance(id_, pid, now_s, now_s, names, serves)


def beat(connection: Connection, instance: Instance) -> None:
    """Stores `instance` as it is, even if it had been taken for dead, and drops those that are."""
    row = {
        "id": instance.id,
        "pid": instance.pid,
        "started": instance.started_s,
        "heartbeat": instance.heartbeat_s,
        "servers": json.dumps(instance.servers),
        "serves": int(instance.serves),
    }
    connection.execute(replace_columns(connection, instances, "heartbeat", "servers"), row)
    age_s = func.abs(instances.c.heartbeat - instance.heartbeat_s)
    connection.execute(delete(instances).where(age_s >= INSTANCE_STALE_S))


def live_instances(connection: Connection, now_s: float) -> tuple[Instance, ...]:
    """The processes heard of within the last 30 s, oldest first.

    A heartbeat far in the future is as stale as one far in the past: the clock was set back and its writer is gone,
    or it would have written again.
    """
    rows = connection.execute(
        select(instances).where(func.abs(instances.c.heartbeat - now_s) < INSTANCE_STALE_S).order_by(instances.c.id)
    )
    return tuple(
        Instance(row.id, row.pid, row.started, row.heartbeat, tuple(json.loads(row.servers)), bool(row.serves))
        for row in rows
    )


def unregister(connection: Connection, instance: Instance) -> None:
    """Removes an instance that ends."""
    connection.execute(delete(instances).where(instances.c.id == instance.id))
