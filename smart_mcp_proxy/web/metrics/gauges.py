"""Present figures of a gateway, read when they are asked for."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from smart_mcp_proxy import __version__
from smart_mcp_proxy.gateway import Gateway, GatewayStatus
from smart_mcp_proxy.gateway.observability.metrics import Family, Sample
from smart_mcp_proxy.models import ServerState

_STATM: Final = Path("/proc/self/statm")
_COUNTED: Final = ("mcpproxy_server_reconnects", "mcpproxy_process_cpu_seconds")
"""Figures that only grow."""


def gauges(gateway: Gateway) -> list[Family]:
    """All figures that are not counted but looked up."""
    status = gateway.status()
    states = [((server.name, server.state.value), 1) for server in status.servers]
    return [
        _family("mcpproxy_server_state", "1 for the state that a server is in.", ("server", "state"), states),
        *(
            _family(name, help, ("server",), [((server,), value) for server, value in values.items()])
            for name, help, values in _list_server_figures(gateway, status)
        ),
        *(_family(name, help, (), [((), value)]) for name, help, value in _list_own_figures(gateway, status)),
        _family("mcpproxy_build_info", "1, with the version.", ("version",), [((__version__,), 1)]),
    ]


def _list_server_figures(gateway: Gateway, status: GatewayStatus) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    load, servers = gateway.lists.admission.places.load(), {server.name: server for server in status.servers}
    ready = {name: int(server.state is ServerState.READY) for name, server in servers.items()}
    broken = {name: int(server.breaker != "closed") for name, server in servers.items()}
    restarts = {name: server.restarts for name, server in servers.items()}
    running, queued = ({name: load.get(name, (0, 0))[place] for name in servers} for place in (0, 1))
    waiting = {name: status.waiting.get(name, 0) for name in status.tools}
    held_back = "Whether calls to a server are held back because it keeps failing."
    yield "mcpproxy_server_ready", "Whether a server is connected.", ready
    yield "mcpproxy_server_breaker_open", held_back, broken
    yield "mcpproxy_server_reconnects", "Connections to a server after the first one.", restarts
    yield "mcpproxy_server_calls_in_flight", "Requests to a server that are under way.", running
    yield "mcpproxy_server_calls_queued", "Requests to a server that wait for their turn.", queued
    yield "mcpproxy_server_tools", "Tools of a server that agents may find.", status.tools
    yield "mcpproxy_server_tools_waiting", "Tools of a server that wait for approval.", waiting


def _list_own_figures(gateway: Gateway, status: GatewayStatus) -> Iterator[tuple[str, str, float]]:
    done, total = status.embedded or (0, 0)
    under_way, degraded = sum(visitor.under_way for visitor in status.visitors), len(status.degraded)
    cpu_s = time.process_time()
    yield "mcpproxy_index_tools", "Tools in the search index.", len(gateway.base.index)
    yield "mcpproxy_embedding_backlog", "Tools without their vector; 0 where no vectors rank.", total - done
    yield "mcpproxy_catalog_tokens", "Estimated tokens of all definitions.", status.catalog_tokens
    yield "mcpproxy_sessions", "Connected clients of the handshake era.", len(status.sessions)
    yield "mcpproxy_client_requests", "Requests of clients of the modern era that are under way.", under_way
    yield "mcpproxy_degraded", "Reasons why answers are worse than the settings ask for.", degraded
    yield "mcpproxy_gateways", "Gateways that serve on the store.", len(status.gateways)
    yield "mcpproxy_process_cpu_seconds", "Processor time of the gateway, without its servers.", cpu_s
    with suppress(OSError, ValueError, IndexError):  # Linux alone has it
        pages = int(_STATM.read_text("ascii").split()[1])
        yield "mcpproxy_process_resident_bytes", "Memory of the gateway.", pages * os.sysconf("SC_PAGE_SIZE")


def _family(name: str, help: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    kind: Literal["counter", "gauge"] = "counter" if name in _COUNTED else "gauge"
    return Family(name, kind, help, labels, [Sample(*each) for each in values])
