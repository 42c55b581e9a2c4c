"""Server side of sessions that workers share; `relayed.py` is the client side."""

import asyncio
import secrets
import socket
import sys
from collections import defaultdict
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import ProxyError, UpstreamError
from smart_mcp_proxy.io.lines import LineSink, LineSplitter, OfferingReader, open_lines
from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.models import OnProgress, ProgressReport, ServerState, ServerStatus
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.upstream.protocol.pending import SUBSCRIBE
from smart_mcp_proxy.upstream.relayed import LOGS, RESTART, RETRY, SERVER, TIMED_OUT, Head, WorkerFailure
from smart_mcp_proxy.upstream.supervisor import Upstream

_DAY_S: Final = 86_400.0
"""The other worker has its own limits, and says when it gives up."""
_DRAIN_S: Final = 10.0
"""Seconds that the other workers wait for their calls when all have to end."""
_CHUNK_BYTES: Final = 65_536
_JOINED_BYTES: Final = 16_384
"""A longer result is sent in its pieces."""
_TOKEN: Final = "progressToken"


class _WorkerMessage(msgspec.Struct):
    """A request or notification of another worker's; what the server is to get stays as it came."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")
    id: int | None = None


_asked = msgspec.json.Decoder(_WorkerMessage)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Keeper:
    """Lets other workers use the servers that this one runs.

    Args:
        upstreams: The servers by name.
        worker: This process.
    """

    def __init__(self, upstreams: Mapping[str, Upstream], worker: Worker) -> None:
        self._upstreams = upstreams
        self._users: defaultdict[str, set[_WorkerConnection]] = defaultdict(set)
        self._refused: defaultdict[str, set[LineSink]] = defaultdict(set)
        worker.listen(SERVER, lambda words, handed: spawn(self._serve(words.decode(), handed), "relay"))
        worker.answer(LOGS, self._logs)
        worker.answer(RESTART, self._restart)
        worker.answer(RETRY, self._retry)

    async def close(self) -> None:
        """Ends what other workers have under way, after a while in which it may end by itself."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                while running := [
                    task for users in self._users.values() for user in users for task in user.list_pending_tasks()
                ]:
                    await asyncio.wait(running)
        for users in self._users.values():
            for user in tuple(users):
                user.close()

    def _logs(self, words: bytes) -> bytes:
        count, _, name = words.decode().partition(" ")
        upstream = self._upstreams.get(name)
        return msgspec.json.encode(upstream.logs(int(count)) if upstream is not None else [])

    def _restart(self, words: bytes) -> bytes:
        if (upstream := self._upstreams.get(words.decode())) is not None:
            spawn(upstream.restart(), f"upstream-restart-{upstream.name}")
        return b""

    def _retry(self, words: bytes) -> bytes:
        if (upstream := self._upstreams.get(words.decode())) is not None:
            upstream.hasten_retry()
        return b""

    # --- what is heard of the servers

    def status_changed(self, status: ServerStatus) -> None:
        """Ends the connections of those who use a server that is lost, or were refused in its state before."""
        for sink in self._refused.pop(status.name, ()):
            sink.close()
        if status.state is not ServerState.READY:
            for user in tuple(self._users.get(status.name, ())):
                user.close()

    def tools_changed(self, name: str) -> None:
        """Notify other workers that a server's tools may have changed."""
        self._tell(name, "notifications/tools/list_changed")

    def contents_changed(self, name: str) -> None:
        """Notify other workers that a server's prompts or resources may have changed."""
        self._tell(name, "notifications/resources/list_changed")

    def resource_updated(self, name: str, uri: str) -> None:
        """Notify other workers that one resource may have changed."""
        self._tell(name, "notifications/resources/updated", {"uri": uri})

    def _tell(self, name: str, method: str, params: Mapping[str, Any] | None = None) -> None:
        for user in tuple(self._users.get(name, ())):
            user.tell(method, params or {})

    # --- one user

    async def _serve(self, name: str, handed: socket.socket) -> None:
        reader, sink = await open_lines(handed, _CHUNK_BYTES)
        try:
            await self._serve_worker(name, reader, sink)
        finally:
            sink.close()

    async def _serve_worker(self, name: str, reader: OfferingReader, sink: LineSink) -> None:
        upstream = self._upstreams.get(name)
        head = await _build_head(name, upstream)
        sink.write(msgspec.json.encode(head) + b"\n")
        if head.refusal is not None or upstream is None:
            self._refused[name].add(sink)
            await _wait_disconnect(reader)
            self._refused[name].discard(sink)
            return
        user = _WorkerConnection(upstream, head.failure_code, sink)
        self._users[name].add(user)
        reader.take = user.take
        await _wait_disconnect(reader)
        self._users[name].discard(user)
        await user.leave()


async def _wait_disconnect(reader: OfferingReader) -> None:
    """Returns when either end of a connection is closed; what the other worker sends is taken meanwhile."""
    with suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK_BYTES):
            reader.take(chunk)


async def _build_head(name: str, upstream: Upstream | None) -> Head:
    """The first line that a user gets, once the server is ready or is not going to be."""
    if upstream is None:
        return Head(refusal=WorkerFailure(f"Server '{name}' is not configured in the worker that runs it."))
    # Other workers look in after every failure: that must not cut the pauses between tries short.
    if not await upstream.ready(upstream.config.limits.init_s, may_retry=False):
        status, error = upstream.status, upstream.not_ready(may_retry=False)
        return Head(refusal=WorkerFailure(status.cause or error.message, error.hint, may_return=upstream.may_return))
    status = upstream.status
    return Head(
        era=status.era or "handshake",
        protocol_version=status.protocol_version,
        capabilities=dict(upstream.capabilities),
        server_info=status.server_info,
        failure_code=-secrets.randbits(48),
        run=upstream.run,
    )


class _WorkerConnection:
    """Connection from another worker to a server that this worker runs.

    Args:
        upstream: The server.
        failure_code: See `Head`.
        sink: To the other worker.
    """

    def __init__(self, upstream: Upstream, failure_code: int, sink: LineSink) -> None:
        self._upstream = upstream
        self._failure_code = failure_code
        self._sink = sink
        self._lines = LineSplitter(sys.maxsize)  # of a process of ours, which has its own limits
        self._running: dict[int, tuple[str, asyncio.Task[None]]] = {}
        self._watched: set[str] = set()

    def take(self, chunk: bytes) -> bool:
        """Deals with what has just arrived; see `OfferingReader`."""
        alone = self._lines.whole(chunk)
        for line in self._lines.feed(chunk) if alone is None else (alone,):
            assert isinstance(line, bytes)
            self._take_message(_asked.decode(line))
        return True

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Sends a notification."""
        self._put({"jsonrpc": "2.0", "method": method, "params": params})

    def close(self) -> None:
        """Ends the connection."""
        self._sink.close()

    def list_pending_tasks(self) -> list[asyncio.Task[None]]:
        """Tasks of requests under way; subscriptions, which end only with the connection, are left out."""
        return [task for method, task in self._running.values() if method != SUBSCRIBE]

    async def leave(self) -> None:
        """Stops what is under way: nobody waits for it."""
        for _, task in tuple(self._running.values()):
            task.cancel()
        self._sink.close()
        if self._watched:
            await self._unwatch(frozenset(self._watched))

    def _take_message(self, asked: _WorkerMessage) -> None:
        """Begins with a request, or stops one."""
        if asked.id is not None:
            task = spawn(self._answer(asked.id, asked), "relayed request")
            self._running[asked.id] = asked.method, task
            task.add_done_callback(partial(self._forget, asked.id))
        elif asked.method == TIMED_OUT:
            self._upstream.note_timeout(msgspec.json.decode(asked.params)["began_s"])
        elif asked.method == "notifications/cancelled":
            running = self._running.get(msgspec.json.decode(asked.params)["requestId"])
            if running is not None:
                running[1].cancel()

    def _forget(self, request_id: int, _: asyncio.Task[None]) -> None:
        del self._running[request_id]

    async def _answer(self, request_id: int, asked: _WorkerMessage) -> None:
        try:
            result = await self._result(request_id, asked)
        except ProxyError as exc:
            answer = exc.answer if isinstance(exc, UpstreamError) else None
            if answer is not None:
                error: dict[str, Any] = {"code": answer.code, "message": answer.message, "data": answer.data}
            else:
                error = {"code": self._failure_code, "message": "", "data": WorkerFailure.of(exc)}
            self._put({"jsonrpc": "2.0", "id": request_id, "error": error})
            return
        pieces = (b'{"jsonrpc":"2.0","id":%d,"result":' % request_id, *result.pieces, b"}\n")
        if result.size_bytes <= _JOINED_BYTES:
            self._sink.write(b"".join(pieces))
        else:
            self._sink.write_pieces(pieces)
        if self._sink.backlog_bytes:
            with suppress(ConnectionError):  # the user has gone
                await self._sink.drain()

    def _result(self, request_id: int, asked: _WorkerMessage) -> Awaitable[RawResult]:
        params: dict[str, Any] = dict(_members.decode(asked.params))
        match asked.method:
            case "resources/subscribe":
                return self._watch([msgspec.json.decode(params["uri"])])
            case "resources/unsubscribe":
                return self._unwatch(frozenset([msgspec.json.decode(params["uri"])]))
            case method if method == SUBSCRIBE:
                return self._listen(msgspec.json.decode(params["notifications"]))
        on_progress: OnProgress | None = None
        meta = params.pop("_meta", None)
        if meta is not None:
            meta = msgspec.json.decode(meta)
            if meta.pop(_TOKEN, None) is not None:

                async def on_progress(report: ProgressReport) -> None:
                    self.tell("notifications/progress", report.build_params(request_id))

            if meta:
                params["_meta"] = meta
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

    async def _listen(self, wanted: Mapping[str, Any]) -> RawResult:
        """Watch what a stream names, resources or tasks, until it is cancelled."""
        uris, tasks = wanted.get("resourceSubscriptions") or [], wanted.get("taskIds") or []
        added = [uri for uri in uris if uri not in self._watched]
        failures: dict[str, UpstreamError] = {}
        for uri in added:
            try:
                await self._watch([uri])
            except UpstreamError as exc:
                failures[uri] = exc
        agreed = [uri for uri in uris if uri not in failures]
        # Of tasks it need not be known who agrees: they are looked at, too.
        told = {"resourceSubscriptions": agreed} if uris or not tasks else {"taskIds": tasks}
        self.tell("notifications/subscriptions/acknowledged", {"notifications": told})
        try:
            await asyncio.gather(asyncio.get_running_loop().create_future(), *map(self._follow, tasks))
        finally:
            await self._unwatch(frozenset(added))
        return RawResult(b"{}")

    async def _follow(self, task: str) -> None:
        """Passes on what the server tells of a task, until it is cancelled."""
        with self._upstream.watch.tasks.watch_task(task) as states:
            while True:
                state = await states.get()
                self._sink.write(b'{"jsonrpc":"2.0","method":"notifications/tasks","params":%b}\n' % state)

    def _put(self, message: Mapping[str, Any]) -> None:
        self._sink.write(msgspec.json.encode(message) + b"\n")
