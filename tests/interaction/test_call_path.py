"""The way of a usual call through the gateway: how many files and functions of ours it passes."""

import asyncio
import json
import os
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import anyio
import pytest
from agents import Era
from spans import traced
from transports import odd_server, served, settled
from wires import HttpWire, call_text, http_wire, opening

import smart_mcp_proxy
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.observability.tracing import Sampler
from smart_mcp_proxy.io.busy_poll import BusyPoll, Side
from smart_mcp_proxy.web.stdio.stdio import Greeted, _Client
from smart_mcp_proxy.web.stdio.stdio_pipes import open_stdio_reader, open_stdio_writer

pytestmark = pytest.mark.anyio

PACKAGE = str(Path(smart_mcp_proxy.__file__).parent)
OBSERVABILITY = str(Path(PACKAGE) / "gateway" / "observability")
MOST_FILES, MOST_CALLS = 32, 160
"""Of a call on stdio to a server on stdio; a step of a coroutine counts as a call."""
WAITS = frozenset({BusyPoll._turn.__code__, Side.was_soon.__code__})
"""How often it is looked whether an answer has come depends on the machine, not on the way of a call."""
MORE_FILES, MORE_CALLS = 0, 6
"""A progress token may add so many: it is one more member to read, and a listener that is told of nothing."""
MORE_FILES_ON_HTTP, MORE_CALLS_ON_HTTP = 2, 13
"""There it may also need a stream. Beside other processes the same call passes up to three more or fewer."""
MORE_CALLS_UNSAMPLED = 2
"""The decision, and whether there is a span to be the parent of what is sent."""
WARM_CALLS, COUNTED_CALLS = 30, 40
LIMIT_S = 60


class Passed(NamedTuple):
    """What one call passed."""

    files: int
    calls: int


class Client(ABC):
    """A client of a gateway in this process."""

    def __init__(self, era: Era) -> None:
        self.era = era
        self._last_id = 0

    @abstractmethod
    async def ask(self, message: bytes) -> Any:
        """The next message of the gateway."""

    async def call(self, *, has_token: bool) -> None:
        """A good call."""
        self._last_id += 1
        message = json.loads(call_text(self.era, self._last_id, "old:echo", {"text": "light"}))
        if has_token:
            message["params"].setdefault("_meta", {})["progressToken"] = self._last_id
        answer = await self.ask(json.dumps(message).encode())
        assert answer["id"] == self._last_id and not answer["result"].get("isError"), answer


class PipeClient(Client):
    """On pipes."""

    def __init__(self, era: Era, sink: int, source: asyncio.StreamReader) -> None:
        super().__init__(era)
        self._sink = sink
        self._source = source

    async def ask(self, message: bytes) -> dict[str, Any]:
        """The next message of the gateway."""
        os.write(self._sink, message + b"\n")
        with anyio.fail_after(LIMIT_S):
            answer: dict[str, Any] = json.loads(await self._source.readline())
        return answer


class HttpClient(Client):
    """Over HTTP."""

    def __init__(self, wire: HttpWire) -> None:
        super().__init__(wire.era)
        self._wire = wire

    async def ask(self, message: bytes) -> Any:
        with anyio.fail_after(LIMIT_S):
            return await self._wire.tell(message)


async def counted(client: Client, *, has_token: bool, part: str = PACKAGE) -> Passed:
    """The least of some calls, in a part of the package: now and then one meets other work of the gateway."""
    for _ in range(WARM_CALLS):
        await client.call(has_token=has_token)
    found = []
    for _ in range(COUNTED_CALLS):
        codes: list[Any] = []

        def note(frame: FrameType, event: str, _: Any, codes: list[Any] = codes) -> None:
            if event == "call" and frame.f_code not in WAITS:
                codes.append(frame.f_code.co_filename)

        sys.setprofile(note)
        try:
            await client.call(has_token=has_token)
        finally:
            sys.setprofile(None)
        ours = [name for name in codes if name.startswith(part)]
        found.append(Passed(len(set(ours)), len(ours)))
    return Passed(min(passed.files for passed in found), min(passed.calls for passed in found))


async def on_pipes(gateway: Gateway, era: Era, part: str = PACKAGE) -> tuple[Passed, Passed]:
    """What a call without and one with a progress token pass, in a part of the package."""
    (source, to_gateway), (from_gateway, sink) = os.pipe(), os.pipe()
    reader, answers = await open_stdio_reader(source), await open_stdio_reader(from_gateway)
    writer = await open_stdio_writer(sink, gateway.lists.admission)
    client = PipeClient(era, to_gateway, answers)
    served_client = _Client(gateway, reader, writer, asyncio.Event(), Greeted(None))

    serving = asyncio.create_task(served_client.serve(gateway.agent_server()))
    try:
        await client.ask(json.dumps({"jsonrpc": "2.0", "id": 0, **opening(era)}).encode())
        if era == "handshake":
            os.write(to_gateway, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        return await counted(client, has_token=False, part=part), await counted(client, has_token=True, part=part)
    finally:
        os.close(to_gateway)
        await serving
        await writer.close()
        for descriptor in (source, sink, from_gateway):
            os.close(descriptor)


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or a coverage tool is looking, too")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_usual_call_passes_few_functions_with_a_progress_token_too(era: Era, tmp_path: Path) -> None:
    """More than here would be noticed by every client, and the clients that send tokens are the usual ones."""
    async with settled(tmp_path, {"old": odd_server(era)}) as gateway:
        plain, told = await on_pipes(gateway, era)
    print(f"{era}: {plain}, with a token {told}")
    assert plain.files <= MOST_FILES and plain.calls <= MOST_CALLS, plain
    assert told.files <= plain.files + MORE_FILES and told.calls <= plain.calls + MORE_CALLS, (plain, told)


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or a coverage tool is looking, too")
async def test_figures_and_traces_that_are_not_recorded_add_next_to_nothing(tmp_path: Path) -> None:
    """Calls are counted in batches beside them, and sampling is decided before anything is made for a trace."""
    tracing, _ = traced(Sampler(0))
    for name, more, most in (("metrics", {"metrics": True}, 0), ("traces", {"tracing": tracing}, MORE_CALLS_UNSAMPLED)):
        async with settled(tmp_path / name, {"old": odd_server("modern")}, **more) as gateway:
            plain, told = await on_pipes(gateway, "modern", OBSERVABILITY)
        print(f"{name}: {plain}, with a token {told}")
        assert max(plain.calls, told.calls) <= most, name


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or a coverage tool is looking, too")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_progress_token_adds_few_functions_over_http(era: Era, tmp_path: Path) -> None:
    """Most of its calls have nothing to tell, and what a stream would need is not made for them."""
    async with (
        settled(tmp_path, {"old": odd_server(era)}) as gateway,
        served(gateway) as base,
        http_wire(base, era) as wire,
    ):
        client = HttpClient(wire)
        plain, told = await counted(client, has_token=False), await counted(client, has_token=True)
    print(f"{era}: {plain}, with a token {told}")
    assert told.files <= plain.files + MORE_FILES_ON_HTTP and told.calls <= plain.calls + MORE_CALLS_ON_HTTP, (
        plain,
        told,
    )
