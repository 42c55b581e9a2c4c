"""Spans of the OpenTelemetry SDK, exported over OTLP; imported only where an endpoint is set."""

from collections.abc import Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    set_span_in_context,
)

from smart_mcp_proxy import __version__
from smart_mcp_proxy.gateway.observability import tracing
from smart_mcp_proxy.trace_context import TraceParent

NAME: Final = "smart-mcp-proxy"
_UNNAMED: Final = "unknown_service"
"""Beginning of the name that the SDK gives where the environment gives none."""
_KINDS: Final[Mapping[str, SpanKind]] = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT}


class _Ids(RandomIdGenerator):
    """Ids of spans; a new trace has the id that its sampling was decided by."""

    trace_id = 0

    def generate_trace_id(self) -> int:
        """The id that was decided by."""
        return self.trace_id or super().generate_trace_id()


class OtelSpan:
    """A span that is recorded."""

    __slots__ = ("_span", "span_id", "trace_id")

    def __init__(self, span: SdkSpan) -> None:
        context = span.get_span_context()
        self._span = span
        self.trace_id, self.span_id = context.trace_id, context.span_id

    def end(self, error: str, facts: tracing.Attributes) -> None:
        """End it.

        Args:
            error: Type of the error; empty where there was none.
            facts: More attributes.
        """
        if facts:
            self._span.set_attributes(facts)
        if error:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class OtelSpans:
    """Makes spans with a provider of its own.

    The global provider stays what it is: with ours in it, FastMCP and the SDK of MCP would add spans of their own for
    the requests that they see, which are not all of them.

    Args:
        exporter: Gets the spans that have ended.
        is_batched: Whether a thread hands them over a few at a time; else each is handed over when it ends.
    """

    def __init__(self, exporter: SpanExporter, *, is_batched: bool = True) -> None:
        self._ids = _Ids()
        self._exporter = exporter
        # Sampling is decided before: what comes here is recorded.
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=describe_gateway(), id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor((BatchSpanProcessor if is_batched else SimpleSpanProcessor)(exporter))
        self._tracer: Tracer = self._provider.get_tracer(NAME, __version__)

    def begin(
        self,
        kind: tracing.SpanKind,
        name: str,
        trace_id: int,
        parent: TraceParent | None,
        attributes: tracing.Attributes,
    ) -> OtelSpan:
        """Begin a span of a trace; without a parent it is the trace's root."""
        self._ids.trace_id = trace_id
        span = self._tracer.start_span(name, _build_parent_context(parent), kind=_KINDS[kind], attributes=attributes)
        assert isinstance(span, SdkSpan)
        return OtelSpan(span)

    def close(self) -> None:
        """Export what is left; waits for the exporter."""
        self._provider.shutdown()

    def give_up(self) -> None:
        """End an export under way, which would be tried again for a while."""
        self._exporter.shutdown()


def describe_gateway() -> Resource:
    """Description of this gateway; its name is ours where the environment gives it none."""
    described = Resource.create({"service.version": __version__})
    is_named = not str(described.attributes.get("service.name", "")).startswith(_UNNAMED)
    return described if is_named else described.merge(Resource({"service.name": NAME}))


def _build_parent_context(parent: TraceParent | None) -> Context:
    if parent is None:
        return Context()
    state = TraceState.from_header([parent.state]) if parent.state else TraceState()
    # As it was decided, whatever its sender decided: nothing is sampled twice.
    flags = TraceFlags(TraceFlags.SAMPLED)
    context = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags, trace_state=state)
    return set_span_in_context(NonRecordingSpan(context), Context())


def otlp_exporter() -> SpanExporter:
    """The exporter over OTLP and HTTP; it reads its endpoint and headers from the environment."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
