"""HTTP endpoints of the broker: authorisation, limits, requests and answers."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.errors import ProxyError, RateLimitedError, RequestError, UpstreamError
from smart_mcp_proxy.fastmcp_compat.http.http import parse_accept_header
from smart_mcp_proxy.fastmcp_compat.server import gateway_failed
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.broker.broker_contents import BrokerContents
from smart_mcp_proxy.gateway.broker.brokering import Brokering, BrokerRequest
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.models import Principal
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.trace_context import TRACE_PARENT, with_context
from smart_mcp_proxy.web.auth.auth import Keys
from smart_mcp_proxy.web.common import messages
from smart_mcp_proxy.web.common.paths import serve_beside
from smart_mcp_proxy.web.common.refusals import build_refusal_error, guard_app

Headers = list[tuple[bytes, bytes]]
_JSON: Final = (b"content-type", b"application/json")
_STREAM_HEADERS: Final[Headers] = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
"""The second asks proxies in front not to hold back a stream until it has ended."""

_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")
"""In JSON they stand between values only: inside of text they are escaped."""
SERVERS_PATH: Final = "/api/mcp/"
CONNECTIONS_PATH: Final = "/api/connections"
_RETRY_S: Final = 1.0
_CORS_AGE_S: Final = 600
_ASKED_HEADERS: Final = ("accept", "authorization", "content-type")
_ASSIGNED_ID: Final = 1
"""Id of a request that names none. Source: docs/design/broker.md#ids"""
_ID_BITS: Final = 63
_EXAMPLE: Final = 'Send {"method": "tools/list", "params": {}}.'
_METHOD_CHARS: Final = 200
WATCH_AFTER_S = 0.05
"""A call that is quicker than this has no time to be abandoned."""


class BrokerAnswer:
    """The way back to the caller of one request. Nothing of the server's own headers is passed on.

    A caller that takes event streams gets one; one that takes JSON only gets its lines, each a message.

    Args:
        send: Takes ASGI messages; waits while the caller reads slowly.
        request_id: For the reply.
        takes_json: Whether the caller takes a JSON body.
        takes_events: Whether it takes an event stream.
    """

    def __init__(self, send: Send, request_id: int | str, *, takes_json: bool, takes_events: bool) -> None:
        self._send = send
        self._id = request_id
        self._takes_json = takes_json
        self._is_events = takes_events
        self.has_begun = False

    async def say(self, message: bytes) -> None:
        """Passes on what comes before the reply, at once.

        Args:
            message: JSON text of one message.
        """
        if not self.has_begun:
            self.has_begun = True
            kind = (b"content-type", b"text/event-stream") if self._is_events else _JSON
            await self._start(200, [kind, *_STREAM_HEADERS])
        await self._write(message, "message")

    async def end(self, result: bytes) -> None:
        """Replies with the result, JSON text."""
        await self._reply(b'"result":' + result, "message")

    async def end_badly(self, error: ProxyError) -> None:
        """Replies with the JSON-RPC error that the server answered with, or that a begun stream ends with."""
        answer = error.answer if isinstance(error, UpstreamError) else None
        if answer is not None:
            members: dict[str, Any] = {"code": answer.code, "message": answer.message}
            if answer.data is not None:
                members["data"] = answer.data
        else:
            members = {"code": error.jsonrpc_code, "message": str(error), "data": error.to_dict()}
        await self._reply(b'"error":' + msgspec.json.encode(members), "error" if answer is None else "message")

    async def _reply(self, member: bytes, event: str) -> None:
        text = b'{"jsonrpc":"2.0","id":' + msgspec.json.encode(self._id) + b"," + member + b"}"
        if not self.has_begun and self._takes_json:
            await self._start(200, [_JSON, (b"content-length", b"%d" % len(text))])
            await self._send({"type": "http.response.body", "body": text})
            return
        if not self.has_begun:
            await self.say(text)
        else:
            await self._write(text, event)
        await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, message: bytes, event: str) -> None:
        message = message.translate(_LINE_ENDS)
        text = b"event: %b\ndata: %b\n\n" % (event.encode(), message) if self._is_events else message + b"\n"
        await self._send({"type": "http.response.body", "body": text, "more_body": True})

    async def _start(self, status: int, headers: Headers) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def failure(error: ProxyError, server: str, *, is_proxy: bool, status: int | None = None) -> Response:
    """An HTTP status and what went wrong.

    Args:
        error: What went wrong.
        server: The name in the request's path, empty where it has none.
        is_proxy: Whether the caller may reach a server of that name through the broker.
        status: Where it is not the error's own.

    Source: docs/design/broker.md#errors
    """
    told = (error.data or {}).get("http_status")
    body = {
        "error": "ProxyError",
        "message": str(error),
        "details": {
            "mcpName": server,
            "proxyEnabled": is_proxy,
            "code": error.error_code,
            "delivery": error.delivery,
            **({} if told is None else {"httpStatus": told}),
        },
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return messages.json_response(body, error, status=status)


def serve_broker_beside(app: ASGIApp, gateway: Gateway, keys: Keys) -> ASGIApp:
    """Serve the broker at its own paths.

    Pages in a browser may use it only from the origins that the settings name.

    Args:
        app: Everything else.
        gateway: Open.
        keys: Says who callers are.
    """
    origins = gateway.settings.cors_origins
    broker = guard_app(_endpoints(gateway, keys), gateway.settings, allowed_origins=origins, answer=_answer_refusal)
    if origins:
        broker = CORSMiddleware(
            broker, origins, allow_methods=("GET", "POST"), allow_headers=_ASKED_HEADERS, max_age=_CORS_AGE_S
        )
    return serve_beside(app, broker, lambda path: path.startswith(SERVERS_PATH) or path.rstrip("/") == CONNECTIONS_PATH)


def _answer_refusal(error: ProxyError, status: int) -> Response:
    return failure(error, "", is_proxy=False, status=status)


def _endpoints(gateway: Gateway, keys: Keys) -> Starlette:
    lists = gateway.lists
    limit = gateway.settings.tool_name_limit
    contents = BrokerContents(lists.views, gateway.requests.asks, lists.content_lists, limit)
    brokering = Brokering(
        lists.views,
        gateway.calls,
        gateway.upstreams.fleet,
        contents,
        lists.tool_lists,
        is_cleaned=gateway.settings.clean_results,
        is_fenced=gateway.settings.fence_results,
    )

    async def answer_lookup(request: Request, look: Callable[[Principal], Any]) -> Response:
        who = None
        try:
            who = await keys.check(request.scope)
            value = look(_require_principal(request.scope, who))
        except ProxyError as error:
            name = request.path_params.get("name", "")
            is_proxy = who is not None and brokering.has_proxy(name, who)
            return failure(error, name, is_proxy=is_proxy)
        return messages.json_response(value)

    async def status(request: Request) -> Response:
        return await answer_lookup(request, lambda who: brokering.status(request.path_params["name"], who))

    async def connections(request: Request) -> Response:
        return await answer_lookup(request, brokering.connections)

    proxy = _Proxy(brokering, gateway.agent, keys, gateway.settings.broker_requests)
    app = Starlette(
        routes=[
            Route(SERVERS_PATH + "{name:path}/proxy/status", status, methods=["GET"]),
            Route(SERVERS_PATH + "{name:path}/proxy", proxy, methods=["POST"]),
            Route(CONNECTIONS_PATH, connections, methods=["GET"]),
        ],
        exception_handlers={404: _not_served, 405: _not_served, Exception: _answer_broker_failure},
    )
    app.router.redirect_slashes = False
    return app


class BrokerMessage(NamedTuple):
    """A checked message.

    Attributes:
        method: As it was sent.
        params: Empty where none were sent.
        id: For the answer; None for a notification, which gets none.
    """

    method: str
    params: Mapping[str, Any]
    id: int | str | None


def _add_message_trace(message: BrokerMessage, headers: Mapping[str, str]) -> BrokerMessage:
    """The message with the trace context of its request in `_meta`, where it has none there."""
    meta = message.params.get("_meta", {})
    if TRACE_PARENT not in headers or not isinstance(meta, dict):
        return message
    return message._replace(params={**message.params, "_meta": with_context(meta, headers)})


class _Proxy:
    """`POST /api/mcp/{name}/proxy`.

    Args:
        brokering: Passes requests on.
        agent: Waits for requests under way when the gateway is told to stop.
        keys: Says who callers are.
        limit: Requests that one caller may have under way.
    """

    def __init__(self, brokering: Brokering, agent: Agent, keys: Keys, limit: int) -> None:
        self._brokering = brokering
        self._agent = agent
        self._keys = keys
        self._limit = limit
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        name: str = scope["path_params"]["name"]
        who = None
        try:
            who = _require_principal(scope, await self._keys.check(scope))
            with self._place(who):
                await self._serve(name, who, Request(scope, receive), send)
        except ProxyError as error:
            is_proxy = who is not None and self._brokering.has_proxy(name, who)
            await failure(error, name, is_proxy=is_proxy)(scope, receive, send)
        except ClientDisconnect:  # before its request was whole
            return

    @contextmanager
    def _place(self, who: Principal) -> Iterator[None]:
        if self._under_way[who.id] >= self._limit:
            raise RateLimitedError(
                f"A caller may have {self._limit} requests under way at the broker; this one is too many.",
                hint="Wait for answers and close streams. The operator can raise MCPPROXY_BROKER_REQUESTS.",
                retry_after_s=_RETRY_S,
            )
        self._under_way[who.id] += 1
        try:
            yield
        finally:
            self._under_way[who.id] -= 1
            if not self._under_way[who.id]:
                del self._under_way[who.id]

    async def _serve(self, name: str, who: Principal, request: Request, send: Send) -> None:
        """Answers one request of a caller that is let in; a failure before the answer has begun is raised."""
        messages.require_json(request)
        message = parse_message(await messages.read_body(request, messages.BODY_LIMIT_BYTES, "Send less at a time."))
        message = _add_message_trace(message, request.headers)
        if message.id is None:
            self._brokering.accept(name, message.method, who)
            await Response(status_code=202)(request.scope, request.receive, send)
            return
        takes_json, takes_events = parse_accept_header(request.headers.get("accept", "*/*").encode("latin-1"))
        answer = BrokerAnswer(send, message.id, takes_json=takes_json or not takes_events, takes_events=takes_events)
        task = asyncio.current_task()
        assert task is not None
        has_left = False

        def leave() -> None:
            nonlocal has_left
            has_left = True
            task.cancel()

        try:
            with Abandonment(request.receive, leave):
                await self._answer(name, message, who, answer)
        except asyncio.CancelledError:
            if not has_left:
                raise
            task.uncancel()  # the caller's wish, not the gateway's end

    async def _answer(self, name: str, message: BrokerMessage, who: Principal, answer: BrokerAnswer) -> None:
        try:
            asked = BrokerRequest(message.method, message.params, answer.say)
            with self._agent.in_flight():
                result = await self._brokering.request(name, asked, who)
            await answer.end(result)
        except ProxyError as error:
            if not answer.has_begun and (not isinstance(error, UpstreamError) or error.answer is None):
                raise
            await answer.end_badly(error)


def _require_principal(scope: Scope, who: Principal | None) -> Principal:
    """Return the principal that is let in.

    Raises:
        UnauthorizedError: Nobody.
    """
    if who is None:
        error = build_refusal_error(scope, 401)
        assert error is not None
        raise messages.UnauthorizedError(error.message, hint=error.hint)
    return who


async def _not_served(request: Request, exc: Exception) -> Response:
    """The answer to a path or HTTP method that no endpoint has."""
    assert isinstance(exc, HTTPException)
    response = failure(messages.not_served(request, exc), "", is_proxy=False)
    response.headers.update(exc.headers or {})
    return response


async def _answer_broker_failure(request: Request, exc: Exception) -> Response:
    """Response to a failure of the gateway itself before another response began."""
    return failure(gateway_failed(), "", is_proxy=False)


def parse_message(body: bytes) -> BrokerMessage:
    """The message in a request's body.

    Raises:
        RequestError: It is no JSON-RPC request or notification; batches have a code of their own.
    """
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise RequestError(f"The body is not JSON: {exc}.", hint=_EXAMPLE, code="not_json") from exc
    if isinstance(message, list):
        raise RequestError("A batch of messages is not taken.", hint="Send them one by one.", code="batch_unsupported")
    if not isinstance(message, dict):
        raise RequestError("The body is no JSON object.", hint=_EXAMPLE)
    if message.get("jsonrpc", "2.0") != "2.0":
        raise RequestError("The member 'jsonrpc' is not \"2.0\".", hint="Leave it out, or correct it.")
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str) or not 0 < len(method) <= _METHOD_CHARS:
        raise RequestError("The message has no method.", hint=_EXAMPLE)
    if not isinstance(params, dict):
        raise RequestError("The member 'params' is no JSON object.", hint=_EXAMPLE)
    return BrokerMessage(method, params, _id(message, method))


def _id(message: Mapping[str, Any], method: str) -> int | str | None:
    is_notification = method.startswith("notifications/")
    if "id" not in message:
        return None if is_notification else _ASSIGNED_ID
    if is_notification:
        raise RequestError(f"{method!r} is a notification and has an id.", hint="Leave the id out.", code="invalid_id")
    given = message["id"]
    is_integer = type(given) is int and given.bit_length() <= _ID_BITS  # a boolean is no integer here
    if not is_integer and not isinstance(given, str):
        raise RequestError(
            "The id is neither an integer nor text.", hint="Send one of those, or leave the id out.", code="invalid_id"
        )
    return given  # type: ignore[no-any-return]  # checked above


class Abandonment:
    """While open, cancels the request when the client closes the connection.

    Args:
        receive: Whose body has been read: what else can come is that the client leaves.
        cancel: Called once when it has.

    Closing the response stream is the cancellation of the request.

    Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation
    """

    def __init__(self, receive: Receive, cancel: Callable[[], object]) -> None:
        self._receive = receive
        self._cancel = cancel
        self._watch: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start)

    def __exit__(self, *exc_info: object) -> None:
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def _start(self) -> None:
        self._watch = spawn(self._wait(), "wire disconnect")

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel()
