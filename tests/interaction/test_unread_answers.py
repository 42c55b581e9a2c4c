"""A client on a pipe that calls and does not read: what the gateway keeps for it is bounded, and nothing is lost."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from agents import CLIENT, HANDSHAKE_VERSION
from transports import SETTLED_S, spawned

from smart_mcp_proxy.web.stdio.stdio_pipes import MOST_UNSENT_BYTES, UNSENT_BYTES

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("unread-answers"), pytest.mark.long]

UPSTREAM = Path(__file__).parent / "bulky_upstream.py"
ANSWER_BYTES = 4 * 1024 * 1024
KEPT = UNSENT_BYTES // ANSWER_BYTES
IN_FLIGHT = 2
SLACK = IN_FLIGHT + 2
"""Calls under way when the bound is reached, the one that reaches it, and the one in the pipe."""
CALLS = KEPT + 3 * SLACK
QUIET_S = 1.0


def sent(process: asyncio.subprocess.Process, method: str, params: dict[str, object], **more: object) -> None:
    """Sends one message; does not wait."""
    assert process.stdin is not None
    message = {"jsonrpc": "2.0", "method": method, "params": params, **more}
    process.stdin.write(json.dumps(message).encode() + b"\n")


def call(process: asyncio.subprocess.Process, request_id: int, *, by_sdk: bool) -> None:
    """Calls the tool; a member that JSON-RPC does not know makes it the SDK's to answer."""
    params: dict[str, object] = {"name": "call_tool_write", "arguments": {"name": "bulky:fetch"}}
    sent(process, "tools/call", params, id=request_id, **({"unknown": 0} if by_sdk else {}))


async def quiet(ledger: Path, at_least: int) -> int:
    """The lines of the ledger, once it has so many and gets no more."""
    count = -1
    while count < at_least or count != len(ledger.read_text().splitlines()):
        count = len(ledger.read_text().splitlines())
        await asyncio.sleep(QUIET_S)
    return count


# Each moves hundreds of megabytes: in CI each bound is met on one of the two ways to an answer, which end at one pipe.
@asynccontextmanager
async def opened(tmp_path: Path, in_flight: int, calls: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A gateway whose client has had answers, and no longer reads; and the next request's id."""
    ledger = tmp_path / "ledger"
    ledger.touch()
    limits = {"in_flight": in_flight, "queue": calls, "call_s": 600}
    server = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(ledger)], "limits": limits}
    async with spawned(tmp_path / "data", {"bulky": server}) as process:
        assert process.stdout is not None
        with anyio.fail_after(2 * SETTLED_S):
            opening = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": CLIENT}
            sent(process, "initialize", opening, id=0)
            await process.stdout.readline()
            sent(process, "notifications/initialized", {})
            request_id = 1
            while not ledger.read_text():  # until the server is there
                call(process, request_id, by_sdk=False)
                await process.stdout.readline()
                request_id += 1
            process.stdout._transport.pause_reading()  # type: ignore[attr-defined]  # there is no other way to stop
            yield process, request_id


def read_on(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    process.stdout._transport.resume_reading()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "by_sdk", [pytest.param(False, id="wire"), pytest.param(True, id="sdk", marks=pytest.mark.soak)]
)
async def test_calls_of_a_client_that_does_not_read_wait_until_it_reads(tmp_path: Path, *, by_sdk: bool) -> None:
    """The server gets no more of them than fill the bound; later all are answered."""
    ledger = tmp_path / "ledger"
    async with opened(tmp_path, IN_FLIGHT, CALLS) as (process, request_id):
        assert process.stdout is not None
        wanted = set(range(request_id, request_id + CALLS))
        for one in sorted(wanted):
            call(process, one, by_sdk=by_sdk)
        assert 1 + KEPT <= await quiet(ledger, KEPT) <= 1 + KEPT + SLACK
        read_on(process)
        while wanted:
            answer = json.loads(await process.stdout.readline())
            assert len(answer["result"]["content"][0]["text"]) == ANSWER_BYTES
            wanted.remove(answer["id"])
    assert len(ledger.read_text().splitlines()) == 1 + CALLS


@pytest.mark.parametrize(
    "by_sdk", [pytest.param(False, id="wire", marks=pytest.mark.soak), pytest.param(True, id="sdk")]
)
async def test_answers_to_calls_that_were_sent_are_left_out_beyond_a_bound(tmp_path: Path, *, by_sdk: bool) -> None:
    """However many calls are under way; the client is told of each that it was carried out."""
    most, extra = MOST_UNSENT_BYTES // ANSWER_BYTES, 8
    async with opened(tmp_path, most + extra, most + extra) as (process, request_id):
        assert process.stdout is not None
        wanted = set(range(request_id, request_id + most + extra))
        for one in sorted(wanted):
            call(process, one, by_sdk=by_sdk)
        await quiet(tmp_path / "ledger", 1 + most + extra)
        read_on(process)
        left_out = 0
        while wanted:
            answer = json.loads(await process.stdout.readline())
            wanted.remove(answer["id"])
            if "error" in answer:
                left_out += 1
                assert answer["error"]["data"] == {"delivery": "executed"}
        assert extra - 1 <= left_out <= extra + 1
