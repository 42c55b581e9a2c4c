"""Internal errors without a reason, from a server on stdio."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from upstream_fakes import fake_config

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.servers.config import Isolation
from smart_mcp_proxy.upstream import Connector, Upstream
from smart_mcp_proxy.upstream.protocol.server_log import ServerLog
from smart_mcp_proxy.upstream.protocol.session import build_lost_error, rpc_error
from smart_mcp_proxy.upstream.stdio.bare_errors import Reasons, is_bare
from smart_mcp_proxy.upstream.stdio.stdio import StdioSession

pytestmark = pytest.mark.anyio

BOTH_ERAS = """
import json, os, sys
PROTOCOL = "io.modelcontextprotocol/protocolVersion"
for line in sys.stdin:
    message = json.loads(line)
    method, meta = message["method"], message.get("params", {}).get("_meta", {})
    if "id" not in message: continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    facts = {"capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    if method == "initialize" and "ONLY" in os.environ: reply["error"] = {"code": -32601, "message": "Unknown method"}
    elif method == "initialize": reply["result"] = {"protocolVersion": "2025-11-25", **facts}
    elif method == "server/discover": reply["result"] = {"supportedVersions": ["2026-07-28"], **facts}
    elif message["params"].get("name") == "login": reply["result"] = {"content": [], "resultType": "complete"}
    elif message["params"].get("name") == "wait": continue
    elif message["params"].get("name") == "die":
        sys.stderr.write("Traceback (most recent call last):\\n  File 'x', line 1, in f\\nValueError: no such forum\\n")
        sys.stderr.flush()
        os._exit(3)
    elif PROTOCOL not in meta: reply["error"] = {"code": 0, "message": "name not known"}
    else:
        sys.stderr.write(os.environ.get("WRITTEN", ""))
        sys.stderr.flush()
        reply["error"] = {"code": -32603, "message": "Internal server error"}
    print(json.dumps(reply), flush=True)
"""
TRACEBACK = """\
modern request handler raised
Traceback (most recent call last):
  File "/app/server.py", line 6, in work
    raise RuntimeError("no forum at forum.example")
RuntimeError: no forum at forum.example, key hunter22hunter22
"""


@pytest.fixture
async def failing(dialer: Connector) -> AsyncIterator[Any]:
    """Starts a server whose calls fail; the error of one call is what the function that it gives returns."""
    kept: list[Upstream] = []

    async def start(**env: str) -> Upstream:
        config = fake_config(args=("-S", "-c", BOTH_ERAS), env=env)
        upstream = Upstream(
            config,
            environ=dict(os.environ),
            on_change=lambda status: None,
            on_tools_changed=lambda name: None,
            open_session=dialer,
            start_gate=asyncio.Semaphore(1),
            rng=random.Random(1),
        )
        kept.append(upstream)
        await upstream.start()
        return upstream

    yield start
    for upstream in kept:
        await upstream.stop()


async def failure(upstream: Upstream) -> UpstreamError:
    with anyio.fail_after(20), pytest.raises(UpstreamError) as caught:
        await upstream.request("tools/call", {"name": "work", "arguments": {}})
    return caught.value


async def test_what_the_server_wrote_meanwhile_is_told_as_its_own_words(failing):
    """Without secrets, and in the part of the message that is cleaned and fenced."""
    error = await failure(await failing(WRITTEN=TRACEBACK, KEY="hunter22hunter22"))
    said = "Internal server error (on stderr it wrote meanwhile: RuntimeError: no forum at forum.example, key [hidden])"
    assert error.said == said
    assert error.message == f"Server 'fake' answered 'tools/call' with error -32603: {said}"
    assert error.answer is not None
    assert (error.answer.code, error.answer.message) == (-32603, said)


async def test_a_server_that_writes_nothing_is_started_anew_in_the_older_era(failing):
    """Some tell reasons only there; no call has succeeded, so no state is lost."""
    upstream = await failing()
    error = await failure(upstream)
    assert error.message.endswith("Internal server error")
    assert error.hint.endswith("the next call shows it.")
    assert (await failure(upstream)).message.endswith("name not known")
    assert (upstream.status.era, upstream.status.restarts) == ("handshake", 1)
    assert (await failure(upstream)).message.endswith("name not known")
    assert upstream.status.restarts == 1


async def test_a_server_that_speaks_no_older_era_is_restarted_once(failing):
    """However often its calls fail; and what a list answers is worth no restart at all."""
    upstream = await failing(ONLY="modern")
    with anyio.fail_after(20), pytest.raises(UpstreamError, match="Internal server error"):
        await upstream.request("prompts/list", {})
    assert upstream.status.restarts == 0
    for _ in range(4):
        assert (await failure(upstream)).message.endswith("Internal server error")
    assert (upstream.status.era, upstream.status.restarts) == ("modern", 1)


async def test_the_reason_of_an_end_is_told_to_the_call_that_met_it(failing):
    """As words of the server."""
    upstream = await failing()
    with anyio.fail_after(20), pytest.raises(UpstreamError) as caught:
        await upstream.request("tools/call", {"name": "die", "arguments": {}})
    assert caught.value.message == "Server 'fake' ended with exit code 3. It wrote: ValueError: no such forum"
    assert (caught.value.said, caught.value.delivery) == ("It wrote: ValueError: no such forum", "unknown")


async def test_a_call_that_meets_the_end_tells_what_the_sandbox_refused(tmp_path: Path) -> None:
    """As the server's state does: the next one that is started may live for long enough to answer."""
    log, refused = ServerLog(), f"EACCES: permission denied, mkdir '{tmp_path}/dist/logs'"
    fatal = {"level": 60, "err": {"type": "Error", "message": refused}, "msg": "FATAL: Uncaught exception."}
    log.add("Error: EACCES: open '/opt/acme/before'", is_said=True)
    log.begin()
    (tmp_path / "dist").mkdir()
    log.add(json.dumps(fatal), is_said=True)
    for mode in ("sandbox", "none"):
        error = build_lost_error("fake", "ended with exit code 1", was_sent=True)
        seen = error.hint
        reasons = Reasons(fake_config(isolation=Isolation(mode)), log)
        assert not await reasons.begins_anew(error, "tools/call", "handshake", 0)
        assert error.said == f"It wrote: FATAL: Uncaught exception: {refused}"
        allow = f" It runs in a sandbox that keeps it from {tmp_path}/dist/logs: mcpproxy server allow fake --write "
        assert error.hint == seen + (f"{allow}{tmp_path}/dist" if mode == "sandbox" else "")


@pytest.mark.parametrize(
    ("message", "allowed"),
    [
        ("EACCES: permission denied, uv_resident_set_memory", "--read /proc"),
        ("[Errno 13] Permission denied: '/etc/hosts'", "--read /etc/hosts"),
        ("403 permission denied for '/repos/acme'", ""),
    ],
)
async def test_a_call_that_the_sandbox_refuses_something_is_told_how_to_allow_it(message: str, allowed: str) -> None:
    """Where the answer names an error of the system, and not one of a service."""
    for mode in ("sandbox", "none"):
        error = UpstreamError(f"Server 'fake' answered 'tools/call' with error -32603: {message}", hint="See.")
        assert not await Reasons(fake_config(isolation=Isolation(mode)), ServerLog()).begins_anew(
            error, "tools/call", "modern", 0
        )
        is_told = allowed and mode == "sandbox"
        assert error.hint.startswith("It runs in a sandbox" if is_told else "See.")
        assert error.hint.endswith(f"mcpproxy server allow fake {allowed}" if is_told else "See.")


async def test_a_call_while_an_ended_program_is_cleared_away_waits_for_the_next_one(failing, dialer, monkeypatch):
    """It was answered that the server is not ready, as it is ready."""
    closing, may_close = anyio.Event(), anyio.Event()
    close = StdioSession.close

    async def close_slowly(session: StdioSession) -> None:
        closing.set()
        await may_close.wait()
        await close(session)

    monkeypatch.setattr(StdioSession, "close", close_slowly)
    upstream = await failing()
    with anyio.fail_after(20):
        with pytest.raises(UpstreamError, match="ended with exit code 3"):
            await upstream.request("tools/call", {"name": "die", "arguments": {}})
        await closing.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(upstream.request, "tools/call", {"name": "login", "arguments": {}})
            await anyio.lowlevel.checkpoint()
            may_close.set()
    assert upstream.status.restarts == 1


async def test_a_server_that_may_hold_a_state_is_not_restarted_unasked(failing):
    """The hint says how its user does it."""
    upstream = await failing()
    await upstream.request("tools/call", {"name": "login", "arguments": {}})
    error = await failure(upstream)
    assert error.hint.endswith("mcpproxy server restart fake")
    assert upstream.status.restarts == 0
    await upstream.restart()
    assert (await failure(upstream)).message.endswith("name not known")


async def test_a_server_is_not_restarted_while_another_call_is_under_way(failing):
    """That one would be lost."""
    upstream = await failing()
    with anyio.fail_after(20):
        await upstream.ready(20)
        waiting = asyncio.ensure_future(upstream.request("tools/call", {"name": "wait", "arguments": {}}))
        await asyncio.sleep(0)
        assert (await failure(upstream)).hint.endswith("mcpproxy server restart fake")
        await failure(upstream)
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize(
    ("code", "message", "data", "is_so"),
    [
        (-32603, "Internal server error", None, True),
        (-32603, "Internal error.", {}, True),
        (-32603, "", None, True),
        (-32603, "no forum", None, False),
        (-32603, "Internal error", {"reason": "no forum"}, False),
        (-32602, "Internal error", None, False),
        (-32601, "", None, False),
    ],
)
def test_an_answer_is_bare_where_it_says_no_more_than_its_code(code, message, data, is_so) -> None:
    """Whatever says more stays as it is."""
    assert is_bare(rpc_error("s", "tools/call", code, message, data)) is is_so


@pytest.mark.parametrize(("era", "written"), [("handshake", ""), ("modern", "no forum"), ("handshake", "no forum")])
async def test_only_lines_from_after_the_mark_are_told(era: Era, written: str) -> None:
    """What was written before belongs to another call."""
    log = ServerLog()
    log.add("Error: of another call", is_said=True)
    reasons = Reasons(fake_config(), log)
    mark = log.mark
    reasons.under_way += 1
    if written:
        log.add(written, is_said=True)
    error = rpc_error("s", "tools/call", -32603, "Internal error")
    hint = error.hint
    assert not await reasons.begins_anew(error, "tools/call", era, mark)
    assert error.said == "Internal error" + (f" (on stderr it wrote meanwhile: {written})" if written else "")
    assert error.hint == hint
