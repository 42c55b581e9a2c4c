"""One row: so many clients that start at the same moment, and one that comes after them."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.desktop.client import Client, Times, start_all
from bench.desktop.tree import Usage, end_all, measure
from bench.desktop.ways import Place, Way
from bench.process import memory_kb

__all__ = ["Row", "measure_row", "median_row"]

_END_S = 15.0


@dataclass(frozen=True, slots=True)
class Row:
    """What the clients of one way cost.

    Attributes:
        processes: Without the servers.
        servers: Of which there are so many.
        own_rss_mb: Resident memory of gateways and doors.
        own_pss_mb: Same, shared pages divided.
        servers_rss_mb: Of the servers.
        servers_pss_mb: Same, shared pages divided.
        door_mb: Resident memory of what a client starts, the largest.
        cpu_s: Processor time of all until every client could call everything.
        first_search_s: From the spawn, the median client.
        slowest_search_s: Same, the last client.
        last_tool_s: From the spawn until every client had an answer of every server.
        next_search_s: First search of one more client.
        next_last_tool_s: Until it had an answer of every server.
        next_cpu_s: Processor time of all for it.
        next_rss_mb: What it adds.
        next_pss_mb: Same, shared pages divided.
        left: Processes that had to be killed at the end.
    """

    processes: int
    servers: int
    own_rss_mb: float
    own_pss_mb: float
    servers_rss_mb: float
    servers_pss_mb: float
    door_mb: float
    cpu_s: float
    first_search_s: float
    slowest_search_s: float
    last_tool_s: float
    next_search_s: float
    next_last_tool_s: float
    next_cpu_s: float
    next_rss_mb: float
    next_pss_mb: float
    left: int


def measure_row(way: Way, place: Place, count: int) -> Row:
    """Start, use and end everything once."""
    command = [str(place.config) if word == "CONFIG" else word for word in way.command]
    end = way.begin(place)
    clients: list[Client] = []
    try:
        before = measure(has_memory=False)
        start = time.perf_counter()
        clients, times = start_all(count, command, place.environ, place.log, way.dialect(), place.servers)
        used = measure()
        more, later = start_all(1, command, place.environ, place.log, way.dialect(), place.servers)
        clients += more
        row = _build(before, used, measure(), times, later[0], max(each.ended for each in times) - start, clients)
    finally:
        for client in clients:
            client.close()
        end()
        left = end_all(_END_S)
    return Row(**{**row, "left": left})


def _build(
    before: Usage, used: Usage, after: Usage, times: Sequence[Times], later: Times, whole_s: float,
    clients: Sequence[Client],
) -> dict[str, Any]:  # fmt: skip
    searches = [each.searched for each in times]
    return {
        "processes": used.own.processes,
        "servers": used.servers.processes,
        "own_rss_mb": used.own.rss_mb,
        "own_pss_mb": used.own.pss_mb,
        "servers_rss_mb": used.servers.rss_mb,
        "servers_pss_mb": used.servers.pss_mb,
        "door_mb": max(memory_kb(client.process.pid) for client in clients) / 1024,
        "cpu_s": used.cpu_s - before.cpu_s,
        "first_search_s": statistics.median(searches),
        "slowest_search_s": max(searches),
        "last_tool_s": whole_s,
        "next_search_s": later.searched,
        "next_last_tool_s": later.callable,
        "next_cpu_s": after.cpu_s - used.cpu_s,
        "next_rss_mb": after.own.rss_mb + after.servers.rss_mb - used.own.rss_mb - used.servers.rss_mb,
        "next_pss_mb": after.own.pss_mb + after.servers.pss_mb - used.own.pss_mb - used.servers.pss_mb,
    }


def median_row(rows: Sequence[Row]) -> Mapping[str, float]:
    """The median of each figure; of the processes left, all."""
    columns = [asdict(row) for row in rows]
    medians = {name: float(statistics.median(column[name] for column in columns)) for name in columns[0]}
    return {**medians, "left": sum(row.left for row in rows)}
