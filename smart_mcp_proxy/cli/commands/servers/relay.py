"""Relay between a client's pipes and an address of streamable HTTP, in both protocol eras."""

import asyncio
import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO

import anyio
import httpx2
from anyio import to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from smart_mcp_proxy.cli.support.output import say

_ACCEPT = {"Accept": "application/json, text/event-stream"}
_VERSION, _METHOD, _NAME = "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"
_SESSION = "Mcp-Session-Id"
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""In `_meta` of every request of the modern era."""
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_ENDLESS = "subscriptions/listen"
_CONNECT_S = 10.0
_GOODBYE_S = 10.0
"""A client that closes its end and still waits for answers gets those that come within this time."""
_REOPEN_S = 1.0
_FAILED = -32603
_MOST_EVENT_BYTES = 256 * 1024 * 1024
"""As much as the gateway itself leaves unsent to one client."""


class StdioRelay:
    """Relay for one client, from its first message to the end of its input.

    Args:
        url: Address of the gateway.
        headers: Sent with every request.
        sink: Where the client reads.
    """

    def __init__(self, url: str, headers: Mapping[str, str], sink: BinaryIO) -> None:
        self._url = url
        self._shown = url.partition("?")[0]  # what follows may be a key
        self._headers = dict(headers)
        self._session: dict[str, str] = {}
        self._requests: dict[str, anyio.CancelScope] = {}
        self._endless: set[str] = set()
        self._idle = anyio.Event()
        self._lock = anyio.Lock()
        self._sink = sink

    async def run(self, source: BinaryIO) -> None:
        """Carries messages until the client closes its end."""
        lines_in, lines = anyio.create_memory_object_stream[bytes](0)
        loop = asyncio.get_running_loop()
        # A daemon: nothing can end a read that waits, and the process must not wait for it.
        threading.Thread(target=_feed, args=(source, lines_in, loop), name="stdin", daemon=True).start()
        timeout = httpx2.Timeout(None, connect=_CONNECT_S)
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=timeout) as client,
            anyio.create_task_group() as tasks,
        ):
            async for line in lines:
                if line.strip():
                    await self._take(client, tasks, line)
            with anyio.move_on_after(_GOODBYE_S):
                while self._requests.keys() - self._endless:
                    self._idle = anyio.Event()
                    await self._idle.wait()
            tasks.cancel_scope.cancel()
        await self._say_goodbye()

    async def _take(self, client: httpx2.AsyncClient, tasks: TaskGroup, line: bytes) -> None:
        """Send one message on its way."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            await self._write(_error(None, "The message is not a JSON object.", code=-32700))
            return
        method = message.get("method")
        if method == "initialize":  # the rest of the session needs its answer
            await self._exchange(client, message, line)
            return
        if method == "notifications/cancelled" and self._cancel_request(message):
            return
        tasks.start_soon(self._exchange, client, message, line)
        if method == "notifications/initialized" and self._session:
            tasks.start_soon(self._listen, client)

    def _cancel_request(self, message: Mapping[str, Any]) -> bool:
        """Whether it was a modern request, which ends with its stream and not by a message."""
        params = message.get("params")
        key = json.dumps(params.get("requestId")) if isinstance(params, Mapping) else ""
        if self._session or key not in self._requests:
            return False
        self._requests[key].cancel()
        return True

    async def _exchange(self, client: httpx2.AsyncClient, message: Mapping[str, Any], line: bytes) -> None:
        """Send one message and pass on all that is answered to it."""
        is_request = "id" in message and "method" in message
        key = json.dumps(message.get("id"))
        with anyio.CancelScope() as scope:
            if is_request:
                self._requests[key] = scope
                if message.get("method") == _ENDLESS:
                    self._endless.add(key)
            try:
                problem = await self._post(client, message, line)
            except httpx2.HTTPError as exc:
                problem = f"No answer from {self._shown}: {type(exc).__name__}. Start it: mcpproxy serve --http"
            if problem and is_request:
                await self._write(_error(message["id"], problem))
            elif problem:
                say(problem)
        if is_request:
            self._requests.pop(key, None)
            self._endless.discard(key)
            self._idle.set()

    async def _post(self, client: httpx2.AsyncClient, message: Mapping[str, Any], line: bytes) -> str:
        """Send a message and pass on what is answered; returns what went wrong, in words."""
        headers = {**_ACCEPT, "Content-Type": "application/json", **self._session, **_modern_headers(message)}
        async with client.stream("POST", self._url, content=line.strip(), headers=headers) as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if response.is_success and kind == "text/event-stream":
                return await self._pass_events(response, message)
            body = await response.aread()
            answer = _object(body)
            is_rpc = answer is not None and ("result" in answer or "error" in answer) and "jsonrpc" in answer
            if answer is not None and is_rpc and (response.is_success or answer.get("id") == message.get("id")):
                self._learn(message, answer, response)
                await self._write(body)
                return ""
            if response.is_success:
                return "" if not body.strip() or "id" not in message else "The gateway's answer is not JSON-RPC."
            return _refusal(response, self._shown)

    async def _pass_events(self, response: httpx2.Response, message: Mapping[str, Any]) -> str:
        """Pass on a stream; returns what went wrong if it ends without the answer."""
        is_answered = "method" not in message or "id" not in message
        async for event in httpx2.EventSource(response, _MOST_EVENT_BYTES):
            if not event.data:
                continue
            data = event.data.encode()
            answer = _object(data) or {}
            if "method" not in answer and answer.get("id") == message.get("id"):
                is_answered = True
                self._learn(message, answer, response)
            await self._write(data)
        return "" if is_answered else "The gateway's answer ended before it was whole."

    def _learn(self, message: Mapping[str, Any], answer: Mapping[str, Any], response: httpx2.Response) -> None:
        """Remember the session that an `initialize` opened."""
        result = answer.get("result")
        if message.get("method") != "initialize" or not isinstance(result, Mapping):
            return
        self._session = {_VERSION: str(result.get("protocolVersion"))}
        if session := response.headers.get(_SESSION):
            self._session[_SESSION] = session

    async def _listen(self, client: httpx2.AsyncClient) -> None:
        """Messages that the gateway sends unasked in a session; opened again when it ends."""
        headers = {**_ACCEPT, **self._session}
        while True:
            with suppress(httpx2.HTTPError):
                async with client.stream("GET", self._url, headers=headers) as response:
                    if not response.is_success:
                        return  # it has none, or the session is over
                    async for event in httpx2.EventSource(response, _MOST_EVENT_BYTES):
                        if event.id:
                            headers["Last-Event-ID"] = event.id
                        if event.data:
                            await self._write(event.data.encode())
            await anyio.sleep(_REOPEN_S)

    async def _say_goodbye(self) -> None:
        if _SESSION not in self._session:
            return
        with suppress(httpx2.HTTPError):
            async with httpx2.AsyncClient(headers=self._headers, timeout=_CONNECT_S) as client:
                await client.delete(self._url, headers=self._session)

    async def _write(self, data: bytes) -> None:
        """Write one message as one line."""
        if b"\n" in data or b"\r" in data:
            # Line breaks between the tokens of JSON mean nothing, and inside of them there are none.
            data = data.replace(b"\r", b" ").replace(b"\n", b" ")
        async with self._lock:
            await to_thread.run_sync(_put, self._sink, data + b"\n")


def _feed(source: BinaryIO, lines: MemoryObjectSendStream[bytes], loop: asyncio.AbstractEventLoop) -> None:
    """Hand over the client's lines one by one; the next is read when this one is taken."""
    with suppress(RuntimeError, anyio.BrokenResourceError):  # the loop has ended meanwhile
        for line in source:
            asyncio.run_coroutine_threadsafe(lines.send(line), loop).result()
        asyncio.run_coroutine_threadsafe(lines.aclose(), loop).result()


def _put(sink: BinaryIO, data: bytes) -> None:
    sink.write(data)
    sink.flush()


def _modern_headers(message: Mapping[str, Any]) -> dict[str, str]:
    """The headers that a message of the modern era must carry; none for one of a session."""
    params, method = message.get("params"), message.get("method")
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    version = meta.get(_VERSION_KEY) if isinstance(meta, Mapping) else None
    if not isinstance(version, str) or not isinstance(method, str) or not isinstance(params, Mapping):
        return {}
    headers = {_VERSION: version, _METHOD: method}
    name = params.get(_NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers[_NAME] = _header_value(name)
    return headers


def _header_value(text: str) -> str:
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?"):
        return text
    # Here and not above: it takes half a second, and names are plain words.
    from mcp.shared.inbound import encode_header_value

    return encode_header_value(text)


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refusal(response: httpx2.Response, url: str) -> str:
    """The status in words; what the other side says may be anything."""
    if response.status_code in (401, 403):
        return f"{url} asks for a token ({response.status_code}). Give it with --header or MCPPROXY_AUTH_TOKEN."
    if response.status_code == 404:
        return f"{url} answers 404: the session has ended, or the path is another one. Start the client anew."
    return f"{url} answers {response.status_code}."


def _error(request_id: Any, message: str, *, code: int = _FAILED) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}).encode()
