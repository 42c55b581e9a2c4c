"""What the serving side leans on in FastMCP and the SDK: an upgrade that moves a piece of it fails here.

First every private name, then what is built on them, seen from outside.
"""

import ast
import asyncio
import importlib.util
import inspect
import json
import pkgutil
import re
import time
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import fastmcp.server.auth
import httpx2
import mcp.server.auth
import mcp_types
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth import OAuthProxy, StaticTokenVerifier
from fastmcp.server.auth.oauth_proxy.models import ClientCode, JTIMapping
from fastmcp.server.auth.providers import jwt
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.low_level import LowLevelServer
from fastmcp.server.middleware import CallNext, MiddlewareContext
from fastmcp.server.middleware import Middleware as ServerMiddleware
from key_value.aio.stores.memory import MemoryStore
from mcp.server import runner
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary
from mcp.server.session import ServerSession
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared._context_streams import create_context_streams
from mcp.shared.auth import OAuthClientInformationFull
from mcp_types import methods as wire_methods
from packaging.specifiers import SpecifierSet
from pydantic import AnyUrl, ValidationError
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_mcp_proxy.fastmcp_compat.auth.clock import override_clock
from smart_mcp_proxy.fastmcp_compat.auth.sign_in import TIMED
from smart_mcp_proxy.fastmcp_compat.eras import serve_streams
from smart_mcp_proxy.fastmcp_compat.fastmcp_server import build_server, find_raw_methods
from smart_mcp_proxy.fastmcp_compat.handlers import ClientSession, Inbound
from smart_mcp_proxy.fastmcp_compat.http.http import HttpApp, add_session_owner
from smart_mcp_proxy.fastmcp_compat.http.sessions import IDLE_S, HttpSession, set_json_replies
from smart_mcp_proxy.fastmcp_compat.list_changed import ListChangedHub
from smart_mcp_proxy.fastmcp_compat.methods import CheckedClient, HandshakeClient
from smart_mcp_proxy.fastmcp_compat.paths import bind_principal, bind_request_path, get_request_path, principal
from smart_mcp_proxy.fastmcp_compat.server import (
    AgentServer,
    MethodEntry,
    RawMethods,
    dump_message,
    free_ended_connections,
    hide_failures,
    message_streams,
    parse_message,
)
from smart_mcp_proxy.models import LOCAL, Principal, ProgressReport
from smart_mcp_proxy.telemetry import spawn

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
COMPAT = ROOT / "smart_mcp_proxy" / "fastmcp_compat"
OLD, NEW = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
UNSERVED = [
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "logging/setLevel",
]

PINNED_HERE = {
    "_admit_session",
    "_clean_up_memory_streams",
    "_client_store",
    "_code_store",
    "_connection",
    "_context_streams",
    "_get_verification_key",
    "_idle_timeout",
    "_import_key_for_algorithm",
    "_inner",
    "_jti_mapping_store",
    "_jwks_cache_time",
    "_jwks_refresh_interval",
    "_mcp_server",
    "_on_notify",
    "_on_request",
    "_read_stream_writer",
    "_redirect_path",
    "_refresh_jwks_key",
    "_request_handlers",
    "_request_outbound",
    "_requests_in_flight",
    "_serve_legacy_stream",
    "_serve_modern_stream",
    "_server_instances",
    "_session_owners",
    "_shared_jwks_refresh_lock",
    "_terminated",
    "_token_validator",
    "_upstream_token_store",
}


def foreign_private_names(file: Path) -> set[str]:
    """Private names that a file uses and does not define."""
    tree = ast.parse(file.read_text("utf-8"))
    own: set[str] = set()
    used: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Assign(targets=targets):
                own |= {target.attr for target in targets if isinstance(target, ast.Attribute)}
            case ast.AnnAssign(target=ast.Attribute(attr=name)):
                own.add(name)
            case ast.Attribute(attr=name):
                used.add(name)
            case ast.ImportFrom(module=module, names=names):
                used |= {*(module or "").split("."), *(alias.name for alias in names)}
            case ast.Constant(value=str(name)) if name.isidentifier():
                used.add(name)  # setattr
    return {name for name in used - own if name.startswith("_") and not name.startswith("__")}


def test_every_private_name_in_use_is_pinned_by_a_test() -> None:
    """A new one is added to the list together with what is expected of it."""
    used = set[str]().union(*map(foreign_private_names, COMPAT.rglob("*.py"))) - {"_meta"}  # a word of the protocol
    assert used == PINNED_HERE


def sign_in_proxy() -> OAuthProxy:
    return OAuthProxy(
        upstream_authorization_endpoint="https://id.example/authorize",
        upstream_token_endpoint="https://id.example/token",
        upstream_client_id="gateway",
        token_verifier=StaticTokenVerifier({}),
        base_url="https://gateway.example",
        client_storage=MemoryStore(),
        jwt_signing_key=bytes(32),
    )


async def test_a_sign_in_proxy_leads_from_its_tokens_to_the_providers() -> None:
    """By the id of a token to the id of what the provider gave; tests/interaction shows that forgetting that works."""
    proxy = sign_in_proxy()
    mapping = JTIMapping(jti="one", upstream_token_id="two", created_at=0)
    await proxy._jti_mapping_store.put(key="one", value=mapping)
    assert (await proxy._jti_mapping_store.get(key="one")) == mapping
    assert not await proxy._upstream_token_store.delete(key=mapping.upstream_token_id)


async def test_a_sign_in_proxy_keeps_its_clients_by_their_id() -> None:
    """As long as the store is told, for good where it is told nothing."""
    proxy = sign_in_proxy()
    await proxy.register_client(OAuthClientInformationFull(client_id="one", redirect_uris=[AnyUrl("http://localhost")]))
    client = await proxy._client_store.get(key="one")
    assert client is not None
    assert client.client_id == "one"
    await proxy._client_store.put(key="one", value=client, ttl=None)
    assert await proxy._client_store.get(key="one") == client


async def test_a_sign_in_proxy_keeps_what_the_provider_gave_by_the_code_and_says_where_it_sends_back() -> None:
    """Its own judge of tokens is the one that it was given."""
    proxy = sign_in_proxy()
    code = ClientCode(
        code="one",
        client_id="c",
        redirect_uri="http://localhost",
        code_challenge=None,
        code_challenge_method="S256",
        scopes=[],
        idp_tokens={"id_token": "x"},
        expires_at=0,
        created_at=0,
    )
    await proxy._code_store.put(key="one", value=code)
    kept = await proxy._code_store.get(key="one")
    assert kept is not None and kept.idp_tokens == {"id_token": "x"}
    assert isinstance(proxy._token_validator, StaticTokenVerifier)
    assert proxy._redirect_path in {route.path for route in proxy.get_routes("/mcp")}


UNTIMED = {
    # Providers and a grant that the gateway does not offer.
    "fastmcp.server.auth.identity_assertion",
    *(f"fastmcp.server.auth.providers.{name}" for name in ("discord", "google", "in_memory", "introspection")),
    # Clients with a secret, of which there are none; FastMCP's own check of a token, which ours takes the place of; and
    # the time of a registration, which clients are told.
    "mcp.server.auth.middleware.client_auth",
    "mcp.server.auth.middleware.bearer_auth",
    "mcp.server.auth.handlers.register",
}
"""Modules that may go by this machine's clock."""


def test_everything_that_judges_tokens_by_the_clock_can_be_given_another() -> None:
    """As a module's attribute: what is imported out of `time` itself would go on as before."""
    timed = {module.__name__ for module in TIMED}
    for package in (fastmcp.server.auth, mcp.server.auth):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            source = Path(importlib.util.find_spec(found.name).origin).read_text()  # type: ignore[union-attr, arg-type]
            if re.search(r"\btime\.time\(|datetime\.(?:now|utcnow)\(", source):
                assert found.name in timed | UNTIMED, found.name
            if found.name in timed:
                assert re.findall(r"^(?:import time|from time .*)$", source, re.MULTILINE) == ["import time"]


def test_modules_go_by_another_clock_for_as_long_as_they_are_told_to() -> None:
    with override_clock(lambda: 7.0, TIMED):
        assert [module.time.time() for module in TIMED] == [7.0] * len(TIMED)  # type: ignore[attr-defined]
    assert {module.time for module in TIMED} == {time}  # type: ignore[attr-defined]


async def test_a_verifier_says_when_its_keys_came_and_fetches_them_under_a_lock() -> None:
    """Fresh from the constructor it has asked for none; a key is looked up by the token and read for an algorithm."""
    verifier = JWTVerifier(jwks_uri="https://id.example/keys", issuer="https://id.example")
    assert (verifier._jwks_cache_time, verifier._jwks_last_refresh_attempt) == (0, None)
    assert verifier._jwks_refresh_interval > 0
    async with verifier._shared_jwks_refresh_lock:
        assert verifier._shared_jwks_refresh_lock.locked()
    assert [*inspect.signature(verifier._refresh_jwks_key).parameters] == ["kid"]
    assert [*inspect.signature(verifier._get_verification_key).parameters] == ["token"]
    assert inspect.iscoroutinefunction(verifier._get_verification_key)
    assert [*inspect.signature(jwt._import_key_for_algorithm).parameters] == ["key", "algorithm"]


@pytest.mark.parametrize("package", ["fastmcp", "mcp"])
def test_the_installed_versions_are_the_ones_leant_on(package: str) -> None:
    """A minor release may move private names, so the project pins one."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    (pin,) = [line.removeprefix(package) for line in wanted if line.startswith((f"{package}>", f"{package}="))]
    assert "<" in pin
    assert version(package) in SpecifierSet(pin)


def test_a_fastmcp_server_stands_on_a_low_level_one() -> None:
    """With a table of handlers by method, in which each is looked up, and a list of middleware."""
    low = FastMCP("x")._mcp_server
    assert isinstance(low, LowLevelServer)
    assert set(UNSERVED) | {"tools/list", "tools/call"} <= set(low._request_handlers)
    assert "self._request_handlers.get(method)" in inspect.getsource(Server.get_request_handler)
    assert isinstance(low.middleware, list)
    assert isinstance(low.notification_options.tools_changed, bool)
    assert callable(low.get_tool_input_schema)
    assert list(inspect.signature(low.run).parameters)[:3] == ["read_stream", "write_stream", "initialization_options"]
    assert callable(low.create_initialization_options)


def test_capabilities_are_asked_for_where_a_greeting_is_made() -> None:
    """Once for each, by a method that another one can stand for; the one of discovery is a handler of ours."""
    assert inspect.getsource(Server.create_initialization_options).count("self.get_capabilities(") == 1
    assert "super().create_initialization_options(" in inspect.getsource(LowLevelServer.create_initialization_options)


def test_the_sdk_asks_a_server_on_a_stream_for_nothing_that_ours_has_not(handlers: "Handlers") -> None:
    """Ours is no object of its class, which would bring the SDK's HTTP server along."""
    source = inspect.getsource(runner)
    asked = set(re.findall(r"\bself\.server\.(\w+)", source))
    assert asked == {
        "cache_hints",
        "create_initialization_options",
        "get_notification_handler",
        "get_request_handler",
        "middleware",
        "server_info_stamp",
    }
    assert set(re.findall(r"(?<!self\.)\bserver\.(\w+)", source)) - {"create_initialization_options"} == {
        "caching", "connection", "context", "lowlevel", "models", "session",
    }  # fmt: skip  # modules
    server = AgentServer("gate", "7", handlers)
    assert all(hasattr(server, name) for name in asked)
    assert set(re.findall(r"\bentry\.(\w+)", source)) == set(MethodEntry._fields)
    like: Server[Any] = Server("gate", version="7")
    assert (server.server_info_stamp, server.cache_hints) == (like.server_info_stamp, like.cache_hints)


def test_a_session_has_a_connection_that_knows_its_beginning_and_end() -> None:
    """Whether `initialize` came, under which id, and what to do at the end."""
    assert "self._connection" in inspect.getsource(ServerSession.__init__)
    assert isinstance(vars(Connection)["initialize_accepted"], property)
    source = inspect.getsource(Connection.__init__)
    assert "self.session_id = session_id" in source
    assert "self.exit_stack = AsyncExitStack()" in source


def test_a_session_object_has_the_channel_of_its_own_request() -> None:
    """What goes out by it travels on the stream of the request that is being served."""
    source = inspect.getsource(ServerSession.__init__)
    assert "self._request_outbound = request_outbound" in source
    assert isinstance(vars(ServerSession)["client_capabilities"], property)


def test_a_runner_hands_out_its_own_methods_and_keeps_none() -> None:
    """The SDK keeps them on the runner, which then refers to itself; each is asked for once."""
    served = inspect.getsource(runner.serve_connection)
    assert "dispatcher.run(runner.on_request, runner.on_notify" in served
    free_ended_connections()
    nothing: Any = None
    made = runner.ServerRunner(nothing, nothing, nothing)
    assert (made.on_request, made.on_notify) == (made._on_request, made._on_notify)
    assert not {"on_request", "on_notify"} & vars(made).keys()


def test_http_sessions_are_made_in_one_place() -> None:
    """By the manager, whose table holds them under the id that clients send."""
    assert list(inspect.signature(StreamableHTTPSessionManager._admit_session).parameters) == ["self", "requestor"]
    source = inspect.getsource(StreamableHTTPSessionManager._admit_session)
    assert "StreamableHTTPServerTransport(" in source
    assert "self._server_instances[session_id] = http_transport" in source
    assert "self._session_owners[session_id] = requestor" in source
    assert "self.max_sessions is not None and len(self._server_instances) >= self.max_sessions" in source
    assert "self._admit_session(requestor)" in inspect.getsource(StreamableHTTPSessionManager)


async def test_an_http_session_keeps_count_of_its_requests_until_it_idles_out() -> None:
    """The members that `HttpSession.begin_request` moves exist and mean what they are used for."""
    made = StreamableHTTPServerTransport(mcp_session_id="0" * 32, idle_timeout=5)
    assert (made._terminated, made._idle_timeout, made._requests_in_flight, made.idle_scope) == (False, 5, 0, None)
    session: Any = made
    session.__class__ = HttpSession
    assert session.is_open
    session.idle_scope = anyio.CancelScope()
    session.adopt()
    session.begin_request(1, is_past_sdk=True)
    session.begin_request("2", is_past_sdk=True)
    assert session.is_serving("1")
    assert (session._requests_in_flight, session.idle_scope.deadline) == (2, float("inf"))


async def test_an_http_session_counts_its_idle_time_anew_after_a_request() -> None:
    """From the end of the last one."""
    session = HttpSession(mcp_session_id="0" * 32, idle_timeout=5)
    session.idle_scope = anyio.CancelScope()
    session.adopt()
    session.begin_request(1, is_past_sdk=True)
    ended = asyncio.Event()

    def end() -> None:  # as the end of a task is heard: in a callback of the loop
        session.end_request(1, is_past_sdk=True)
        ended.set()

    asyncio.get_running_loop().call_soon(end)
    with anyio.fail_after(20):
        await ended.wait()
    assert session._requests_in_flight == 0
    assert session.idle_scope.deadline == pytest.approx(anyio.current_time() + 5, abs=1)
    session.idle_scope.cancel()
    assert not session.is_open


def test_an_event_stream_ends_when_its_memory_streams_are_closed() -> None:
    """A second one is refused as long as they are there; one that is to go on after an event is not answered."""
    source = inspect.getsource(StreamableHTTPServerTransport._handle_get_request)
    assert "if GET_STREAM_KEY in self._request_streams:" in source
    assert "except anyio.ClosedResourceError:" in source
    assert "await self._clean_up_memory_streams(GET_STREAM_KEY)" in source
    assert "if not event_store:\n            return" in inspect.getsource(StreamableHTTPServerTransport._replay_events)


def test_the_reply_form_is_read_where_it_can_be_chosen() -> None:
    """The transport asks for it at each request; it is an attribute there and a property here."""
    source = inspect.getsource(StreamableHTTPServerTransport)
    assert source.count("self.is_json_response_enabled") >= 3
    session: Any = HttpSession(mcp_session_id=None, is_json_response_enabled=True)
    seen = [session.is_json_response_enabled]
    with set_json_replies(True):
        seen.append(session.is_json_response_enabled)
    seen.append(session.is_json_response_enabled)
    assert seen == [False, True, False]


async def test_message_streams_carry_the_senders_context() -> None:
    """The SDK's own pair: principals travel with the message."""
    send, receive = create_context_streams[int](1)
    await send.send(5)
    assert await receive.receive() == 5
    assert receive.last_context is not None
    await send.aclose()
    await receive.aclose()


@pytest.mark.parametrize(
    ("params", "is_good"),
    [({"name": "a"}, True), ({"name": "a", "arguments": {}}, True), ({}, False), ({"name": 5}, False), (None, False)],
)
def test_a_request_can_be_checked_by_method_and_version(params: Any, is_good: bool) -> None:
    """As the SDK's runner checks it before its own handlers."""
    if is_good:
        wire_methods.validate_client_request("tools/call", OLD, params)
    else:
        with pytest.raises(ValidationError):
            wire_methods.validate_client_request("tools/call", OLD, params)


# --- what is built on it, from outside


class Visit:
    """A client's session, as long as it lasts."""

    def __init__(self, client: HandshakeClient) -> None:
        self.client = client
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Handlers:
    """Answers with what it was asked."""

    def __init__(self) -> None:
        self.list_changes = ListChangedHub(
            is_announcing=lambda: False, on_listen=lambda path, principal: None, on_leave=lambda path, principal: None
        )
        self.inbound: list[Inbound] = []
        self.sessions: list[Visit] = []
        self.answered = 0

    def instructions(self) -> str:
        return "Do it."

    def open_session(self, client: HandshakeClient) -> "Visit":
        self.sessions.append(Visit(client))
        return self.sessions[-1]

    async def list_tools(self, inbound: Inbound) -> dict[str, Any]:
        self.inbound.append(inbound)
        return {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "odd": [1]}], "futureKey": inbound.era}

    async def call_tool(self, inbound: Inbound) -> dict[str, Any]:
        self.inbound.append(inbound)
        if inbound.on_progress is not None:
            await inbound.on_progress(ProgressReport(1, 2, "half"))
        return {"content": [{"type": "hologram", "n": 2**70}], "seen": dict(inbound.meta)}

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        return None

    def first_answered(self) -> None:
        self.answered += 1


class Levels:
    """Offers log levels to clients of the handshake era."""

    def capabilities(self) -> dict[str, Any]:
        return {"logging": {}}

    async def set_level(self, session: ClientSession, level: str) -> None: ...

    def roots_changed(self, session: ClientSession) -> None: ...


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


def envelope(**more: Any) -> dict[str, Any]:
    """What every modern request carries."""
    own = {"protocolVersion": NEW, "clientInfo": {"name": "c", "version": "1"}, "clientCapabilities": {}}
    return {"_meta": {META + key: value for key, value in own.items()} | more}


HELLO = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


class Piped:
    """A client on a pair of message streams."""

    def __init__(self, server: AgentServer, send: Any, receive: Any) -> None:
        self.server = server
        self._send = send
        self._receive = receive
        self._last_id = 0
        self.heard: list[str] = []

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole response to a request."""
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        await self._send.send(parse_message(json.dumps(message).encode()))
        with anyio.fail_after(20):
            while "id" not in (answer := json.loads(dump_message(await anext(self._receive)))):
                self.heard.append(answer["method"])
        assert answer["id"] == self._last_id
        response: dict[str, Any] = answer
        return response

    async def greet(self) -> dict[str, Any]:
        """A whole handshake."""
        answer = await self.ask("initialize", **HELLO)
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._send.send(parse_message(json.dumps(message).encode()))
        return answer


def test_fastmcp_seals_request_states_and_the_gateways_server_leaves_that_to_the_gateway(handlers: Handlers) -> None:
    """A state that is sealed twice could not be opened by another process."""
    assert any(isinstance(each, RequestStateBoundary) for each in FastMCP("x")._mcp_server.middleware)
    theirs = [type(each) for each in FastMCP("x")._mcp_server.middleware]
    own = [type(each) for each in build_server(AgentServer("gate", "7", handlers))._mcp_server.middleware]
    assert own == [kind for kind in theirs if kind is not RequestStateBoundary] + [type(hide_failures), RawMethods]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", OLD, NEW])
async def test_fastmcp_greets_as_the_server_of_pipes_does(handlers: Handlers, version: str) -> None:
    """To the byte, be it a greeting, a ping or an error: two servers answer from one table of methods."""
    if version == NEW:
        asked = [
            ("server/discover", envelope()),
            ("ping", envelope()),
            ("nope", envelope()),
            ("prompts/get", envelope()),
        ]
    else:
        hello = {**HELLO, "protocolVersion": version}
        asked = [("nope", {}), ("initialize", hello), ("ping", {}), ("server/discover", {}), ("prompts/get", {})]
    own = AgentServer("gate", "7", handlers, clients=Levels())
    server = build_server(own)  # which its low-level one does not keep
    low = server._mcp_server
    answers: list[list[bytes]] = []
    for serve in (partial(serve_streams, own), lambda *pair: low.run(*pair, low.create_initialization_options())):
        send, server_reads = message_streams()
        server_writes, receive = message_streams()
        serving = asyncio.ensure_future(serve(server_reads, server_writes))
        answers.append([])
        with anyio.fail_after(20):
            for number, (method, params) in enumerate(asked):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                await send.send(parse_message(json.dumps(message).encode()))
                answers[-1].append(dump_message(await anext(receive)))
            await send.aclose()
            await serving
        await receive.aclose()
    assert answers[0] == answers[1]


@pytest.fixture
async def piped(handlers: Handlers) -> AsyncIterator[Piped]:
    server = AgentServer("gate", "7", handlers)
    send, server_reads = message_streams()
    server_writes, receive = message_streams()
    serving = asyncio.ensure_future(serve_streams(server, server_reads, server_writes))
    yield Piped(server, send, receive)
    await send.aclose()
    with anyio.fail_after(20):
        await serving
    await receive.aclose()


async def test_a_handshake_names_the_server_and_offers_tools_alone(piped: Piped, handlers: Handlers) -> None:
    """And nothing that FastMCP would add by itself."""
    result = (await piped.greet())["result"]
    assert result["capabilities"] == {"tools": {"listChanged": False}}
    assert result["serverInfo"]["name"] == "gate"
    assert (result["serverInfo"]["version"], result["instructions"]) == ("7", "Do it.")
    assert handlers.answered == 1


async def test_a_discovery_names_the_server_and_offers_tools_alone(piped: Piped, handlers: Handlers) -> None:
    """The modern era's greeting."""
    result = (await piped.ask("server/discover", **envelope()))["result"]
    assert set(result["capabilities"]) == {"tools"}
    assert NEW in result["supportedVersions"]
    assert handlers.answered == 1


async def test_a_probe_does_not_choose_the_era(piped: Piped, handlers: Handlers) -> None:
    """A client asks what the server knows, waits too long, and begins with a handshake; pings and a probe of a version
    that nobody knows choose nothing either."""
    assert NEW in (await piped.ask("server/discover", **envelope()))["result"]["supportedVersions"]
    assert (await piped.ask("ping"))["result"] == {}
    unknown = {"_meta": envelope()["_meta"] | {META + "protocolVersion": "2199-01-01"}}
    assert (await piped.ask("server/discover", **unknown))["error"]["code"] == -32022
    await piped._send.send(ValueError("not JSON"))
    assert (await piped.ask("server/discover", **envelope()))["result"]["capabilities"]
    assert (await piped.greet())["result"]["protocolVersion"] == OLD
    assert [tool["name"] for tool in (await piped.ask("tools/list"))["result"]["tools"]] == ["t"]
    late = await piped.ask("server/discover", **envelope())
    assert late["error"]["code"] == -32600


async def test_a_request_after_a_probe_chooses_the_era(piped: Piped, handlers: Handlers) -> None:
    """As it does without one."""
    await piped.ask("server/discover", **envelope())
    assert (await piped.ask("tools/list", **envelope()))["result"]["tools"]
    refused = await piped.ask("initialize", **HELLO)
    assert refused["error"]["code"] == -32022
    assert NEW in (await piped.ask("server/discover", **envelope()))["result"]["supportedVersions"]


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("method", UNSERVED)
async def test_an_unserved_method_is_not_found(piped: Piped, era: str, method: str) -> None:
    """What is not advertised is not half there."""
    if era == "handshake":
        await piped.greet()
    params = {"uri": "x://y", "name": "p", "level": "info"}
    answer = await piped.ask(method, **params, **({} if era == "handshake" else envelope()))
    assert answer["error"]["code"] == -32601
    assert "result" not in answer


async def test_results_go_to_the_wire_as_the_gateway_wrote_them(piped: Piped, handlers: Handlers) -> None:
    """Unknown members, unknown content, big integers: nothing passes through a model."""
    await piped.greet()
    listing = (await piped.ask("tools/list"))["result"]
    assert listing == {
        "tools": [{"name": "t", "inputSchema": {"type": "object"}, "odd": [1]}],
        "futureKey": "handshake",
    }
    called = (await piped.ask("tools/call", name="t", arguments={}))["result"]
    assert called == {"content": [{"type": "hologram", "n": 2**70}], "seen": {}}
    assert [one.principal for one in handlers.inbound] == [LOCAL, LOCAL]


async def test_metadata_loses_its_connection_keys_only(piped: Piped, handlers: Handlers) -> None:
    """In the modern era, where the connection speaks through it, and with a progress token."""
    meta = envelope(**{"example.org/a": [1], "progressToken": 5, META + "logLevel": "info"})
    result = (await piped.ask("tools/call", name="t", **meta))["result"]
    assert result["seen"] == {"example.org/a": [1]}
    (inbound,) = handlers.inbound
    assert (inbound.era, inbound.protocol_version) == ("modern", NEW)
    assert inbound.on_progress is not None
    assert piped.heard == ["notifications/progress"]


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_nothing_is_served_before_the_greeting(piped: Piped, handlers: Handlers, method: str) -> None:
    """The raw handlers keep the rule that the SDK's own would."""
    answer = await piped.ask(method, name="t", arguments={})
    assert answer["error"]["code"] in (-32600, -32602)
    assert handlers.inbound == []


@pytest.mark.parametrize("params", [{}, {"name": 5}, {"name": "t", "arguments": [1]}])
async def test_a_malformed_request_is_a_json_rpc_error(piped: Piped, handlers: Handlers, params: Any) -> None:
    """Before the gateway sees it."""
    await piped.greet()
    answer = await piped.ask("tools/call", **params)
    assert answer["error"]["code"] == mcp_types.INVALID_PARAMS
    assert handlers.inbound == []


async def test_a_client_is_known_once_the_sdk_has_let_it_in(piped: Piped, handlers: Handlers) -> None:
    """Not by its greeting alone; its requests carry what was kept for it at the greeting."""
    await piped.greet()
    (visit,) = handlers.sessions
    assert (visit.client.name, visit.client.version, visit.client.path) == ("c", "1", "")
    assert dict(piped.server.raw_methods.checked) == {}
    await piped.ask("tools/list")
    assert dict(piped.server.raw_methods.checked) == {None: CheckedClient(OLD, visit)}
    assert handlers.inbound[0].session is visit


async def test_one_client_is_told_that_its_list_changed(piped: Piped, handlers: Handlers) -> None:
    """By the way that was handed over at its greeting."""
    await piped.greet()
    await piped.ask("ping")
    async with anyio.create_task_group() as group:
        group.start_soon(handlers.sessions[0].client.tell_list_changed)
        while not piped.heard:
            await piped.ask("ping")
    assert "notifications/tools/list_changed" in piped.heard


@asynccontextmanager
async def http_client(app: HttpApp, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an app in this process."""
    async with (
        app.run_lifespan(),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app),
            base_url="http://127.0.0.1",
            headers={"accept": "application/json, text/event-stream", **headers},
        ) as client,
    ):
        yield client


async def opened_session(client: httpx2.AsyncClient) -> str:
    """The id of a new handshake-era session."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    with set_json_replies(True):
        reply = await client.post("/mcp", json=hello)
        assert reply.headers["content-type"] == "application/json"
        session_id: str = reply.headers["mcp-session-id"]
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        reply = await client.post("/mcp", json=done, headers={"mcp-session-id": session_id})
        assert reply.status_code == 202
    return session_id


async def test_a_session_stays_at_the_path_it_was_opened_on(handlers: Handlers) -> None:
    """Its requests say so, whatever path they themselves come in at, and it is closed with the session."""
    app = HttpApp(build_server(AgentServer("gate", "7", handlers)), "/mcp")
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    with anyio.fail_after(20):
        async with http_client(app) as client:
            with bind_request_path("p/work"):
                session_id = await opened_session(client)
                reply = await client.post("/mcp", json=listing, headers={"mcp-session-id": session_id})
                assert reply.status_code == 200
                session = app.session(session_id, LOCAL, "p/work")
                assert session is not None and session.path == "p/work"
                assert session.client is not None and session.client.session is handlers.sessions[0]
            assert app.session(session_id, LOCAL, "") is None
            assert (handlers.sessions[0].client.path, handlers.inbound[0].path) == ("p/work", "p/work")
            for path, status in (("", 404), ("p/work", 200)):
                with bind_request_path(path):
                    reply = await client.delete("/mcp", headers={"mcp-session-id": session_id})
                assert reply.status_code == status
            while not handlers.sessions[0].is_closed:
                await anyio.lowlevel.checkpoint()


async def test_the_reply_form_is_chosen_per_request(handlers: Handlers) -> None:
    """One session answers with a body and with a stream, whatever its opening request got."""
    app = HttpApp(build_server(AgentServer("gate", "7", handlers)), "/mcp")
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "t", "arguments": {}}}
    with anyio.fail_after(20):
        async with http_client(app) as client:
            session_id = await opened_session(client)
            for is_json in (True, False, True):
                with set_json_replies(is_json):
                    reply = await client.post("/mcp", json=call, headers={"mcp-session-id": session_id})
                assert reply.status_code == 200
                kind = "application/json" if is_json else "text/event-stream"
                assert reply.headers["content-type"].partition(";")[0] == kind
                text = reply.text if is_json else reply.text.partition("data: ")[2].splitlines()[0]
                assert json.loads(text)["result"]["content"] == [{"type": "hologram", "n": 2**70}]


async def test_progress_comes_before_the_answer_on_a_stream(handlers: Handlers) -> None:
    """Also in a session whose opening request was answered with a body."""
    app = HttpApp(build_server(AgentServer("gate", "7", handlers)), "/mcp")
    params = {"name": "t", "_meta": {"progressToken": "p1"}}
    with anyio.fail_after(20):
        async with http_client(app) as client:
            session_id = await opened_session(client)
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            reply = await client.post("/mcp", json=call, headers={"mcp-session-id": session_id})
    messages = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    assert [message.get("method", "answer") for message in messages] == ["notifications/progress", "answer"]
    assert messages[0]["params"] == {"progressToken": "p1", "progress": 1, "total": 2, "message": "half"}


async def test_a_session_is_found_after_its_first_call_and_until_its_end(handlers: Handlers) -> None:
    """Under the id that the client sends; others are unknown."""
    server = build_server(AgentServer("gate", "7", handlers))
    app = HttpApp(server, "/mcp")
    with anyio.fail_after(20):
        async with http_client(app) as client:
            session_id = await opened_session(client)
            assert app.session(session_id, LOCAL, "") is None
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            with set_json_replies(True):
                await client.post("/mcp", json=listing, headers={"mcp-session-id": session_id})
            assert isinstance(app.session(session_id, LOCAL, ""), HttpSession)
            assert find_raw_methods(server).checked[session_id].protocol_version == OLD
            assert app.session("0" * 32, LOCAL, "") is None
            await client.delete("/mcp", headers={"mcp-session-id": session_id})
            assert app.session(session_id, LOCAL, "") is None
            while session_id in find_raw_methods(server).checked:
                await anyio.lowlevel.checkpoint()


class Notified(ServerMiddleware):
    """Notes notifications, and for whom they came."""

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, str, str]] = []

    async def on_notification(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        self.seen.append((context.method, get_request_path(), principal().id))
        return await call_next(context)


async def test_a_session_hears_past_the_app_that_its_client_is_initialized(handlers: Handlers) -> None:
    """Where and on whose behalf it was opened, whatever the present context says; nobody else's session does."""
    server, noted = build_server(AgentServer("gate", "7", handlers)), Notified()
    server.add_middleware(noted)
    app = HttpApp(server, "/mcp")
    with anyio.fail_after(20):
        async with http_client(app) as client:
            with bind_request_path("p/work"):
                hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
                session_id = (await client.post("/mcp", json=hello)).headers["mcp-session-id"]
                await anyio.wait_all_tasks_blocked()
            assert not app.tell_initialized(session_id, LOCAL, "")
            assert not app.tell_initialized(session_id, Principal("agent"), "p/work")
            assert not app.tell_initialized("0" * 32, LOCAL, "p/work")
            with bind_request_path("p/home"), bind_principal(Principal("agent")):
                assert app.tell_initialized(session_id, LOCAL, "p/work")
                # The one before was not read yet, and no second one fits beside it.
                assert not app.tell_initialized(session_id, LOCAL, "p/work")
            while not noted.seen:
                await anyio.lowlevel.checkpoint()
            assert noted.seen == [("notifications/initialized", "p/work", "local")]
            with bind_request_path("p/work"):
                await client.delete("/mcp", headers={"mcp-session-id": session_id})
            assert not app.tell_initialized(session_id, LOCAL, "p/work")


async def pinged(client: httpx2.AsyncClient, session_id: str) -> int:
    """The status of a ping on a session."""
    ping = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
    with set_json_replies(True):
        return (await client.post("/mcp", json=ping, headers={"mcp-session-id": session_id})).status_code


def serving(others: set["asyncio.Task[Any]"]) -> int:
    """How many sessions have a task that serves them, not counting tasks of other tests."""
    return sum("run_server" in task.get_name() for task in asyncio.all_tasks() - others)


async def begun(client: httpx2.AsyncClient) -> httpx2.Response:
    """The answer to a client that asks for a session."""
    return await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})


async def let_idle(app: HttpApp, client: httpx2.AsyncClient, session_id: str, idle_s: float) -> None:
    """The session was last used so long ago."""
    session = await called_session(app, client, session_id)
    assert session.idle_scope is not None
    session.idle_scope.deadline -= idle_s


@pytest.mark.long  # a third of a second of processor time
async def test_the_session_that_was_idle_longest_makes_room_for_a_new_one(handlers: Handlers) -> None:
    """Idle by its last request, not by its age; its client is told that it is not found."""
    app = HttpApp(build_server(AgentServer("gate", "7", handlers)), "/mcp", max_sessions=3)
    others = asyncio.all_tasks()
    with anyio.fail_after(20):
        async with http_client(app) as client:
            first, second, third = [await opened_session(client) for _ in range(3)]
            for session_id, idle_s in ((first, 100), (second, IDLE_S), (third, IDLE_S - 5)):
                await let_idle(app, client, session_id, idle_s)
            assert await pinged(client, first) == 200
            fourth = await opened_session(client)
            assert [await pinged(client, each) for each in (first, second, third, fourth)] == [200, 404, 200, 200]
            for _ in range(50):
                await let_idle(app, client, fourth, IDLE_S)
                fourth = await opened_session(client)
            while serving(others) > 3:
                await anyio.lowlevel.checkpoint()
            assert [await pinged(client, each) for each in (first, third, fourth)] == [200, 200, 200]


async def test_a_newcomer_is_refused_where_no_session_is_idle(handlers: Handlers) -> None:
    """With a status that says to come back, the reason and the setting; and let in as soon as one is."""
    app = HttpApp(build_server(AgentServer("gate", "7", handlers)), "/mcp", max_sessions=2)
    with anyio.fail_after(20):
        async with http_client(app) as client:
            first, second = [await opened_session(client) for _ in range(2)]
            await let_idle(app, client, first, 22.5)
            for _ in range(3):  # a flood changes nothing
                reply = await begun(client)
                assert (reply.status_code, reply.headers["retry-after"], reply.json()["id"]) == (503, "38", 1)
            error = reply.json()["error"]
            assert (
                error["message"] == "All 2 sessions that this gateway keeps open are in use. " + error["data"]["hint"]
            )
            assert error["data"]["hint"] == (
                "Try again in 38 s, end sessions that are over (DELETE), or have MCPPROXY_MAX_SESSIONS raised."
            )
            assert (error["data"]["code"], error["data"]["retry_after_s"]) == ("too_many_sessions", 38)
            assert [await pinged(client, each) for each in (first, second)] == [200, 200]
            await client.delete("/mcp", headers={"mcp-session-id": second})
            third = await opened_session(client)
            assert [await pinged(client, each) for each in (first, third)] == [200, 200]


async def test_a_session_with_a_call_under_way_is_never_idle(handlers: Handlers) -> None:
    """However long it takes; when it is over the time begins."""
    app = HttpApp(build_server(AgentServer("gate", "7", handlers)), "/mcp", max_sessions=1)
    with anyio.fail_after(20):
        async with http_client(app) as client:
            session = await called_session(app, client, await opened_session(client))
            session.begin_request(9, is_past_sdk=True)
            assert (await begun(client)).headers["retry-after"] == "60"
            session.end_request(9, is_past_sdk=True)
            assert (await begun(client)).status_code == 503


NO_HELLO: dict[str, tuple[str, bytes | None]] = {
    "another request": ("POST", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'),
    "a notification": ("POST", b'{"jsonrpc":"2.0","method":"notifications/initialized"}'),
    "no JSON": ("POST", b"hello"),
    "nothing": ("POST", b""),
    "an array": ("POST", b"[]"),
    "a stream without a session": ("GET", None),
    "an end without a session": ("DELETE", None),
}


@pytest.mark.parametrize(("method", "body"), NO_HELLO.values(), ids=NO_HELLO)
async def test_what_opens_no_session_costs_nobody_a_place(handlers: Handlers, method: str, body: bytes | None) -> None:
    """It is refused for what it is, with idle sessions and without."""
    app = HttpApp(build_server(AgentServer("gate", "7", handlers)), "/mcp", max_sessions=1)
    with anyio.fail_after(20):
        async with http_client(app) as client:
            session_id = await opened_session(client)
            await let_idle(app, client, session_id, 2 * IDLE_S)
            reply = await client.request(method, "/mcp", content=body, headers={"content-type": "application/json"})
            assert reply.status_code == 400
            assert await pinged(client, session_id) == 200
            reply = await client.request(method, "/mcp", content=body, headers={"content-type": "application/json"})
            assert reply.status_code == 400
            assert (await begun(client)).status_code == 503


async def test_streams_of_the_older_transport_have_as_many_places(handlers: Handlers) -> None:
    """A session there lasts as long as its stream: a newcomer is refused until one ends."""
    app = HttpApp(build_server(AgentServer("gate", "7", handlers)), "/sse", is_sse=True, max_sessions=1)
    scope: Scope = {
        **{"type": "http", "method": "GET", "path": "/sse", "raw_path": b"/sse", "query_string": b"", "root_path": ""},
        **{"scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "http_version": "1.1"},
        "headers": [(b"host", b"127.0.0.1")],
    }
    is_open, is_over = asyncio.Event(), asyncio.Event()

    async def receive() -> Message:
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        is_open.set()

    with anyio.fail_after(20):
        async with http_client(app) as client:
            listening = spawn(app(dict(scope), receive, send), "listening")
            await is_open.wait()
            reply = await client.get("/sse")
            assert (reply.status_code, reply.headers["retry-after"]) == (503, "60")
            assert reply.json()["error"]["data"]["code"] == "too_many_sessions"
            is_over.set()
            await listening
            is_open.clear()
            await app(dict(scope), receive, send)
            assert is_open.is_set()


async def called_session(app: HttpApp, client: httpx2.AsyncClient, session_id: str) -> HttpSession:
    """The session, after its first call."""
    with set_json_replies(True):
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        await client.post("/mcp", json=listing, headers={"mcp-session-id": session_id})
    session = app.session(session_id, LOCAL, "")
    assert session is not None
    return session


class Named:
    """An ASGI app that takes everybody for who the header says, as the endpoint's own admission does by a token."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        who = Principal(Headers(scope=scope).get("x-who", "local"))
        with bind_principal(who):
            await self._app(add_session_owner(scope, who), receive, send)


async def test_a_principal_travels_with_its_request(handlers: Handlers) -> None:
    """From the middleware in front of the endpoint to the handlers."""
    app = HttpApp(build_server(AgentServer("gate", "7", handlers)), "/mcp", middleware=[Middleware(Named)])
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "t"} | envelope()}
    modern = {"mcp-protocol-version": NEW, "mcp-method": "tools/call", "mcp-name": "t"}
    with anyio.fail_after(20):
        async with http_client(app, **modern) as client:
            for who in ({"x-who": "ann"}, {}, {"x-who": "bob"}):
                assert (await client.post("/mcp", json=call, headers=who)).status_code == 200
    assert [one.principal for one in handlers.inbound] == [Principal("ann"), LOCAL, Principal("bob")]
