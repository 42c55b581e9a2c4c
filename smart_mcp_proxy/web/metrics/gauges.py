"""Present figures of a gateway, read when they are asked for."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from smart_mcp_proxy import __version__
from smart_mcp_proxy.gateway import Gateway, GatewayStatus
from smart_mcp_proxy.gateway.observability.metrics import Family, Sample
from smart_mcp_proxy.models import ServerState

_STATM: Final = Path("/proc/self/statm")


def gauges(gateway: Gateway) -> list[Family]:
    """All figures that are not counted but looked up."""
    status = gateway.status()
    return [*_servers(gateway, status), *_tools(gateway, status), *_clients(gateway, status), *_process(status)]


def _servers(gateway: Gateway, status: GatewayStatus) -> list[Family]:
    load = gateway.lists.admission.places.load()
    names = [server.name for server in status.servers]
    servers = ("server",)
    return [
        Family(
            "mcpproxy_server_state",
            "gauge",
            "1 for the state that a server is in.",
            ("server", "state"),
            [Sample((server.name, server.state.value), 1) for server in status.servers],
        ),
        Family(
            "mcpproxy_server_ready",
            "gauge",
            "Whether a server is connected.",
            servers,
            [Sample((server.name,), int(server.state is ServerState.READY)) for server in status.servers],
        ),
        Family(
            "mcpproxy_server_breaker_open",
            "gauge",
            "Whether calls to a server are held back because it keeps failing.",
            servers,
            [Sample((server.name,), int(server.breaker != "closed")) for server in status.servers],
        ),
        Family(
            "mcpproxy_server_reconnects",
            "counter",
            "Connections to a server after the first one.",
            servers,
            [Sample((server.name,), server.restarts) for server in status.servers],
        ),
        Family(
            "mcpproxy_server_calls_in_flight",
            "gauge",
            "Requests to a server that are under way.",
            servers,
            [Sample((name,), load.get(name, (0, 0))[0]) for name in names],
        ),
        Family(
            "mcpproxy_server_calls_queued",
            "gauge",
            "Requests to a server that wait for their turn.",
            servers,
            [Sample((name,), load.get(name, (0, 0))[1]) for name in names],
        ),
    ]


def _tools(gateway: Gateway, status: GatewayStatus) -> list[Family]:
    servers = ("server",)
    done, total = status.embedded or (0, 0)
    return [
        Family(
            "mcpproxy_server_tools",
            "gauge",
            "Tools of a server that agents may find.",
            servers,
            [Sample((name,), count) for name, count in status.tools.items()],
        ),
        Family(
            "mcpproxy_server_tools_waiting",
            "gauge",
            "Tools of a server that wait for approval.",
            servers,
            [Sample((name,), status.waiting.get(name, 0)) for name in status.tools],
        ),
        _single("mcpproxy_index_tools", "Tools in the search index.", len(gateway.base.index)),
        _single("mcpproxy_embedding_backlog", "Tools without their vector; 0 where no vectors rank.", total - done),
        _single("mcpproxy_catalog_tokens", "Estimated tokens of all definitions.", status.catalog_tokens),
    ]


def _clients(gateway: Gateway, status: GatewayStatus) -> list[Family]:
    under_way = sum(visitor.under_way for visitor in status.visitors)
    return [
        _single("mcpproxy_sessions", "Connected clients of the handshake era.", len(status.sessions)),
        _single("mcpproxy_client_requests", "Requests of clients of the modern era that are under way.", under_way),
        _single("mcpproxy_degraded", "Reasons why answers are worse than the settings ask for.", len(status.degraded)),
        _single("mcpproxy_gateways", "Gateways that serve on the store.", len(status.gateways)),
    ]


def _process(status: GatewayStatus) -> list[Family]:
    families = [
        Family("mcpproxy_build_info", "gauge", "1, with the version.", ("version",), [Sample((__version__,), 1)]),
        Family(
            "mcpproxy_process_cpu_seconds",
            "counter",
            "Processor time of the gateway, without its servers.",
            (),
            [Sample((), time.process_time())],
        ),
    ]
    with suppress(OSError, ValueError, IndexError):  # Linux alone has it
        pages = int(_STATM.read_text("ascii").split()[1])
        families.append(
            _single("mcpproxy_process_resident_bytes", "Memory of the gateway.", pages * os.sysconf("SC_PAGE_SIZE"))
        )
    return families


def _single(name: str, help: str, value: float) -> Family:
    return Family(name, "gauge", help, (), [Sample((), value)])
