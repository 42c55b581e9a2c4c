"""Servers that go and come back, change all the time, or answer many callers in a muddle."""

import asyncio
import json
import shutil
import sys
import time
from pathlib import Path

import anyio
import pytest
from modes import Place
from rig import ENVIRON, PROGRAMS, Faulty, Rig, opened_rig

from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.long]

BACK_S = 2.0
"""How long after a server is there again a call may still fail."""


async def back_after(rig: Rig) -> float:
    """Seconds until a call succeeds."""
    began = time.monotonic()
    with anyio.fail_after(10):
        while (await rig.call(rig.nonce())).outcome != "ok":
            await asyncio.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_an_http_server_that_restarts_on_its_port_is_used_again_at_once(tmp_path: Path, era: str) -> None:
    """While it is away calls fail at once, and nothing of them was sent."""
    async with opened_rig(tmp_path, Place("http", era)) as rig:
        assert (await rig.call(rig.nonce())).outcome == "ok"
        await rig.faulty.kill()
        for _ in range(5):
            answer = await rig.call(rig.nonce())
            assert answer.outcome == "upstream_failed"
            assert answer.seconds < 1
        assert answer.delivery == "not_sent"
        await rig.faulty.lift()
        assert await back_after(rig) < BACK_S


async def test_a_child_that_dies_again_and_again_comes_back_each_time(tmp_path: Path) -> None:
    """Every call ends at once, and a good one follows."""
    async with opened_rig(tmp_path, Place("stdio", "modern")) as rig:
        for _ in range(2):
            rig.faulty.switch("call killed")
            answer = await rig.call(rig.nonce())
            assert (answer.outcome, answer.delivery) == ("upstream_failed", "unknown")
            await rig.faulty.lift()
            await back_after(rig)


async def test_a_program_that_is_installed_later_is_started_then(tmp_path: Path) -> None:
    """No restart of the gateway is needed."""
    program = tmp_path / "later"
    faulty = Faulty(tmp_path / "faulty", Place("stdio", "modern"))
    entry = {"command": str(program), "args": ["-S", str(PROGRAMS / "on_stdio.py"), str(tmp_path / "faulty"), "modern"]}
    loaded = load_servers(json.dumps({"mcpServers": {"faulty": entry}}))
    async with open_gateway(Settings(data_dir=tmp_path / "data"), loaded.servers, environ=ENVIRON) as gateway:
        gateway.start_upstreams()
        rig = Rig(gateway, faulty, "modern")
        await rig.settle()
        assert "not found" in gateway.status().servers[0].error
        staged = tmp_path / "later.new"
        staged.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        staged.chmod(0o700)
        staged.replace(program)
        assert shutil.which(program)
        await back_after(rig)


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_answers_in_reverse_and_twice_reach_their_callers_only(tmp_path: Path, era: str) -> None:
    """Thirty-two callers at a time, each with its own answer."""
    async with opened_rig(tmp_path, Place("stdio", era)) as rig:
        rig.faulty.switch("call reversed-in-eights")
        for _ in range(5):
            nonces = [rig.nonce() for _ in range(32)]
            with anyio.fail_after(20):
                answers = await asyncio.gather(*map(rig.call, nonces))
            for nonce, answer in zip(nonces, answers, strict=True):
                assert (answer.outcome, f'recorded {nonce}"' in answer.text) == ("ok", True)
                assert rig.faulty.executions(nonce) == 1


async def test_a_call_that_is_given_up_is_cancelled_at_the_server(tmp_path: Path) -> None:
    """The server reads which request nobody waits for."""
    async with opened_rig(tmp_path, Place("stdio", "handshake")) as rig:
        rig.faulty.switch("call hang")
        nonce = rig.nonce()
        assert (await rig.call(nonce)).outcome == "upstream_timeout"
        await rig.faulty.lift()
        assert (await rig.call(rig.nonce())).outcome == "ok"
        messages = [json.loads(entry["message"]) for entry in rig.faulty.wire()]
        sent = next(message for message in messages if nonce in json.dumps(message))
        cancelled = [
            message["params"]["requestId"] for message in messages if message["method"] == "notifications/cancelled"
        ]
        assert cancelled == [sent["id"]]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_list_that_flaps_ends_as_it_was_last(tmp_path: Path, transport: str, era: str) -> None:
    """Announced with thousands of notifications that say the same; the catalogue has what the server last listed."""
    async with opened_rig(tmp_path, Place(transport, era)) as rig:
        for fault in ("list 5000-tools", "list none", "list 5000-tools", "list names-odd"):
            rig.faulty.switch(fault)
            await rig.reconnect()
        rig.faulty.switch("call changed-storm")
        await rig.settle()
        assert (await rig.call(rig.nonce())).outcome == "ok"
        with anyio.fail_after(20):
            while rig.gateway.status().tools["faulty"] != 2:
                await rig.gateway.base.changes.wait()
        lists = [entry for entry in rig.faulty.wire() if '"tools/list"' in entry["message"]]
        assert len(lists) < 20


async def test_the_gateways_own_credentials_and_callers_never_reach_a_server(tmp_path: Path) -> None:
    """What an HTTP server hears is its configured headers and the protocol's, nothing else."""
    async with opened_rig(tmp_path, Place("http", "modern")) as rig:
        await rig.call(rig.nonce())
        heard = {name for entry in rig.faulty.wire() for name in entry["headers"]}
    assert not heard & {"authorization", "cookie", "x-api-key", "x-forwarded-for", "forwarded", "origin", "referer"}
