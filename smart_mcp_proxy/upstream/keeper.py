"""Servers that this worker runs for all: the end of `relayed.py` that has them."""

import asyncio
import secrets
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.io.lines import LineSplitter
from smart_mcp_proxy.models import Progress, ServerState, ServerStatus
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.protocol.pending import SUBSCRIBE
from smart_mcp_proxy.upstream.relayed import Failure, Head
from smart_mcp_proxy.upstream.supervisor import Upstream

__all__ = ["Keeper"]

_DAY_S: Final = 86_400.0
"""The other worker has its own limits, and says when it gives up."""
_CHUNK_BYTES: Final = 65_536
_TOKEN: Final = "progressToken"

log = get_logger("upstream")


class _Asked(msgspec.Struct):
    """A request or notification of another worker's."""

    method: str
    params: dict[str, Any] = {}
    id: int | None = None


_asked = msgspec.json.Decoder(_Asked)


class Keeper:
    """Lets other workers use the servers that this one runs.

    Args:
        upstreams: The servers by name.
        max_message_bytes: No line is longer.
    """

    def __init__(self, upstreams: Mapping[str, Upstream], max_message_bytes: int) -> None:
        self._upstreams = upstreams
        self._max_message_bytes = max_message_bytes
        self._users: defaultdict[str, set[_User]] = defaultdict(set)

    def take(self, words: bytes, handed: socket.socket) -> None:
        """Serves another worker on a socket."""
        spawn(self._serve(words.decode(), handed), "relay")

    def close(self) -> None:
        """Ends what other workers have under way."""
        for users in self._users.values():
            for user in tuple(users):
                user.close()

    # --- what is heard of the servers

    def status_changed(self, status: ServerStatus) -> None:
        """A server is in another state: with its connection ends that of its users."""
        if status.state is not ServerState.READY:
            for user in tuple(self._users.get(status.name, ())):
                user.close()

    def tools_changed(self, name: str) -> None:
        """Tells of a server's tools, which may have changed."""
        self._tell(name, "notifications/tools/list_changed")

    def contents_changed(self, name: str) -> None:
        """Tells of a server's prompts or resources, which may have changed."""
        self._tell(name, "notifications/resources/list_changed")

    def resource_updated(self, name: str, uri: str) -> None:
        """Tells of one resource, which may have changed."""
        self._tell(name, "notifications/resources/updated", {"uri": uri})

    def _tell(self, name: str, method: str, params: Mapping[str, Any] | None = None) -> None:
        for user in tuple(self._users.get(name, ())):
            user.tell(method, params or {})

    # --- one user

    async def _serve(self, name: str, handed: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=handed)
        upstream = self._upstreams.get(name)
        head = await _head_of(name, upstream)
        writer.write(msgspec.json.encode(head) + b"\n")
        if head.refusal is not None or upstream is None:
            writer.close()
            return
        user = _User(upstream, head.failure_code, writer)
        self._users[name].add(user)
        lines = LineSplitter(self._max_message_bytes)
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                for line in lines.feed(chunk):
                    if isinstance(line, bytes):
                        user.take(_asked.decode(line))
        except (ConnectionError, msgspec.DecodeError) as exc:
            log.debug("a worker's connection to server %s ended: %s", name, exc)
        finally:
            self._users[name].discard(user)
            await user.leave()


async def _head_of(name: str, upstream: Upstream | None) -> Head:
    """The first line that a user gets, once the server is ready or is not going to be."""
    if upstream is None:
        return Head(refusal=Failure(f"Server '{name}' is not configured in the worker that runs it.", ""))
    if not await upstream.ready(upstream.config.limits.init_s):
        status, error = upstream.status, upstream.not_ready()
        return Head(refusal=Failure(status.error or error.message, error.hint))
    status = upstream.status
    return Head(
        era=status.era or "handshake",
        protocol_version=status.protocol_version,
        capabilities=dict(upstream.capabilities),
        server_info=status.server_info,
        failure_code=-secrets.randbits(48),
        run=upstream.run,
    )


class _User:
    """One other worker's use of one server.

    Args:
        upstream: The server.
        failure_code: See `Head`.
        writer: To the other worker.
    """

    def __init__(self, upstream: Upstream, failure_code: int, writer: asyncio.StreamWriter) -> None:
        self._upstream = upstream
        self._failure_code = failure_code
        self._writer = writer
        self._running: dict[int, asyncio.Task[None]] = {}
        self._watched: set[str] = set()

    def take(self, asked: _Asked) -> None:
        """Begins with a request, or stops one."""
        if asked.id is None:
            running = self._running.get(asked.params.get("requestId", 0))
            if asked.method == "notifications/cancelled" and running is not None:
                running.cancel()
            return
        task = spawn(self._answer(asked.id, asked), "relayed request")
        self._running[asked.id] = task
        task.add_done_callback(lambda _: self._running.pop(asked.id or 0, None))

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends a notification."""
        self._put({"jsonrpc": "2.0", "method": method, "params": params})

    def close(self) -> None:
        """Ends the connection."""
        self._writer.close()

    async def leave(self) -> None:
        """Stops what is under way: nobody waits for it."""
        for task in tuple(self._running.values()):
            task.cancel()
        self._writer.close()
        if self._watched:
            await self._unwatch(frozenset(self._watched))

    async def _answer(self, request_id: int, asked: _Asked) -> None:
        try:
            result = await self._result(request_id, asked)
        except UpstreamError as exc:
            answer = exc.answer
            if answer is not None:
                error: dict[str, Any] = {"code": answer.code, "message": answer.message, "data": answer.data}
            else:
                failure = Failure(exc.message, exc.hint, exc.delivery)
                error = {"code": self._failure_code, "message": "", "data": failure}
            self._put({"jsonrpc": "2.0", "id": request_id, "error": error})
            return
        if self._writer.is_closing():
            return
        self._writer.writelines((b'{"jsonrpc":"2.0","id":%d,"result":' % request_id, *result.pieces, b"}\n"))
        with suppress(ConnectionError):  # the user has gone
            await self._writer.drain()

    def _result(self, request_id: int, asked: _Asked) -> Awaitable[RawResult]:
        params = asked.params
        match asked.method:
            case "resources/subscribe":
                return self._watch([params["uri"]])
            case "resources/unsubscribe":
                return self._unwatch(frozenset([params["uri"]]))
            case method if method == SUBSCRIBE:
                return self._listen(params)
        on_progress: Callable[[Progress], Awaitable[None]] | None = None
        meta = params.get("_meta")
        if meta is not None and _TOKEN in meta:
            meta = {name: value for name, value in meta.items() if name != _TOKEN}
            params = {**params, "_meta": meta} if meta else {k: v for k, v in params.items() if k != "_meta"}

            async def on_progress(report: Progress) -> None:
                self.tell("notifications/progress", {_TOKEN: request_id, **_told(report)})

        return self._upstream.request(asked.method, params, timeout_s=_DAY_S, on_progress=on_progress)

    # --- single resources: the server tells this worker, and this worker its users

    async def _watch(self, uris: list[str]) -> RawResult:
        self._watched.update(uris)
        self._upstream.watch.others.update(uris)
        failures = await self._upstream.watch.add(uris, self._upstream.config.limits.call_s)
        for error in failures.values():
            raise error
        return RawResult(b"{}")

    async def _unwatch(self, uris: frozenset[str]) -> RawResult:
        gone = uris & self._watched
        self._watched -= gone
        self._upstream.watch.others.subtract(gone)
        return RawResult(b"{}")

    async def _listen(self, params: Mapping[str, Any]) -> RawResult:
        """Watch what a stream names until it is cancelled."""
        uris = params.get("notifications", {}).get("resourceSubscriptions") or []
        added = [uri for uri in uris if uri not in self._watched]
        failures: dict[str, UpstreamError] = {}
        for uri in added:
            try:
                await self._watch([uri])
            except UpstreamError as exc:
                failures[uri] = exc
        agreed = [uri for uri in uris if uri not in failures]
        self.tell("notifications/subscriptions/acknowledged", {"notifications": {"resourceSubscriptions": agreed}})
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self._unwatch(frozenset(added))
        return RawResult(b"{}")

    def _put(self, message: Mapping[str, Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")


def _told(report: Progress) -> dict[str, Any]:
    facts = {"progress": report.progress, "total": report.total, "message": report.message}
    return {name: value for name, value in facts.items() if value is not None}
