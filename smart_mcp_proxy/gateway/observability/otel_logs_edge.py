"""Log records of OpenTelemetry, exported over OTLP; imported only where that is asked for."""

import logging

from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

from smart_mcp_proxy import __version__
from smart_mcp_proxy.gateway.observability.otel_edge import NAME, describe_gateway


class OtlpHandler(logging.Handler):
    """Hands records over in batches; endpoint and headers are those of OpenTelemetry's variables."""

    def __init__(self) -> None:
        super().__init__()
        self._provider = LoggerProvider(describe_gateway(), shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
        self._logger = self._provider.get_logger(NAME, __version__)

    def emit(self, record: logging.LogRecord) -> None:
        """Adds a record to the next batch."""
        self._logger.emit(
            timestamp=int(record.created * 1e9),
            severity_number=SeverityNumber.INFO,
            severity_text="INFO",
            body=record.getMessage(),
            event_name="mcpproxy.activity",
        )

    def close(self) -> None:
        """Exports what is left."""
        self._provider.shutdown()
        super().close()
