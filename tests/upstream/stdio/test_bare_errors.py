"""Internal errors without a reason, from a server on stdio."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from upstream_fakes import fake_config

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.upstream import Connector, Upstream
from smart_mcp_proxy.upstream.protocol.server_log import ServerLog
from smart_mcp_proxy.upstream.protocol.session import rpc_error
from smart_mcp_proxy.upstream.stdio.bare_errors import add_reason, is_bare

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
    if method == "initialize": reply["result"] = {"protocolVersion": "2025-11-25", **facts}
    elif method == "server/discover": reply["result"] = {"supportedVersions": ["2026-07-28"], **facts}
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


async def test_a_server_that_writes_nothing_is_asked_in_the_older_era_once_it_is_restarted(failing):
    """Some tell reasons only there; what may hold a state is not restarted unasked."""
    upstream = await failing()
    error = await failure(upstream)
    assert error.message.endswith("Internal server error")
    assert error.hint.endswith("mcpproxy server restart fake")
    await upstream.restart()
    assert (await failure(upstream)).message.endswith("name not known")
    assert upstream.status.era == "handshake"


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
    mark = log.mark
    if written:
        log.add(written, is_said=True)
    error = rpc_error("s", "tools/call", -32603, "Internal error")
    hint = error.hint
    await add_reason(error, "s", era, log, mark)
    assert error.said == "Internal error" + (f" (on stderr it wrote meanwhile: {written})" if written else "")
    assert error.hint == hint
