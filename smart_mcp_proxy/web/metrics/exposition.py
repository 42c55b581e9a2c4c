"""Families of figures as text for Prometheus; the one place that knows its library."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from smart_mcp_proxy.gateway.observability.metrics import BUCKETS_S, Family


def encode_metrics(families: Sequence[Family], accept: str) -> tuple[bytes, str]:
    """The figures and their content type, in the format that a request's `Accept` asks for."""
    # Here and not above: only a gateway that is scraped needs it.
    from prometheus_client.exposition import choose_encoder

    encoder, content_type = choose_encoder(accept)
    return encoder(cast(Any, SimpleNamespace(collect=lambda: map(_convert_family, families)))), content_type


def _convert_family(family: Family) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        bounds = [*(str(float(bound)) for bound in BUCKETS_S), "+Inf"]
        for sample in family.samples:
            buckets = list(zip(bounds, sample.buckets, strict=True))
            histogram.add_metric(sample.labels, buckets=buckets, sum_value=sample.value)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for sample in family.samples:
        metric.add_metric(sample.labels, sample.value)
    return metric
