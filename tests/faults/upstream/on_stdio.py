"""The faulty server on stdin and stdout, with the faults that only a child process has.

Usage: python -S on_stdio.py DIRECTORY ERA
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from answers import TICK_S
from replies import knows, replies
from server import Ask, Server, dump

FaultOnStdio = Callable[["Pipe", Ask], Awaitable[None]]
FAULTS: dict[str, FaultOnStdio] = {}
STARTS: dict[str, Callable[[], None]] = {}
LONGEST_LINE_BYTES = 64 << 20
STDERR_LINE = b"line of stderr " * 60 + b"\n"
STDERR_LINES = 20_000
EXIT_CODE = 7


class Pipe:
    """stdout, one message at a time.

    Blocking writes are fine: there is one client, and a real server blocks too.
    """

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(1, data) :]

    def line(self, message: bytes) -> None:
        self.write(message + b"\n")


def on_call(function: FaultOnStdio) -> FaultOnStdio:
    FAULTS[function.__name__.replace("_", "-")] = function
    return function


def on_start(function: Callable[[], None]) -> Callable[[], None]:
    STARTS[function.__name__.replace("_", "-")] = function
    return function


@on_call
async def crash_before(pipe: Pipe, ask: Ask) -> None:
    os._exit(EXIT_CODE)


@on_call
async def crash(pipe: Pipe, ask: Ask) -> None:
    assert ask.good
    os._exit(EXIT_CODE)


@on_call
async def killed(pipe: Pipe, ask: Ask) -> None:
    assert ask.good
    os.kill(os.getpid(), signal.SIGKILL)


@on_call
async def killed_before(pipe: Pipe, ask: Ask) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@on_call
async def exit_clean(pipe: Pipe, ask: Ask) -> None:
    assert ask.good
    os._exit(0)


@on_call
async def crash_on_effect(pipe: Pipe, ask: Ask) -> None:
    """One tool is the end of it, the others are not."""
    if ask.params["name"] == "effect":
        assert ask.good
        os._exit(EXIT_CODE)
    pipe.line(dump(ask.good))


@on_call
async def exit_after(pipe: Pipe, ask: Ask) -> None:
    """Answers, and is gone before the next call."""
    pipe.line(dump(ask.good))
    os._exit(0)


@on_call
async def crash_mid_line(pipe: Pipe, ask: Ask) -> None:
    pipe.write(dump(ask.good)[:-20])
    os._exit(EXIT_CODE)


@on_call
async def late_after_crash(pipe: Pipe, ask: Ask) -> None:
    """The answer leaves in the next life, to an id of this one."""
    ask.server.hold(dump(ask.good))
    os._exit(EXIT_CODE)


@on_call
async def close_stdout(pipe: Pipe, ask: Ask) -> None:
    assert ask.good
    os.close(1)
    os.open(os.devnull, os.O_WRONLY)


@on_call
async def close_stdin(pipe: Pipe, ask: Ask) -> None:
    """Lives on and hears nothing any more."""
    assert ask.good
    os.close(0)


@on_call
async def stopped(pipe: Pipe, ask: Ask) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@on_call
async def drip(pipe: Pipe, ask: Ask) -> None:
    """A byte at a time for as long as the fault is on, then the rest at once."""
    left = dump(ask.good) + b"\n"
    while ask.is_on() and len(left) > 1:
        pipe.write(left[:1])
        left = left[1:]
        await asyncio.sleep(TICK_S)
    pipe.write(left)


@on_call
async def reversed_in_eights(pipe: Pipe, ask: Ask) -> None:
    """Eight calls are answered together, the last one first, each twice."""
    held = ask.server.waiting
    held.append(dump(ask.good))
    if len(held) == 8:
        for reply in (*reversed(held), *held):
            pipe.line(reply)
        held.clear()


@on_call
async def no_newline(pipe: Pipe, ask: Ask) -> None:
    pipe.write(dump(ask.good))


@on_call
async def split_line(pipe: Pipe, ask: Ask) -> None:
    text = dump(ask.good)
    pipe.write(text[:40] + b"\n" + text[40:] + b"\n")


@on_call
async def pretty(pipe: Pipe, ask: Ask) -> None:
    pipe.write(json.dumps(ask.good, indent=1).encode() + b"\n")


@on_call
async def noise(pipe: Pipe, ask: Ask) -> None:
    pipe.write(
        b'Listening on port 3000\n\n\t\n{"level": "info", "id": 1}\n{not json\n[1, 2]\n"text"\n\x1b[1mready\x1b[0m\n'
    )
    pipe.line(dump(ask.good))


@on_call
async def noise_before_on_line(pipe: Pipe, ask: Ask) -> None:
    pipe.line(b"debug: " + dump(ask.good))


@on_call
async def noise_storm(pipe: Pipe, ask: Ask) -> None:
    for _ in range(200):
        pipe.write(b"INFO request handled in 3 ms\n" * 500)
    pipe.line(dump(ask.good))


@on_call
async def stderr_storm(pipe: Pipe, ask: Ask) -> None:
    for _ in range(STDERR_LINES):
        os.write(2, STDERR_LINE)
    pipe.line(dump(ask.good))


@on_call
async def stderr_one_line(pipe: Pipe, ask: Ask) -> None:
    for _ in range(STDERR_LINES):
        os.write(2, STDERR_LINE[:-1])
    pipe.line(dump(ask.good))


@on_call
async def orphan_then_crash(pipe: Pipe, ask: Ask) -> None:
    """Ends while a child of its own keeps the pipes open."""
    assert ask.good
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.DEVNULL)
    os._exit(EXIT_CODE)


@on_start
def exit_zero() -> None:
    sys.exit(0)


@on_start
def exit_three() -> None:
    sys.stderr.write("cannot start: no licence\n")
    sys.exit(3)


@on_start
def abort() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@on_start
def silent_end() -> None:
    os.close(1)
    signal.pause()


@on_start
def deaf() -> None:
    signal.pause()


@on_start
def deaf_to_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


@on_start
def banner() -> None:
    os.write(1, b"Welcome to the faulty server!\n\x1b[1mready\x1b[0m\n\xef\xbb\xbf\n{}\n")


@on_start
def stderr_first() -> None:
    for _ in range(STDERR_LINES):
        os.write(2, STDERR_LINE)


@on_start
def downgrade() -> None:
    """The server itself sees to it: it is of the handshake era now."""


async def answered(pipe: Pipe, server: Server, message: dict[str, object]) -> None:
    if message.get("id") is None or "method" not in message:
        return
    ask = Ask(server, message)
    fault = ask.fault
    if ask.method == "subscriptions/listen":
        pipe.line(server.acknowledged(ask))
    elif fault in FAULTS:
        await FAULTS[fault](pipe, ask)
    else:
        assert not fault or knows(fault), fault
        for reply in replies(ask, fault):
            if isinstance(reply, float):
                await asyncio.sleep(reply)
            else:
                pipe.line(reply)


async def main(directory: Path, era: str) -> None:
    server = Server(directory, era)
    stage, _, fault = server.switched_on().partition(" ")
    if stage == "start":
        STARTS[fault]()
    reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    pipe, running = Pipe(), set()
    while line := await reader.readline():
        server.see(line)
        task = asyncio.create_task(answered(pipe, server, json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
