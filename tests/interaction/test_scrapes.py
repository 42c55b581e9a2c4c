"""Figures for Prometheus, as it scrapes them: the activity log's, for the operator, all that the dashboard asks."""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from agents import PAUSE_S
from plain_http import plain_client
from prometheus_client.parser import text_string_to_metric_families
from transports import ENVIRON, STDIO_COMMAND, odd_servers, served, settled

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.retrieval.retrieval import Question
from smart_mcp_proxy.models import CallRequest
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.metrics.endpoint import serve_metrics

# Marked long: a gateway of their own.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

DASHBOARD = Path(__file__).parent.parent.parent / "deploy" / "grafana" / "mcpproxy.json"
ALERTS = DASHBOARD.parent.parent / "helm" / "mcpproxy" / "alerts.yaml"
SECRET = "lighthouse-keeper-7781"
"""Stands in arguments, queries and names that agents make up."""
AT_A_TIME = 32
Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def operator(gateway: Gateway) -> dict[str, str]:
    token = (gateway.settings.data_dir / "operator.token").read_text("ascii").strip()
    return {"authorization": f"Bearer {token}"}


async def scraped(base: str, headers: dict[str, str] | None = None) -> str:
    async with plain_client(timeout=30) as client:
        reply = await client.get(f"{base}/metrics", headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.text


def figures(text: str) -> Figures:
    """Each sample by its name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def by(found: Figures, name: str, *labels: str) -> Counter[tuple[str, ...]]:
    """The values of one metric by some labels."""
    counted: Counter[tuple[str, ...]] = Counter()
    for (sample, given), value in found.items():
        if sample == name:
            counted[tuple(dict(given).get(label, "") for label in labels)] += int(value)
    return counted


def mixed(number: int) -> CallRequest:
    """One of the ways in which a call may end."""
    server = ("old", "new")[number % 2]
    calls: list[tuple[str, dict[str, Any], Any]] = [
        (f"{server}:echo", {"text": SECRET}, "write"),
        (f"{server}:fails", {}, "write"),
        (f"{server}:rpc_error", {}, "write"),
        (f"{server}:erase", {"entry": 1}, "read"),
        (f"{server}:look", {}, "read"),
        (f"{server}:{SECRET}", {}, "write"),
        (f"{SECRET}:{number}", {}, "write"),
    ]
    name, arguments, variant = random.Random(number).choice(calls)
    return CallRequest(name=name, arguments=arguments, variant=variant)


async def make_calls(gateway: Gateway, count: int) -> None:
    """Mixed calls, and a search for every tenth."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            with suppress(ProxyError):
                await gateway.calls.call(mixed(number))
            if number % 10 == 0:
                await gateway.retrieval.retrieve(Question(f"{SECRET} look up the register", 3))

    await asyncio.gather(*(some() for _ in range(AT_A_TIME)))


async def logged(gateway: Gateway, count: int) -> list[tuple[str, str, str]]:
    """Kind, server and outcome of all records, once so many are stored."""
    rows: list[tuple[str, str, str]] = []
    before: int | None = None
    while True:
        found = await gateway.catalog.activity_page(ActivityFilter(), 1_000, before=before)
        rows += [(one.activity.kind, one.activity.server, one.activity.outcome) for one in found]
        if len(found) == 1_000:
            before = found[-1].place
            continue
        if len(rows) >= count:
            return rows
        rows, before = [], None
        await asyncio.sleep(0)


@pytest.mark.parametrize("count", [1_000, pytest.param(50_000, marks=pytest.mark.soak)])
async def test_the_counters_are_the_rows_of_the_activity_log(count: int, tmp_path: Path, ledger: Path) -> None:
    """Good, failed, refused and senseless calls alike: one sink has what the log has, no more and no less."""
    limits = {"metrics": True, "activity_rows": 0}
    async with settled(tmp_path, odd_servers(ledger), **limits) as gateway, served(gateway) as base:
        await make_calls(gateway, count)
        text = await scraped(base, operator(gateway))
        rows = await logged(gateway, count + count // 10)
    found = figures(text)
    calls = Counter((server, outcome) for kind, server, outcome in rows if kind == "call")
    assert sum(calls.values()) == count and len(calls) > 8, calls
    assert by(found, "mcpproxy_calls_total", "server", "outcome") == calls
    assert by(found, "mcpproxy_call_duration_seconds_count", "server", "outcome") == calls
    assert by(found, "mcpproxy_activity_records_total", "kind") == Counter((kind,) for kind, _, _ in rows)
    assert by(found, "mcpproxy_search_duration_seconds_count", "outcome").total() == count // 10
    assert SECRET not in text


async def test_the_figures_are_the_operators(tmp_path: Path, ledger: Path) -> None:
    """No token, an agent's path or another Host gets none of them; off, there is nothing at that path."""
    async with (
        settled(tmp_path / "on", odd_servers(ledger), metrics=True) as gateway,
        served(gateway) as base,
        plain_client(timeout=30) as client,
    ):
        for headers in ({}, {"authorization": "Bearer wrong"}):
            assert (await client.get(f"{base}/metrics", headers=headers)).status_code == 401
        foreign = {"host": "evil.example", **operator(gateway)}
        assert (await client.get(f"{base}/metrics", headers=foreign)).status_code == 421
        assert (await client.post(f"{base}/metrics", headers=operator(gateway))).status_code == 405
    async with (
        settled(tmp_path / "off", odd_servers(ledger)) as gateway,
        served(gateway) as base,
        plain_client(timeout=30) as client,
    ):
        assert gateway.base.metrics is None
        assert (await client.get(f"{base}/metrics", headers=operator(gateway))).status_code == 404


async def test_a_port_of_its_own_serves_figures_and_nothing_else(tmp_path: Path, ledger: Path) -> None:
    """Also beside stdio; a port that is taken stops nobody."""
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    async with settled(tmp_path, odd_servers(ledger), metrics_port=port) as gateway:
        async with serve_metrics(gateway), serve_metrics(gateway):
            base = f"http://127.0.0.1:{port}"
            assert by(figures(await scraped(base)), "mcpproxy_server_ready", "server") == {("old",): 1, ("new",): 1}
            async with plain_client(timeout=30) as client:
                for path in ("/", "/mcp", "/api/v1/status", "/healthz"):
                    assert (await client.get(base + path)).status_code == 404
                assert (await client.get(f"{base}/metrics", headers={"host": "evil.example"})).status_code == 421
        async with plain_client(timeout=30) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get(f"{base}/metrics")


async def test_every_query_of_dashboard_and_alerts_names_what_there_is(tmp_path: Path, ledger: Path) -> None:
    """Metrics, and the labels that they are narrowed or grouped by; Prometheus itself adds `instance`."""
    async with settled(tmp_path, odd_servers(ledger), metrics=True) as gateway, served(gateway) as base:
        await make_calls(gateway, 100)
        text = await scraped(base, operator(gateway))
    samples = figures(text)
    types = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    (alerts,) = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    queries += [rule["expr"] for rule in alerts["rules"]]
    queries += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    names = {name for query in queries for name in re.findall(r"mcpproxy_\w+", query)}
    assert len(queries) > 25 and len(names) > 15
    empty = {"mcpproxy_requests_total", "mcpproxy_script_duration_seconds_bucket"}
    """Nothing of these was asked for here; the metric is there all the same."""
    found = {name for name, _ in samples}
    assert names - found - empty == set()
    assert {re.sub("_(total|bucket)$", "", name) for name in empty} <= {re.sub("_total$", "", name) for name in types}
    known = {label for _, labels in samples for label, _ in labels} | {"instance", "method"}
    used = {label for query in queries for label in re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query)}
    grouped = {
        label for query in queries for some in re.findall(r"by \(([^)]*)\)", query) for label in some.split(", ")
    }
    assert used | grouped <= known, used | grouped


@asynccontextmanager
async def workers(data_dir: Path, ledger: Path, port: int, metrics_port: int) -> AsyncIterator[str]:
    """Two processes on one port, which are counted together."""
    data_dir.mkdir()
    environ = {
        "MCPPROXY_CONFIG_JSON": json.dumps({"mcpServers": odd_servers(ledger)}),
        "MCPPROXY_DATA_DIR": str(data_dir),
        "MCPPROXY_METRICS_PORT": str(metrics_port),
    }
    words = (*STDIO_COMMAND, "--http", "--port", str(port), "--workers", "2")
    with (data_dir / "stderr.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(*words, env=ENVIRON | environ, stderr=log, stdout=log)
    try:
        yield f"http://127.0.0.1:{metrics_port}"
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)


@pytest.mark.long
async def test_workers_are_scraped_together_each_with_its_number(tmp_path: Path, ledger: Path) -> None:
    """A worker that takes the place of one that died begins to count anew, under a label that says so."""
    with bind("127.0.0.1", 0) as first, bind("127.0.0.1", 0) as second:
        port, metrics_port = first.getsockname()[1], second.getsockname()[1]
    async with workers(tmp_path / "data", ledger, port, metrics_port) as base:
        found: Figures = {}
        async with asyncio.timeout(60):
            while by(found, "mcpproxy_server_ready", "server", "worker").total() < 4:
                with suppress(httpx2.HTTPError):
                    found = figures(await scraped(base))
                await asyncio.sleep(PAUSE_S)
        assert by(found, "mcpproxy_build_info", "worker") == {("0",): 1, ("1",): 1}
