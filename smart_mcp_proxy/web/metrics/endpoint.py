"""The address for Prometheus: with the operator's token, or on a port of its own."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import request_response
from starlette.types import ASGIApp

from smart_mcp_proxy import __version__
from smart_mcp_proxy.errors import ConfigError, ProxyError
from smart_mcp_proxy.gateway import Gateway, GatewayStatus
from smart_mcp_proxy.gateway.admin import roles
from smart_mcp_proxy.gateway.observability.metrics import Family, Sample
from smart_mcp_proxy.models import ServerState
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.web.common.messages import json_response
from smart_mcp_proxy.web.common.paths import serve_beside
from smart_mcp_proxy.web.common.refusals import guard_app, is_loopback
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.metrics.exposition import encode_metrics
from smart_mcp_proxy.web.rest.route import Admit
from smart_mcp_proxy.web.server.uvicorn_server import serve_app

METRICS_PATH: Final = "/metrics"

log = get_logger("metrics")
FIGURES: Final = b"m"
"""Kind of the parcels that ask for them."""
_LABEL: Final = "worker"
_decoder = msgspec.json.Decoder(list[Family])
_STATM: Final = Path("/proc/self/statm")
_COUNTED: Final = ("mcpproxy_server_reconnects", "mcpproxy_process_cpu_seconds")
"""Figures that only grow."""


def serve_metrics_beside(app: ASGIApp, gateway: Gateway, admit: Admit) -> ASGIApp:
    """Serve the figures at their own path to the operator.

    Args:
        app: Everything else.
        gateway: Counts.
        admit: Tells who sends a request.
    """
    if not gateway.settings.metrics or gateway.base.metrics is None:
        return app
    figures = guard_app(_answer_figures(Gathering(gateway), admit), gateway.settings)
    return serve_beside(app, figures, lambda path: path.rstrip("/") == METRICS_PATH)


def _answer_figures(gathering: "Gathering", admit: Admit | None = None) -> ASGIApp:
    """Answer with the figures.

    Args:
        gathering: Collects them.
        admit: Tells who sends a request; None lets in whoever can connect.
    """

    async def answer(request: Request) -> Response:
        if request.url.path.rstrip("/") != METRICS_PATH:
            return Response(status_code=404)
        if request.method not in ("GET", "HEAD"):
            return Response(status_code=405, headers={"allow": "GET, HEAD"})
        try:
            if admit is not None:
                operation = roles.REST[f"GET {METRICS_PATH}"]
                admitted = await admit(request, operation)
                roles.require_role(None if admitted is None else admitted.role, operation)
        except ProxyError as error:
            return json_response({"error": error.to_dict()}, error)
        families = await gathering.families()
        text, content_type = await to_thread.run_sync(encode_metrics, families, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type, "cache-control": "no-store"})

    return request_response(answer)


@asynccontextmanager
async def serve_metrics(gateway: Gateway) -> AsyncIterator[None]:
    """Serve the figures on the port that the settings name while open.

    Of several workers the first one does. Where the port is taken, by a gateway for another window for example, this
    one goes on without it.
    """
    port = gateway.settings.metrics_port
    if port is None or gateway.base.metrics is None:
        yield
        return
    gathering = Gathering(gateway)
    if gateway.base.worker.number != 0:
        yield
        return
    try:
        listener = bind(gateway.settings.host, port)
    except ConfigError as exc:
        log.warning("no metrics are served: %s", exc)
        yield
        return
    figures = _answer_figures(gathering)
    if is_loopback(gateway.settings.host):  # from elsewhere it has whatever name the monitoring system knows
        figures = guard_app(figures, gateway.settings)
    async with serve_app(figures, listener):
        yield


class Gathering:
    """Collects the figures of a gateway, and of the workers beside it.

    Args:
        gateway: Counts.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._worker = gateway.base.worker
        if not self._worker.is_alone:
            self._worker.answer(FIGURES, lambda _: msgspec.json.encode(self._own()))

    async def families(self) -> list[Family]:
        """All figures; where there are several workers each has its number as a label.

        Those of a worker that does not answer are missing.
        """
        own = self._own()
        if self._worker.is_alone:
            return own
        others = [number for number in range(self._worker.count) if number != self._worker.number]
        answers = await asyncio.gather(*(self._worker.ask(number, FIGURES) for number in others))
        told = {number: _decoder.decode(text) for number, text in zip(others, answers, strict=True) if text is not None}
        return merge_families({self._worker.number: own, **told})

    def _own(self) -> list[Family]:
        metrics = self._gateway.base.metrics
        return [*(metrics.families() if metrics is not None else ()), *gauges(self._gateway)]


def merge_families(found: dict[int, Sequence[Family]]) -> list[Family]:
    """The families of several workers as one each, by the worker's number as a label."""
    families: dict[str, Family] = {}
    for number, ones in sorted(found.items()):
        for one in ones:
            labels = (*one.labels, _LABEL)
            family = families.setdefault(one.name, Family(one.name, one.kind, one.help, labels, []))
            family.samples.extend(
                Sample((*sample.labels, str(number)), sample.value, sample.buckets) for sample in one.samples
            )
    return list(families.values())


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
