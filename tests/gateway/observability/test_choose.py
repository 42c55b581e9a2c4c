"""What turns tracing and metrics on, and what happens where it cannot be had."""

import importlib.util
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.errors import ConfigError, MissingExtraError
from smart_mcp_proxy.gateway.observability import choose
from smart_mcp_proxy.gateway.observability.choose import (
    create_metrics,
    is_tracing_requested,
    list_missing_packages,
    open_tracing,
    sampler,
)
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import redact
from smart_mcp_proxy.trace_context import TraceParent

pytestmark = pytest.mark.anyio

NOBODY = "http://127.0.0.1:9"
ON = {"OTEL_EXPORTER_OTLP_ENDPOINT": NOBODY}
LOW, HIGH = 1, 2**64 - 1
"""Ids of traces that a small share takes, and that only all of them take."""
SAMPLED, UNSAMPLED = TraceParent(HIGH, 1, True), TraceParent(LOW, 1, False)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        (ON, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": NOBODY}, True),
        ({**ON, "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({**ON, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": NOBODY}, False),
    ],
)
def test_an_endpoint_turns_tracing_on(environ: dict[str, str], expected: bool) -> None:
    """And nothing else does."""
    assert is_tracing_requested(environ) is expected


@pytest.mark.parametrize(
    ("name", "share", "low", "high", "sampled", "unsampled"),
    [
        ("", "", True, True, True, False),
        ("parentbased_always_on", "", True, True, True, False),
        ("always_on", "", True, True, True, True),
        ("always_off", "", False, False, False, False),
        ("parentbased_always_off", "", False, False, True, False),
        ("traceidratio", "0.01", True, False, False, True),
        ("parentbased_traceidratio", "0.01", True, False, True, False),
        ("parentbased_traceidratio", "0", False, False, True, False),
        ("traceidratio", "1", True, True, True, True),
    ],
)
def test_samplers_decide_by_id_and_parent(
    name: str, share: str, low: bool, high: bool, sampled: bool, unsampled: bool
) -> None:
    """Those of OpenTelemetry; with a parent those that are based on it do what it does."""
    decide = sampler({"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": share}).takes
    assert (decide(LOW, None), decide(HIGH, None)) == (low, high)
    assert (decide(SAMPLED.trace_id, SAMPLED), decide(UNSAMPLED.trace_id, UNSAMPLED)) == (sampled, unsampled)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"OTEL_TRACES_SAMPLER": "sometimes"}, "OTEL_TRACES_SAMPLER is 'sometimes'"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1 %"}, "OTEL_TRACES_SAMPLER_ARG is '1 %'"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "nan"}, "OTEL_TRACES_SAMPLER_ARG is 'nan'"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.5"}, "OTEL_TRACES_SAMPLER_ARG is '1.5'"),
    ],
)
async def test_a_sampler_that_there_is_not_stops_the_start(environ: dict[str, str], named: str) -> None:
    """Silence would be taken for a system without traffic."""
    with pytest.raises(ConfigError, match=named):
        async with open_tracing({**ON, **environ}):
            pass


def test_nothing_is_missing_that_nobody_asks_for(tmp_path: Path) -> None:
    """And nothing where everything is installed."""
    assert list_missing_packages(Settings(data_dir=tmp_path), {}) == []
    assert list_missing_packages(Settings(data_dir=tmp_path, metrics=True), ON) == []


async def test_missing_packages_are_said_and_stop_a_strict_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The gateway serves without what they would have shown."""
    monkeypatch.setitem(sys.modules, "smart_mcp_proxy.gateway.observability.otel_edge", None)
    monkeypatch.setattr(choose, "find_spec", lambda name: None)
    with caplog.at_level(logging.WARNING):
        async with open_tracing(ON) as tracing:
            assert tracing is None
        assert create_metrics(Settings(data_dir=tmp_path, metrics=True), tuple) is None
    missing = list_missing_packages(Settings(data_dir=tmp_path, metrics=True), ON)
    assert [one.message.partition(" needs")[0] for one in missing] == [
        "MCPPROXY_METRICS",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ]
    assert "pip install opentelemetry-sdk" in caplog.text and "pip install prometheus-client" in caplog.text
    with pytest.raises(MissingExtraError, match="OTEL_EXPORTER_OTLP_ENDPOINT needs opentelemetry-sdk"):
        async with open_tracing(ON, is_strict=True):
            pass
    with pytest.raises(MissingExtraError, match="MCPPROXY_METRICS needs prometheus-client"):
        create_metrics(Settings(data_dir=tmp_path, metrics_port=9464, strict=True), tuple)


def test_metrics_are_off_unless_they_are_asked_for(tmp_path: Path) -> None:
    """Then nothing is counted."""
    assert create_metrics(Settings(data_dir=tmp_path), tuple) is None
    assert create_metrics(Settings(data_dir=tmp_path, metrics=True), tuple) is not None
    assert importlib.util.find_spec("prometheus_client") is not None


async def test_the_collectors_headers_are_hidden_and_a_dead_one_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not sent in time is lost: a stop waits a few seconds at most."""
    monkeypatch.setattr(choose, "_CLOSE_S", 0.2)
    environ: dict[str, Any] = {**ON, "OTEL_EXPORTER_OTLP_HEADERS": "x-key=s3cret-collector-key,other=1"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    async with open_tracing(environ) as tracing:
        assert tracing is not None
        assert redact("sent with s3cret-collector-key") == "sent with [hidden]"
