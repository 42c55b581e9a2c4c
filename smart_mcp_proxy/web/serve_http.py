"""Serving agents over HTTP, which a gateway on stdio does not load."""

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.catalog import TokenKind
from smart_mcp_proxy.fastmcp_compat.auth.clock import override_clock
from smart_mcp_proxy.fastmcp_compat.auth.signing_keys import TIMED
from smart_mcp_proxy.fastmcp_compat.http.http import HttpApp
from smart_mcp_proxy.fastmcp_compat.paths import get_request_path, principal
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.activity.access import build_access_activity
from smart_mcp_proxy.gateway.results.results import SERVER_NAME
from smart_mcp_proxy.gateway.sessions.agent import DRAIN_S
from smart_mcp_proxy.gateway.shared.key_mark import mark_secret_key
from smart_mcp_proxy.secrets.sealing import SecretKey
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.web.auth.auth import Keys, TokenMiddleware, check_callers
from smart_mcp_proxy.web.auth.groups import Groups, parse_groups_claim
from smart_mcp_proxy.web.auth.sign_in import BrowserSignIn
from smart_mcp_proxy.web.auth.signed_tokens import SCOPES, create_jwt_verifier, resource_url
from smart_mcp_proxy.web.broker.app import serve_broker_beside
from smart_mcp_proxy.web.common.forwarded import ForwardedClients
from smart_mcp_proxy.web.common.paths import ServedPaths, not_found, serve_beside
from smart_mcp_proxy.web.common.refusals import PlainAddress, Refusals, guard_app, list_allowed_hosts
from smart_mcp_proxy.web.common.streams import EndingStreams, StopSteps
from smart_mcp_proxy.web.discovery.app import serve_discovery_beside
from smart_mcp_proxy.web.fast_path.wire_http import WireHttp
from smart_mcp_proxy.web.fast_path.wire_protocol import FastPath, WireProtocol
from smart_mcp_proxy.web.metrics.endpoint import serve_metrics_beside
from smart_mcp_proxy.web.page.beside import LatePage
from smart_mcp_proxy.web.rest import PAGES, PREFIX, build_rest_app
from smart_mcp_proxy.web.rest.authorization import NetworkAuthorizer, open_authorizer
from smart_mcp_proxy.web.server.protocol import BoundedProtocol
from smart_mcp_proxy.web.server.uvicorn_server import serve_app
from smart_mcp_proxy.web.workers.relay import Relays
from smart_mcp_proxy.web.workers.routing import RoutedProtocol, adopt_connections
from smart_mcp_proxy.web.workers.session_names import SessionNames, replica_name

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses to listen on that none can be asked for, each with one that reaches it from this machine."""
LAST_ANSWERS_S = 0.1
"""An ended call is not yet an answer on its way: over SSE the SDK has it for a few more turns of the loop."""
MCP_PATH = "/mcp"
SSE_PATH = "/sse"
SSE_MESSAGES_PATH = "/messages"
_HEALTH = ("/healthz", "/readyz")
_UNCACHED = {"cache-control": "no-store"}


@asynccontextmanager
async def serve_http(
    gateway: Gateway, listener: socket.socket, *, token: str | None, sign_in: BrowserSignIn | None = None
) -> AsyncIterator[None]:
    """Serves agents on `listener` while open; at the end `/readyz` says no before calls are refused.

    Args:
        gateway: Open.
        listener: Listens already.
        token: The gateway's own; None where it has none.
        sign_in: Lets people sign in; None where they are not asked to.
    """
    stop = StopSteps()
    keys = build_keys(gateway, token, sign_in)
    authorizer = await open_authorizer(gateway, keys.check)
    app, fast_path = build_app(gateway, keys, stop=stop, sign_in=sign_in)
    worker = gateway.base.worker
    protocol: Callable[..., BoundedProtocol] = partial(WireProtocol, fast_path=fast_path)
    relays = Relays(worker)
    if not worker.is_alone:
        protocol = partial(RoutedProtocol, fast_path=fast_path, relays=relays)
    adopt = partial(adopt_connections, worker)
    sessions = gateway.admin.page_sessions
    sessions.address, sessions.operator = _address(gateway.settings, listener), authorizer.operator
    sessions.others = authorizer.others
    _meet_others(gateway, token, authorizer)
    if gateway.catalog.is_shared:
        await mark_secret_key(gateway.catalog, SecretKey.of(gateway.settings))
    rest = EndingStreams(guard_app(build_rest_app(gateway, authorizer.admit), gateway.settings), stop.is_over)
    whole = serve_metrics_beside(serve_beside(app, rest, _is_rest), gateway, authorizer.admit)
    whole = serve_beside(whole, LatePage(gateway, stop.is_over, sign_in), _is_page)
    if gateway.settings.trusted_proxies:
        whole = ForwardedClients(whole, gateway.settings.trusted_proxies)
    async with AsyncExitStack() as stack:
        if gateway.catalog.is_shared:
            timed = TIMED if sign_in is None else sign_in.timed
            stack.enter_context(override_clock(gateway.catalog.now_s, timed))
        if sign_in is not None and (gateway.catalog.is_shared or not worker.is_alone):
            stack.callback(spawn(sign_in.follow(), "ended sign-ins").cancel)
        await stack.enter_async_context(serve_app(whole, listener, protocol, adopt))
        yield
        stop.is_leaving.set()
        await asyncio.sleep(gateway.settings.stop_delay_s)
        # The other workers were told to stop as well, and end their calls by then.
        until_s = asyncio.get_running_loop().time() + DRAIN_S
        await gateway.agent.drain()
        await relays.wait_for_answers(until_s)
        await asyncio.sleep(LAST_ANSWERS_S)
        stop.is_over.set()
        worker.close()


def _is_rest(path: str) -> bool:
    return (path.rstrip("/") or path) in PAGES or path.startswith(PREFIX + "/")


def _is_page(path: str) -> bool:
    return path == "/ui" or path.startswith("/ui/")


def _meet_others(gateway: Gateway, token: str | None, authorizer: NetworkAuthorizer) -> None:
    """Tell other gateways on the database this one's name, and accept tokens that each had to make."""
    settings = gateway.settings
    if not gateway.catalog.is_shared:
        return
    if (name := replica_name(settings)) is not None:
        gateway.catalog.announce(f"{gateway.base.worker.number}.{name}")
    made: dict[TokenKind, str | None] = {}
    if settings.auth_token is None and settings.secret_key is None:
        made["agents"] = token
    if settings.operator_token is None and settings.secret_key is None:
        made["operator"] = authorizer.operator.decode()
        # As the others know it: what it opened goes on at them.
        gateway.admin.page_sessions.operator = hashlib.sha256(authorizer.operator).digest()
    # Several gateways of one machine have its name, and a data directory each: there the tokens lie.
    replica = settings.replica or f"{name}:{settings.data_dir.resolve()}"
    gateway.admin.agent_tokens.of_gateways.share(replica, made)


def _address(settings: Settings, listener: socket.socket) -> str:
    """The address at which a browser finds this gateway: the public one, else that of this machine."""
    if settings.public_url is not None:
        return settings.public_url.rstrip("/")
    host = _EVERYWHERE.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def build_keys(gateway: Gateway, token: str | None, sign_in: BrowserSignIn | None = None) -> Keys:
    """The tokens that are accepted.

    Args:
        gateway: Open.
        token: Its own; None lets in whoever sends none, unless signed tokens are asked for.
        sign_in: Lets people sign in; None where they are not asked to.
    """
    settings = gateway.settings
    signed = create_jwt_verifier(settings, gateway.catalog.now_s) if sign_in is None else sign_in.tokens
    if sign_in is None and signed is not None:
        groups = Groups(settings, gateway.base.config.profiles, signed.reach_of, is_bounded=True)
        signed = replace(signed, reach_of=groups.find_reach, role_of=groups.find_role)
    if signed is not None:
        signed.on_verified = gateway.upstreams.subjects.note
        signed.on_forgotten = gateway.upstreams.subjects.forget
        signed.on_signed_in = partial(_note_sign_in, gateway)
        signed.on_claims = partial(_note_groups, gateway)
    return Keys(token, gateway.admin.agent_tokens, signed)


def _note_sign_in(gateway: Gateway, person: str) -> None:
    gateway.base.recorder.record(build_access_activity("signed in", person, "gateway"))


def _note_groups(gateway: Gateway, person: str, claims: Mapping[str, Any]) -> None:
    """Let the quotas of groups know who is in which."""
    if (quotas := gateway.lists.admission.quotas) is not None:
        quotas.note_groups(person, parse_groups_claim(claims.get(gateway.settings.groups_claim)))


def build_app(
    gateway: Gateway, keys: Keys, *, stop: StopSteps, sign_in: BrowserSignIn | None = None
) -> tuple[ASGIApp, FastPath]:
    """The ASGI app of the HTTP endpoint, and the fast path in front of it for the common call.

    Args:
        gateway: Open.
        keys: Tell who sends a request.
        stop: Is taken step by step when the gateway ends.
        sign_in: Lets people sign in; None where they are not asked to.
    """
    settings = gateway.settings
    metadata_url, well_known = _metadata(settings) if keys.has_signed else (None, [])
    open_app = partial(
        HttpApp,
        gateway.mcp_server(),
        allowed_hosts=list_allowed_hosts(settings),
        max_sessions=settings.max_sessions,
        name_session=SessionNames(gateway.base.worker, settings),
        middleware=(Middleware(TokenMiddleware, keys=keys), Middleware(AuthContextMiddleware)),
    )
    streamable = open_app(MCP_PATH, refuse_place=partial(_refuse_place, gateway))
    legacy = open_app(SSE_PATH, is_sse=True)
    mcp = _by_path(streamable, legacy if gateway.base.worker.is_alone else _no_sse())

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with gateway.admin.agent_tokens.follow_tokens(), streamable.run_lifespan(), legacy.run_lifespan():
            yield

    health = _Health(gateway, stop.is_leaving)
    app = Starlette(
        routes=[
            *well_known,
            Route(_HEALTH[0], health.live),
            Route(_HEALTH[1], health.ready),
            Mount("/", app=PlainAddress(mcp)),
        ],
        lifespan=lifespan,
    )
    scopes = list(reversed(SCOPES)) if sign_in is None else sign_in.scopes
    behind = EndingStreams(Refusals(app, metadata_url, scopes), stop.is_over)
    wire = WireHttp(behind, streamable, MCP_PATH, gateway.agent, keys)
    places = ServedPaths(wire, MCP_PATH, gateway.serves_at, keys.check, resource_url(settings))
    outermost = serve_broker_beside(places, gateway, keys)
    outermost = serve_discovery_beside(outermost, gateway, keys, metadata_url, scopes)
    if sign_in is not None:
        outermost = serve_beside(outermost, sign_in.pages, sign_in.paths.__contains__)
    if keys.is_open:
        outermost = check_callers(outermost, _HEALTH)
    return outermost, FastPath(wire, MCP_PATH, places.address, gateway.admin.doors if keys.is_open else None)


def _refuse_place(gateway: Gateway) -> Response | None:
    """The answer to a request for a place that is another principal's: the same as if it did not exist."""
    return None if gateway.agent.routing.find_tools(get_request_path(), principal()) else not_found(get_request_path())


def _metadata(settings: Settings) -> tuple[str | None, list[Route]]:
    """Address and route of the token issuer's metadata; nothing without a public address.

    Source: RFC 9728.
    """
    resource = resource_url(settings)
    if resource is None:
        return None, []
    address = AnyHttpUrl(resource)
    if settings.jwt_issuer is None:  # people sign in here, and what serves that says so itself
        return str(build_resource_metadata_url(address)), []
    routes = create_protected_resource_routes(
        address, [AnyHttpUrl(settings.jwt_issuer)], list(reversed(SCOPES)), resource_name=SERVER_NAME
    )
    return str(build_resource_metadata_url(address)), routes


def _by_path(streamable: ASGIApp, legacy: ASGIApp) -> ASGIApp:
    """An app that serves each transport at its paths."""

    async def mcp(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        is_legacy = path.startswith((SSE_PATH, SSE_MESSAGES_PATH))
        if path == SSE_PATH + "/":  # as at the other endpoint, which `ServedPaths` serves with a slash as without
            scope = {**scope, "path": SSE_PATH, "raw_path": SSE_PATH.encode()}
        # Whoever looks for a sign-in asks at addresses that may not exist, without a token: 404, not 401.
        is_served = is_legacy or path == MCP_PATH
        await (legacy if is_legacy else streamable if is_served else Response(status_code=404))(scope, receive, send)

    return mcp


def _no_sse() -> JSONResponse:
    """The answer of one worker among several: a message of such a session comes to any of them."""
    error = {
        "code": "not_found",
        "message": f"{SSE_PATH} is not served by several workers.",
        "hint": f"Connect to {MCP_PATH}, or have the gateway run with one worker (MCPPROXY_WORKERS).",
    }
    return JSONResponse({"error": error}, status_code=404)


class _Health:
    """Health says nothing that an unknown caller should not know, so it needs neither token nor Host."""

    def __init__(self, gateway: Gateway, is_leaving: asyncio.Event) -> None:
        self._gateway = gateway
        self._is_leaving = is_leaving

    async def live(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"}, headers=_UNCACHED)

    async def ready(self, request: Request) -> Response:
        """Ready when the stored index serves, until a stop begins; no upstream can hold it hostage."""
        is_leaving = self._is_leaving.is_set()
        is_ready = self._gateway.lists.index_sync.loaded.is_set() and not is_leaving
        answer = {"status": "ready" if is_ready else "stopping" if is_leaving else "loading"}
        if (
            since := self._gateway.catalog.lost_since
        ) is not None:  # approved tools are served from memory all the same
            answer["store_lost_since"] = since.isoformat(timespec="seconds")
        return JSONResponse(answer, status_code=200 if is_ready else 503, headers=_UNCACHED)
