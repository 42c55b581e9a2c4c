"""Metrics as the settings ask for them, traces as the variables of OpenTelemetry do."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Final

from smart_mcp_proxy.errors import ConfigError, MissingExtraError
from smart_mcp_proxy.gateway.observability.metrics import Metrics
from smart_mcp_proxy.gateway.observability.tracing import ID_RANGE, Sampler, Tracing
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import get_logger, secrets_hidden

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_HEADERS: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN: Final = "http/protobuf"
_SAMPLER, _RATIO = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
SAMPLERS: Final = ("always_on", "always_off", "traceidratio")
"""Each also as `parentbased_...`, which does what the request's parent does."""
_DEFAULT_SAMPLER: Final = "parentbased_always_on"
_METRICS_PACKAGE: Final = "prometheus_client"
_TRACING_PACKAGES: Final = ("opentelemetry.sdk", "opentelemetry.exporter")
_CLOSE_S: Final = 3.0
"""Seconds that a stop waits for the last spans."""

log = get_logger("tracing")


def is_tracing_requested(environ: Mapping[str, str]) -> bool:
    """Whether traces are to be exported: an endpoint of OTLP is set, and nothing turns them off."""
    is_off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    is_unexported = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() == "none"
    return not is_off and not is_unexported and any(environ.get(name) for name in _ENDPOINTS)


def sampler(environ: Mapping[str, str]) -> Sampler:
    """Decider of which traces are recorded.

    Raises:
        ConfigError: There is no such sampler, or its share is no number from 0 to 1.
    """
    name = environ.get(_SAMPLER) or _DEFAULT_SAMPLER
    kind = name.removeprefix("parentbased_")
    if kind not in SAMPLERS:
        known = ", ".join((*SAMPLERS, *(f"parentbased_{one}" for one in SAMPLERS)))
        raise ConfigError(f"{_SAMPLER} is {name[:40]!r}.", hint=f"Use one of: {known}.")
    share = {"always_on": 1.0, "always_off": 0.0}.get(kind)
    bound = round((_ratio(environ) if share is None else share) * ID_RANGE)
    return Sampler(bound, follows_parent=name != kind)


def _ratio(environ: Mapping[str, str]) -> float:
    text = environ.get(_RATIO) or "1"
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ConfigError(f"{_RATIO} is {text[:40]!r}.", hint="Use a number from 0 to 1.")
    return ratio


@asynccontextmanager
async def open_tracing(environ: Mapping[str, str], *, is_strict: bool = False) -> AsyncIterator[Tracing | None]:
    """Open tracing; None where it is not asked for, or its packages are missing.

    Args:
        environ: The gateway's environment.
        is_strict: Whether missing packages stop the start.

    Raises:
        ConfigError: The environment asks for what there is not.
    """
    if not is_tracing_requested(environ):
        yield None
        return
    decide = sampler(environ)
    _look_at_protocol(environ)
    try:
        # Here and not above: they take a tenth of a second and 14 MB, which all others are spared.
        from smart_mcp_proxy.gateway.observability.otel_edge import OtelSpans, otlp_exporter

        exporter = await asyncio.to_thread(otlp_exporter)
    except ImportError as exc:
        if is_strict:
            raise _no_tracing(environ) from exc
        log.warning("no traces are recorded: %s", _no_tracing(environ))
        yield None
        return
    headers = [pair for name in _HEADERS for pair in environ.get(name, "").split(",")]  # name=value,name=value
    with secrets_hidden([pair.partition("=")[2].strip() for pair in headers]):
        spans = OtelSpans(exporter)
        try:
            yield Tracing(spans, decide)
        finally:
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await asyncio.to_thread(spans.close)
            except TimeoutError:
                await asyncio.to_thread(spans.give_up)
                log.warning("the last traces are lost: the collector took none for %g s", _CLOSE_S)


def _look_at_protocol(environ: Mapping[str, str]) -> None:
    for name in _PROTOCOLS:
        if (protocol := environ.get(name)) and protocol != _SPOKEN:
            log.warning("%s is %.40r; traces are sent as %s", name, protocol, _SPOKEN)


def list_missing_packages(settings: Settings, environ: Mapping[str, str]) -> list[MissingExtraError]:
    """List what settings and environment ask for and this installation cannot do."""
    missing = []
    if settings.has_metrics and find_spec(_METRICS_PACKAGE) is None:
        missing.append(_no_metrics())
    if is_tracing_requested(environ) and any(find_spec(package) is None for package in _TRACING_PACKAGES):
        missing.append(_no_tracing(environ))
    return missing


def create_metrics(settings: Settings, servers: Callable[[], Collection[str]]) -> Metrics | None:
    """The counts of activity; None where nobody asks for them, or the package that writes them is missing.

    Args:
        settings: Frozen settings.
        servers: The configured servers' names; a look-up.

    Raises:
        MissingExtraError: The package is missing, and `MCPPROXY_STRICT=true`.
    """
    if not settings.has_metrics:
        return None
    if find_spec(_METRICS_PACKAGE) is None:
        if settings.strict:
            raise _no_metrics()
        log.warning("nothing is counted: %s", _no_metrics())
        return None
    return Metrics(servers)


def _no_metrics() -> MissingExtraError:
    return MissingExtraError(
        "MCPPROXY_METRICS needs prometheus-client.", hint="Install it: pip install prometheus-client"
    )


def _no_tracing(environ: Mapping[str, str]) -> MissingExtraError:
    variable = next(name for name in _ENDPOINTS if environ.get(name))
    return MissingExtraError(
        f"{variable} needs opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http.",
        hint="Install them: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
    )
