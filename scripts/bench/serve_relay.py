"""The least that a process of Python in between costs: passes every byte on as it arrives and looks at none.

Usage: python -m bench.serve_relay stdio COMMAND ARGUMENT... | python -m bench.serve_relay http UPSTREAM_PORT PORT

It checks nothing, records nothing and serves one upstream only. What it adds is the machine's share of what a gateway
adds at this moment: two more processes to wake for each call.
"""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE

from smart_mcp_proxy.cli.support.loop import run


class Onward(asyncio.Protocol):
    """Writes what arrives to another transport, and closes it at the end."""

    def __init__(self, sink: asyncio.WriteTransport | None = None) -> None:
        self.sink = sink
        self.source: asyncio.Transport | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.source = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.sink is None:
            self.early.append(data)
        else:
            self.sink.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.sink is not None:
            self.sink.close()

    def lead_to(self, sink: asyncio.WriteTransport) -> None:
        self.sink = sink
        sink.writelines(self.early)
        self.early.clear()


class Child(asyncio.SubprocessProtocol):
    """Writes what the child says to a transport."""

    def __init__(self, sink: asyncio.WriteTransport) -> None:
        self.sink = sink
        self.ended = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.sink.write(data)

    def process_exited(self) -> None:
        self.ended.set()


async def relay_stdio(command: list[str]) -> int:
    """Relays our pipes until the child has ended; returns 0."""
    loop = asyncio.get_running_loop()
    out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(1, "wb", buffering=0))
    transport, child = await loop.subprocess_exec(lambda: Child(out), *command, stdin=PIPE, stdout=PIPE, stderr=None)
    stdin = transport.get_pipe_transport(0)
    await loop.connect_read_pipe(lambda: Onward(stdin), os.fdopen(0, "rb", buffering=0))  # type: ignore[arg-type]
    await child.ended.wait()
    return 0


async def relay_http(upstream_port: int, port: int) -> int:
    """Relays each connection over one of its own, until the process is ended."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def lead(inward: Onward) -> None:
        assert inward.source is not None
        outward, _ = await loop.create_connection(lambda: Onward(inward.source), "127.0.0.1", upstream_port)
        inward.lead_to(outward)

    class Inward(Onward):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            task = loop.create_task(lead(self))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    listener = await loop.create_server(Inward, "127.0.0.1", port, backlog=1024)
    await listener.serve_forever()
    return 0


def main() -> None:
    work = relay_stdio(sys.argv[2:]) if sys.argv[1] == "stdio" else relay_http(int(sys.argv[2]), int(sys.argv[3]))
    with contextlib.suppress(KeyboardInterrupt):
        run(work)


if __name__ == "__main__":
    main()
