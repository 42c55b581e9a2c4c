"""Copies of activity records for syslog and OpenTelemetry."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.gateway.activity.activity_log import open_activity_log
from smart_mcp_proxy.gateway.observability import export
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio


def made(number: int) -> Activity:
    return Activity("call", "ann", f"todo:add_{number}", "ok", 1.5, 1_700_000_000.0, {"reason": "two\nlines"})


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    """A UDP socket that receives."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as one:
        one.bind(("127.0.0.1", 0))
        one.settimeout(10)
        yield one


async def test_each_stored_record_goes_to_syslog_as_one_line(receiver: socket.socket, tmp_path: Path) -> None:
    """With its priority (authpriv.info) and its sender; as JSON, as `activity export` has it."""
    settings = Settings(data_dir=tmp_path, activity_export=f"syslog://127.0.0.1:{receiver.getsockname()[1]}")
    async with (
        Catalog.open(tmp_path, name_limit=60) as catalog,
        export.open_export(settings.activity_export) as send,
        open_activity_log(catalog, settings, export=send) as recorder,
    ):
        for number in range(3):
            recorder.record(made(number))
    lines = [receiver.recv(65_536).decode() for _ in range(3)]
    assert all(line.startswith(f"<{10 * 8 + 6}>mcpproxy[") and "\n" not in line for line in lines)
    facts = [json.loads(line.partition(": ")[2]) for line in lines]
    assert [one["subject"] for one in facts] == ["todo:add_0", "todo:add_1", "todo:add_2"]
    assert facts[0]["principal"] == "ann"
    assert facts[0]["at"] == "2023-11-14T22:13:20.000Z"


async def test_over_tcp_a_line_ends_and_a_receiver_may_come_back(caplog: pytest.LogCaptureFixture) -> None:
    """While it is gone records are dropped, and the log says so once."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(10)
        port = server.getsockname()[1]
        async with export.open_export(f"syslog+tcp://127.0.0.1:{port}") as send:
            assert send is not None
            send([made(1)])
            with closing((await anyio.to_thread.run_sync(server.accept))[0]) as first:
                first.settimeout(10)
                assert first.recv(65_536).endswith(b"}\n")
    handler = export.find_handler(f"syslog+tcp://127.0.0.1:{port}")()
    async with export.open_export(f"syslog+tcp://127.0.0.1:{port}") as send:
        assert send is not None
        send([made(number) for number in range(5)])
    handler.close()
    assert caplog.text.count("the receiver takes no records at present") == 1


async def test_more_than_the_receiver_takes_is_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing waits for it."""
    import queue

    monkeypatch.setattr(export, "_WAITING", 4)
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    offer = export._Offer(waiting)
    offer([made(number) for number in range(7)])
    for _ in range(4):
        waiting.get()
    offer([made(6)])
    assert waiting.qsize() == 1
    assert "3 records were dropped" in caplog.text


@pytest.mark.parametrize("target", ["udp://127.0.0.1", "syslog://", "syslog://host:99999", "otel", ""])
async def test_a_target_that_there_is_not_is_refused_with_those_that_there_are(target: str) -> None:
    """Before anything is served."""
    with pytest.raises(ConfigError, match="MCPPROXY_ACTIVITY_EXPORT") as caught:
        async with export.open_export(target):
            pass
    assert "syslog+tcp://HOST:601" in str(caught.value.hint)


async def test_records_go_to_a_collector_over_otlp(monkeypatch: pytest.MonkeyPatch) -> None:
    """As log records with the record as their body."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter

    from smart_mcp_proxy.gateway.observability import otel_logs_edge

    collector = InMemoryLogRecordExporter()
    monkeypatch.setattr(otel_logs_edge, "OTLPLogExporter", lambda: collector)
    async with export.open_export("otlp") as send:
        assert send is not None
        send([made(1), made(2)])
    found = [one.log_record for one in collector.get_finished_logs()]
    assert [json.loads(str(one.body))["subject"] for one in found] == ["todo:add_1", "todo:add_2"]
    assert found[0].timestamp == 1_700_000_000_000_000_000
