"""One gateway, used over every transport and in both protocol eras."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import run_canary
from agents import Agent, wait_covered
from transports import (
    CHANNELS,
    CUT_CHARS,
    in_memory,
    odd_servers,
    on_stdio,
    opened_gateway,
    over_http,
    over_sse,
    served,
    spawned,
)
from wires import LINE_LIMIT_BYTES, StdioWire, Wire, http_wire

QUICK_CHANNELS = {("memory", "handshake"), ("http", "modern")}
"""Both eras, in this process. What a test shows on the other channels as well, `make test-long` shows there."""
ON_PIPES = {"test_bad_input.py", "test_agent_call.py"}
"""Files whose tests are quick over stdio, too: a gateway process takes seconds, and most of them one each."""
OWN_PROCESS = ("stdio", "handshake")
"""What is shown over stdio in CI by a test that starts a gateway process of its own.

Tests on the process that many share show both eras there, and the other era is shown on every other channel.
"""
WIRES = [("stdio", "handshake"), ("stdio", "modern"), ("http", "handshake"), ("http", "modern")]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """One event loop for all tests here, so that gateways and connections outlive a single test."""
    return "asyncio"


def is_for_soak(row: Mapping[str, Any]) -> bool:
    """Whether a gateway process is started for this row alone, and another row in CI takes its path.

    Where a test has rows for the eras of its servers as well, those in which the eras cross are in CI.
    """
    channel = row.get("channel")
    if channel not in CHANNELS or channel[0] != OWN_PROCESS[0]:
        return False
    return channel[1] == row["mode"] if "mode" in row else channel != OWN_PROCESS


@pytest.fixture(scope="session", autouse=True)
def canary_kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After everything else has ended, what every server was trusted with was told to nobody and written nowhere."""
    yield
    assert not run_canary.leaks, run_canary.leaks[:9]
    assert not (files := list(run_canary.found_in_files(tmp_path_factory.getbasetemp()))), files[:9]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests on other channels than the quick ones as long, a part of those on stdio as soak."""
    names = {"-".join(channel) for channel in CHANNELS}
    for item in items:
        if item.path.parent != Path(__file__).parent:
            continue
        quick = QUICK_CHANNELS | ({("stdio", "handshake")} if item.path.name in ON_PIPES else set())
        row = getattr(getattr(item, "callspec", None), "params", {})
        values = row.values()
        channels = {
            "-".join(value) if value in CHANNELS else value
            for value in values
            if isinstance(value, str) or value in CHANNELS
        }
        if channels & names - {"-".join(channel) for channel in quick}:
            item.add_marker(pytest.mark.long)
        if is_for_soak(row):
            item.add_marker(pytest.mark.soak)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for title, text in report.sections:
        run_canary.look(f"{report.nodeid}, {title}", text)


@pytest.fixture(scope="session")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the servers write down what starts and what is cancelled."""
    path = tmp_path_factory.mktemp("ledger") / "ledger"
    path.touch()
    return path


@pytest.fixture(scope="session")
async def inner(tmp_path_factory: pytest.TempPathFactory, ledger: Path) -> AsyncIterator[dict[str, Any]]:
    """The gateways of this process by name, as pairs of gateway and base address: as they come, and `cut`."""
    async with AsyncExitStack() as stack:
        gateways = {}
        for name, settings in (("whole", {}), ("cut", {"truncate_output_len": CUT_CHARS})):
            directory = tmp_path_factory.mktemp(name)
            gateway = await stack.enter_async_context(opened_gateway(directory, odd_servers(ledger), **settings))
            gateways[name] = (gateway, await stack.enter_async_context(served(gateway)))
        yield gateways


@asynccontextmanager
async def _agent_at(
    channel: tuple[str, Any], kind: str, inner: dict[str, Any], ledger: Path, data_dir: Path
) -> AsyncIterator[Agent]:
    transport, era = channel
    gateway, base = inner[kind]
    async with AsyncExitStack() as stack:
        match transport:
            case "memory":
                agent = await stack.enter_async_context(in_memory(gateway, era))
            case "stdio":
                extra = {"TRUNCATE_OUTPUT_LEN": str(CUT_CHARS)} if kind == "cut" else {}
                process = await stack.enter_async_context(spawned(data_dir, odd_servers(ledger), **extra))
                agent = await stack.enter_async_context(on_stdio(process, era))
            case "http":
                agent = await stack.enter_async_context(over_http(base, era))
            case _:
                agent = await stack.enter_async_context(over_sse(base))
        await wait_covered(agent)
        yield agent


@pytest.fixture(scope="session", params=CHANNELS, ids="-".join)
async def agent(
    request: pytest.FixtureRequest, inner: dict[str, Any], ledger: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Agent]:
    """An agent on one transport of a gateway with both odd servers."""
    async with _agent_at(request.param, "whole", inner, ledger, tmp_path_factory.mktemp("data")) as found:
        yield found


@pytest.fixture(scope="session", params=CHANNELS, ids="-".join)
async def cut_agent(
    request: pytest.FixtureRequest, inner: dict[str, Any], ledger: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Agent]:
    """The same, where the gateway cuts outputs to `CUT_CHARS` characters."""
    async with _agent_at(request.param, "cut", inner, ledger, tmp_path_factory.mktemp("data")) as found:
        yield found


@pytest.fixture(scope="session", params=WIRES, ids="-".join)
async def wire(
    request: pytest.FixtureRequest, inner: dict[str, Any], ledger: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Wire]:
    """A connection on which good calls have been made; the same one for all rows."""
    transport, era = request.param
    async with AsyncExitStack() as stack:
        if transport == "http":
            yield await stack.enter_async_context(http_wire(inner["whole"][1], era))
            return
        directory = tmp_path_factory.mktemp("data")
        limit = {"MAX_MESSAGE_BYTES": str(LINE_LIMIT_BYTES)}
        pipes = StdioWire(era, await stack.enter_async_context(spawned(directory, odd_servers(ledger), **limit)))
        await pipes.greet()
        yield pipes
