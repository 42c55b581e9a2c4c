"""Spans as tests read them, from an exporter in memory or from a collector that a gateway process sends them to."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from smart_mcp_proxy.gateway.observability.otel_edge import OtelSpans
from smart_mcp_proxy.gateway.observability.tracing import ID_RANGE, Sampler, Tracing

KINDS = {2: "SERVER", 3: "CLIENT"}
ALL = Sampler(ID_RANGE)


@dataclass(frozen=True)
class Seen:
    """A span that was exported."""

    name: str
    kind: str
    trace: str
    span: str
    parent: str
    facts: dict[str, Any]
    is_error: bool


def traced(sampler: Sampler = ALL) -> tuple[Tracing, Callable[[], list[Seen]]]:
    """Tracing into memory, and what it has exported since it was asked last."""
    exporter = InMemorySpanExporter()

    def take() -> list[Seen]:
        found = [_seen(span) for span in exporter.get_finished_spans()]
        exporter.clear()
        return found

    return Tracing(OtelSpans(exporter, is_batched=False), sampler), take


def _seen(span: ReadableSpan) -> Seen:
    context, parent = span.context, span.parent
    assert context is not None
    return Seen(
        span.name,
        span.kind.name,
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{parent.span_id:016x}" if parent is not None else "",
        dict(span.attributes or {}),
        not span.status.is_ok,
    )


@contextmanager
def collector() -> Iterator[tuple[str, list[Seen]]]:
    """Address of a collector on loopback that takes spans over OTLP, and the spans that came."""
    found: list[Seen] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.extend(_read(ExportTraceServiceRequest.FromString(_plain(body, self.headers["content-encoding"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", found
        finally:
            server.shutdown()
            thread.join()


def _plain(body: bytes, encoding: str | None) -> bytes:
    assert encoding in (None, ""), encoding
    return body


def _read(request: ExportTraceServiceRequest) -> Iterator[Seen]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                facts = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
                ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                yield Seen(span.name, KINDS[span.kind], *ids, facts, span.status.code == 2)


def of_trace(spans: Sequence[Seen], trace: str) -> tuple[Seen, list[Seen]]:
    """The one span of a trace for what the client asked, and those for requests to servers."""
    mine = [span for span in spans if span.trace == trace]
    (served,) = [span for span in mine if span.kind == "SERVER"]
    return served, [span for span in mine if span.kind == "CLIENT"]
