"""Serving agents over HTTP, which a gateway on stdio does not load."""

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from smart_mcp_proxy.catalog import TokenKind
from smart_mcp_proxy.fastmcp_compat.auth.clock import override_clock
from smart_mcp_proxy.fastmcp_compat.auth.signing_keys import TIMED
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.sessions.agent import DRAIN_S
from smart_mcp_proxy.gateway.shared.key_mark import mark_secret_key
from smart_mcp_proxy.secrets.sealing import SecretKey
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.web.auth.sign_in import BrowserSignIn
from smart_mcp_proxy.web.common.streams import StopSteps
from smart_mcp_proxy.web.fast_path.wire_protocol import WireProtocol
from smart_mcp_proxy.web.http import build_app
from smart_mcp_proxy.web.metrics.endpoint import MetricsBeside
from smart_mcp_proxy.web.page.beside import PageBeside
from smart_mcp_proxy.web.rest.authorization import NetworkAuthorizer
from smart_mcp_proxy.web.rest.network import RestBeside, open_authorizer
from smart_mcp_proxy.web.serve import serve_app
from smart_mcp_proxy.web.server.protocol import BoundedProtocol
from smart_mcp_proxy.web.workers.relay import Relays
from smart_mcp_proxy.web.workers.routing import RoutedProtocol, adopt_connections
from smart_mcp_proxy.web.workers.session_names import replica_name

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses to listen on that none can be asked for, each with one that reaches it from this machine."""
LAST_ANSWERS_S = 0.1
"""An ended call is not yet an answer on its way: over SSE the SDK has it for a few more turns of the loop."""


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
    authorizer = await open_authorizer(gateway)
    app, fast_path = build_app(gateway, token=token, stop=stop, sign_in=sign_in)
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
    rest = RestBeside(app, gateway, authorizer, stop.is_over)
    whole = PageBeside(MetricsBeside(rest, gateway, authorizer), gateway, stop.is_over, sign_in)
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
