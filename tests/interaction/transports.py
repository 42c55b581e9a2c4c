"""The gateway's transports, each opened as an agent does."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asgi_server
import httpx2
from agents import Agent, Era, HttpAgent, StreamAgent, events_of
from described import assert_described
from forked_programs import ForkedProcess, start_forked
from plain_http import TRUSTS_NOBODY, plain_client
from run_canary import entrusted
from run_wire import Watched, came_from_agent, configured_with

from smart_mcp_proxy.fastmcp_compat.eras import serve_streams
from smart_mcp_proxy.fastmcp_compat.server import dump_message, message_streams, parse_message
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.observability.tracing import Tracing
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.serve_http import serve_http

UPSTREAM = Path(__file__).parent / "odd_upstream.py"
STDIO_COMMAND = (sys.executable, "-m", "smart_mcp_proxy", "serve")
Process = asyncio.subprocess.Process | ForkedProcess
CUT_CHARS = 2_000
SETTLED_S = 60
LONGEST_LINE_BYTES = 64 * 1024 * 1024
ENVIRON = {
    "PATH": os.environ["PATH"],
    "HOME": os.environ.get("HOME", "/"),
    "LANG": "C.UTF-8",
    "MCPPROXY_SHARED": "false",  # tests/desktop has the gateway that clients share
    "MCPPROXY_EMBEDDER": "BM25",  # tests/gateway/test_vector_search.py has the default
    "MCPPROXY_ISOLATION": "none",  # tests/upstream/confinement has the sandbox
}

CHANNELS = [
    ("memory", "handshake"),
    ("memory", "modern"),
    ("stdio", "handshake"),
    ("stdio", "modern"),
    ("http", "handshake"),
    ("http", "modern"),
    ("sse", "handshake"),
]


def odd_server(mode: str, ledger: Path | str = os.devnull, gate: Path | str = "/", count: int = 0) -> dict[str, Any]:
    """The configuration of one server of `odd_upstream.py`; without site packages it starts in no time."""
    return {"command": sys.executable, "args": ["-S", str(UPSTREAM), mode, str(ledger), str(gate), str(count)]}


def odd_servers(ledger: Path) -> dict[str, Any]:
    """The two servers that most tests talk to: `old` of the handshake era, `new` of the modern one."""
    return {"old": odd_server("handshake", ledger), "new": odd_server("modern", ledger)}


@asynccontextmanager
async def opened_gateway(
    data_dir: Path,
    servers: Mapping[str, Any],
    *,
    passthrough: str | None = None,
    profiles: Mapping[str, Any] | None = None,
    tracing: Tracing | None = None,
    refused: Collection[str] = (),
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """A gateway in this process; `refused` are the servers whose entries cannot be used."""
    loaded = load_servers(json.dumps({"mcpServers": entrusted(servers), "profiles": profiles or {}}))
    assert {problem.server for problem in loaded.problems} == set(refused)
    for server in loaded.servers.values():
        configured_with(server.headers)
    own = Settings(
        data_dir=data_dir, **{"isolation": "none", "embedder": "BM25", **settings}
    )  # which have tests of their own
    async with open_gateway(
        own, loaded.servers, profiles=loaded.profiles, environ=ENVIRON, passthrough=passthrough, tracing=tracing
    ) as gateway:
        yield gateway


@asynccontextmanager
async def _running(work: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def in_memory(gateway: Gateway, era: Era, **capabilities: Any) -> AsyncIterator[Agent]:
    """An agent in this process, over a pair of message streams."""
    to_gateway, gateway_reads = message_streams()
    gateway_writes, from_gateway = message_streams()

    async def inbound() -> AsyncIterator[bytes]:
        async for message in from_gateway:
            yield dump_message(message)

    async def send(line: bytes) -> None:
        await to_gateway.send(parse_message(line))

    agent = StreamAgent(era, inbound(), send)
    agent.capabilities = capabilities
    async with (
        to_gateway,
        gateway_reads,
        gateway_writes,
        from_gateway,
        _running(serve_streams(gateway.agent_server(), gateway_reads, gateway_writes)),
        _running(agent.listen()),
    ):
        await agent.greet()
        yield agent


@asynccontextmanager
async def spawned(
    data_dir: Path,
    servers: Mapping[str, Any],
    *,
    options: Sequence[str] = (),
    are_entrusted: bool = True,
    program: Sequence[str] = (),
    **environ: str,
) -> AsyncIterator[Process]:
    """A gateway process on stdio, a fork unless its program is given; its stderr goes to `data_dir/stderr.log`.

    Servers that answer with their own environment are not to be entrusted with the secret of the run.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    told = entrusted(servers) if are_entrusted else servers
    variables = {"CONFIG_JSON": json.dumps({"mcpServers": told}), "DATA_DIR": str(data_dir), **environ}
    env = ENVIRON | {f"MCPPROXY_{name}": value for name, value in variables.items()}
    process: Process
    with (data_dir / "stderr.log").open("ab") as log:
        if program:
            process = await asyncio.create_subprocess_exec(
                *program,
                *options,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=env,
                limit=LONGEST_LINE_BYTES,
            )
        else:
            process = await start_forked("serve", *options, env=env, stderr=log, limit=LONGEST_LINE_BYTES)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 15)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@asynccontextmanager
async def on_stdio(process: Process, era: Era, *, is_greeting: bool = True) -> AsyncIterator[Agent]:
    """An agent on the pipes of a gateway process."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None

    async def send(line: bytes) -> None:
        stdin.write(line + b"\n")
        await stdin.drain()

    agent = StreamAgent(era, stdout, send)
    async with _running(agent.listen()):
        if is_greeting:
            await agent.greet()
        yield agent


@asynccontextmanager
async def served(gateway: Gateway, *, token: str | None = None) -> AsyncIterator[str]:
    """The base address of a gateway that serves HTTP on loopback."""
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with serve_http(gateway, listener, token=token):
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def listening(app: Any, *, is_upstream: bool = True) -> AsyncIterator[str]:
    """The base address of an ASGI app that is served on loopback: an upstream over HTTP, or what browsers see, too."""
    async with asgi_server.listening(Watched(app) if is_upstream else app) as base:
        yield base


@asynccontextmanager
async def rest_at(socket_file: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """The private REST of a gateway, as the command line finds it."""
    async with httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(uds=str(socket_file), verify=TRUSTS_NOBODY),
        base_url="http://gateway/api/v1",
        trust_env=False,
        event_hooks={"response": [assert_described]},
    ) as client:
        yield client


@asynccontextmanager
async def over_http(
    base: str, era: Era, headers: Mapping[str, str] | None = None, *, path: str = "/mcp", **capabilities: Any
) -> AsyncIterator[HttpAgent]:
    """An agent over streamable HTTP that sends `headers` with every request."""
    came_from_agent((headers or {}).items())
    async with plain_client(timeout=30, headers=headers) as client:
        agent = HttpAgent(era, f"{base}{path}", client)
        agent.capabilities = capabilities
        await agent.greet()
        yield agent


@asynccontextmanager
async def settled(data_dir: Path, servers: Mapping[str, Any], **settings: Any) -> AsyncIterator[Gateway]:
    """A gateway in this process that has listed its servers, prompts and resources included."""
    async with opened_gateway(data_dir, servers, **settings) as gateway:
        gateway.start_upstreams()
        assert await gateway.wait_settled(SETTLED_S)
        for name in servers:
            await gateway.lists.content_lists.wait_listed(name)
        yield gateway


@asynccontextmanager
async def agent_at(
    channel: tuple[str, Any], data_dir: Path, servers: Mapping[str, Any], passed: str | None = None
) -> AsyncIterator[Agent]:
    """An agent of a gateway of its own in front of these servers, one of them passed through if named."""
    transport, era = channel
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            options = () if passed is None else ("--passthrough", passed)
            process = await stack.enter_async_context(spawned(data_dir, servers, options=options))
            yield await stack.enter_async_context(on_stdio(process, era))
            return
        gateway = await stack.enter_async_context(settled(data_dir, servers, passthrough=passed))
        if transport == "memory":
            yield await stack.enter_async_context(in_memory(gateway, era))
            return
        base = await stack.enter_async_context(served(gateway))
        yield await stack.enter_async_context(over_http(base, era) if transport == "http" else over_sse(base))


@asynccontextmanager
async def over_sse(base: str) -> AsyncIterator[Agent]:
    """An agent over the older transport of two endpoints, which knows the handshake era only."""
    async with AsyncExitStack() as stack:
        # The stream may be silent for as long as other tests run.
        waits = httpx2.Timeout(30, read=None)
        client = await stack.enter_async_context(plain_client(base_url=base, timeout=waits))
        events = events_of(await stack.enter_async_context(client.stream("GET", "/sse")))
        name, messages_path = await anext(events)
        assert name == "endpoint"

        async def inbound() -> AsyncIterator[bytes]:
            # A server that stops elsewhere in this process ends the open streams of all.
            with contextlib.suppress(httpx2.RemoteProtocolError):
                async for _, data in events:
                    yield data.encode()

        async def send(line: bytes) -> None:
            reply = await client.post(messages_path, content=line, headers={"content-type": "application/json"})
            assert reply.status_code == 202, reply.text

        agent = StreamAgent("handshake", inbound(), send)
        await stack.enter_async_context(_running(agent.listen()))
        await agent.greet()
        yield agent
