"""What is measured: the upstream itself, and in front of it our gateway, FastMCP's proxy, and a relay of bytes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any, Literal

from bench.load import HttpLink, PipeLink, UpstreamSession, time_limit
from bench.process import cpu_s, memory_kb
from bench.wire import BadReplyError, Era, Template

__all__ = ["Bench", "Target", "TargetError", "Transport", "free_port", "spawn", "upstream_command"]

Transport = Literal["stdio", "http"]
SERVER = "up"
READY_S = 40.0
"""Longest time from the spawn to the first right answer; a busy machine takes seconds for the imports alone."""
_PAUSE_S = 0.02
_END_S = 8.0
_SCRIPTS = Path(__file__).parent.parent


class TargetError(Exception):
    """A target that does not start."""


def upstream_command(era: Era, *place: str) -> list[str]:
    """The command line of the raw upstream, without anything that slows its start."""
    return [sys.executable, "-S", "-E", str(Path(__file__).with_name("upstream.py")), era, *place]


@contextlib.contextmanager
def spawn(command: list[str], log: Path) -> Iterator["Popen[bytes]"]:
    """A process with pipes; stderr goes to `log`. It is asked to end, then made to."""
    environ = {**os.environ, "FASTMCP_CHECK_FOR_UPDATES": "off", "FASTMCP_LOG_LEVEL": "ERROR", "PYTHONUNBUFFERED": "1"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once, not at each start
    with log.open("ab") as errors:
        process = Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=_SCRIPTS, env=environ, bufsize=0
        )
    try:
        yield process
    finally:
        with contextlib.suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.close()
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


@dataclass(slots=True)
class Target:
    """One candidate, running.

    Attributes:
        name: direct, relay, ours or proxy.
        link: The load client's connection to it.
        process: What stands between client and upstream; None for direct.
    """

    name: str
    link: UpstreamSession
    process: "Popen[bytes] | None"
    profile: Path | None = None
    idle_mb: float = 0.0
    templates: dict[str, Template] = field(default_factory=dict)

    def prepare(self, tool: str, arguments: dict[str, Any], text: str, *, has_token: bool = False) -> Template:
        """A call whose whole result was compared with `text` just now.

        Args:
            tool: As the upstream names it.
            arguments: Its arguments.
            text: The right result.
            has_token: With a progress token, as most clients send one with every call.
        """
        key = f"{tool} {len(text)} {has_token}"
        if key not in self.templates:
            params: dict[str, Any] = {"arguments": arguments}
            if self.name == "ours":
                params = {"arguments": {"name": f"{SERVER}:{tool}", "args": arguments}}
            name = "call_tool_write" if self.name == "ours" else tool
            made = self.link.template(name, params, len(text), has_token=has_token)
            message = self.link.ask(made)
            content = message.get("result", {}).get("content") or [{}]
            if content[0].get("text") != text:
                raise BadReplyError(f"{self.name} answers {tool} with {str(message)[:300]}")
            self.templates[key] = made
        return self.templates[key]

    def cpu_s(self) -> float:
        """CPU seconds that the process has used, all its threads, user and system; in ticks of the kernel."""
        if self.process is None:
            return 0.0
        return cpu_s(self.process.pid)

    def memory_mb(self, what: Literal["VmRSS", "VmHWM"]) -> float:
        """Resident memory now (VmRSS) or at its highest (VmHWM)."""
        if self.process is None:
            return 0.0
        return memory_kb(self.process.pid, what) / 1024

    def start_profile(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGUSR1)

    def stop_profile(self) -> Mapping[str, Any]:
        """Shares of CPU time since `start_profile`."""
        assert self.process is not None and self.profile is not None
        self.process.send_signal(signal.SIGUSR2)
        with time_limit(10, "the profile"):
            while not self.profile.exists():
                time.sleep(_PAUSE_S)
        shares: Mapping[str, Any] = json.loads(self.profile.read_text())
        self.profile.unlink()
        return shares


class Bench:
    """All candidates of one transport and era, open at the same time so that rounds can alternate between them.

    Args:
        transport: Of the front and of the upstream alike.
        era: Of the whole chain: the upstream speaks no other.
        folder: For configuration, data and logs.
        names: Which of direct, relay, ours, proxy.
        is_profiled: Whether our gateway carries the sampler.
        options: Of our gateway, see serve_gateway.py.
    """

    def __init__(
        self,
        transport: Transport,
        era: Era,
        folder: Path,
        names: list[str],
        *,
        is_profiled: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        self._transport = transport
        self._era = era
        self._folder = folder / f"{transport}-{era}"
        self._names = names
        self._is_profiled = is_profiled
        self._options = options
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> list[Target]:
        self._folder.mkdir()
        with contextlib.ExitStack() as stack:
            upstream = upstream_command(self._era, "stdio")
            port = 0
            if self._transport == "http":
                port = free_port()
                url = f"http://127.0.0.1:{port}/mcp"
                stack.enter_context(spawn(upstream_command(self._era, "http", str(port)), self._log("upstream")))
            is_http = self._transport == "http"
            entry = {"url": url} if is_http else {"command": upstream[0], "args": upstream[1:]}
            proxied = url if is_http else json.dumps(upstream)
            relayed = [str(port)] if is_http else upstream
            commands = {
                "direct": upstream,
                "relay": [*_module("serve_relay"), self._transport, *relayed],
                "ours": self._gateway(entry),
                "proxy": [*_module("serve_proxy"), self._transport, proxied],
            }
            targets = [self._started(stack, name, commands[name], port) for name in self._names]
            for target in targets:
                self._await_ready(target)
                stack.callback(target.link.close)
            self._stack = stack.pop_all()
        return targets

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def _started(self, stack: contextlib.ExitStack, name: str, command: list[str], upstream_port: int) -> Target:
        if self._transport == "stdio":
            process = stack.enter_context(spawn(command, self._log(name)))
            return Target(name, PipeLink(process), None if name == "direct" else process, self._profile())
        if name == "direct":
            return Target(name, HttpLink(upstream_port), None)
        port = free_port()
        command = [*command, *(["--port"] if name == "ours" else []), str(port)]
        process = stack.enter_context(spawn(command, self._log(name)))
        return Target(name, HttpLink(port), process, self._profile())

    def _gateway(self, entry: dict[str, Any]) -> list[str]:
        config = self._folder / "mcp_config.json"
        config.write_text(json.dumps({"mcpServers": {SERVER: entry}}))
        profile = ["--profile", str(self._profile())] if self._is_profiled else []
        return [
            *_module("serve_gateway"),
            self._transport,
            str(config),
            str(self._folder / "data"),
            *profile,
            *self._options,
        ]

    def _await_ready(self, target: Target) -> None:
        """Until the target answers a call rightly; the gateway connects to its upstreams after it greets clients."""
        problem: Exception | None = None
        try:
            with time_limit(READY_S, f"{target.name} over {self._transport}"):
                while True:
                    try:
                        target.link.open(self._era)
                        break
                    except ConnectionRefusedError:
                        time.sleep(_PAUSE_S)
                while True:
                    try:
                        target.prepare("echo", {"text": "ready"}, "ready")
                        break
                    except BadReplyError as exc:
                        problem = exc
                        time.sleep(_PAUSE_S)
        except (TimeoutError, OSError, BadReplyError) as exc:
            log = self._log(target.name)
            last_words = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise TargetError(f"{target.name} does not start: {problem or exc}\n{last_words}") from exc
        target.idle_mb = target.memory_mb("VmRSS")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _profile(self) -> Path:
        return self._folder / "profile.json"


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", f"bench.{name}"]


def free_port() -> int:
    """A loopback port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
