"""Opens a session by whatever transport a server is configured with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.io.watchdog import Watchdog
from smart_mcp_proxy.io.worker import ALONE, Worker
from smart_mcp_proxy.models import Era, Transport
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import fields, get_logger
from smart_mcp_proxy.upstream.confinement.reach import Shelter
from smart_mcp_proxy.upstream.http.raw_http import open_raw_http
from smart_mcp_proxy.upstream.http.sse_session import open_sse
from smart_mcp_proxy.upstream.http_failures import TlsContext
from smart_mcp_proxy.upstream.oauth.auth import SignIns, UnreadSignInError
from smart_mcp_proxy.upstream.oauth.auth_bearer import Bearer
from smart_mcp_proxy.upstream.opening import MAX_MESSAGE_BYTES, Opener, SessionOptions
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession
from smart_mcp_proxy.upstream.protocol.server_requests import Conversation
from smart_mcp_proxy.upstream.protocol.session import OnEvent
from smart_mcp_proxy.upstream.relayed import open_relayed, runs_elsewhere
from smart_mcp_proxy.upstream.stdio.stdio import open_stdio

_OLDER_TRANSPORT: Final = frozenset({400, 404, 405})
"""Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#backwards-compatibility"""
_SSE_S: Final = 10.0
"""A stream that names no address to post to may be one of something else."""

_log = get_logger("upstream")

TRANSPORTS: Final[Mapping[Transport, Opener]] = {"stdio": open_stdio, "http": open_raw_http, "sse": open_sse}
"""What opens a session, by the transport of a server."""


@dataclass(eq=False, repr=False)
class Connector:
    """Opens sessions; one object serves all servers and keeps what they share, for as long as it is open.

    Attributes:
        max_message_bytes: Larger messages are refused, on every transport.
        tls: Certificates and proxies; the system's own and none if left out.
        worker: This process; a stdio server that all workers share may be another one's.
        shelter: Keeps folders for confined servers.
        watchdog: Ends our children's process groups if we are killed.
        sign_ins: What servers with OAuth are sent; None if there is no place to keep it.
    """

    max_message_bytes: int = MAX_MESSAGE_BYTES
    sign_ins: SignIns | None = None
    tls: TlsContext | None = None
    worker: Worker = ALONE
    shelter: Shelter | None = None

    def __post_init__(self) -> None:
        self._tls = self.tls or TlsContext()
        self.watchdog = Watchdog()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.watchdog.__aexit__(*exc_info)

    async def __call__(
        self,
        config: ServerConfig,
        *,
        environ: Mapping[str, str],
        era: Era | None,
        on_event: OnEvent,
        peer: Conversation | None = None,
    ) -> UpstreamSession:
        """An open session; see `OpenSession`."""
        options = SessionOptions(
            config,
            on_event,
            era,
            peer,
            environ,
            self.max_message_bytes,
            self._tls,
            watchdog=self.watchdog,
            shelter=self.shelter,
        )
        try:
            return await self._open_transport(options)
        except UpstreamError as exc:
            status = (exc.data or {}).get("http_status")
            if config.transport != "http" or peer is not None or status not in _OLDER_TRANSPORT:
                raise
            refused = exc
        # Such a server may be one of HTTP+SSE.
        # Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#backwards-compatibility
        limits = replace(config.limits, init_s=min(config.limits.init_s, _SSE_S))
        try:
            session = await self._open_transport(
                replace(options, config=replace(config, transport="sse", limits=limits), era=None)
            )
        except UpstreamError:
            raise refused from None
        _log.info(
            'server %s speaks the older HTTP+SSE; "type": "sse" in its entry saves a request',
            config.name,
            extra=fields(server=config.name),
        )
        return session

    async def _open_transport(self, options: SessionOptions) -> UpstreamSession:
        config = options.config
        unread: UnreadSignInError | None = None
        try:
            options = replace(options, bearer=await self._bearer(config))
        except UnreadSignInError as exc:  # the server may well do without one, and says so if not
            unread = exc
        try:
            if options.peer is None and runs_elsewhere(config, self.worker):
                return await open_relayed(options, self.worker)
            return await TRANSPORTS[config.transport](options)
        except BaseException as exc:
            if options.bearer is not None:
                await options.bearer.close()
            elif isinstance(exc, UpstreamAuthError) and config.can_use_oauth and self.sign_ins is not None:
                self.sign_ins.expect(config)
                if unread is not None:  # somebody may have signed in: the store is at fault, not the person
                    raise unread from exc
            raise

    async def _bearer(self, config: ServerConfig) -> Bearer | None:
        """The sign-in to send: the configured one, or one that a person made although none is configured."""
        if config.oauth is None and (self.sign_ins is None or not config.can_use_oauth):
            return None
        if self.sign_ins is None:
            raise UpstreamAuthError(
                f"Server '{config.name}' needs a sign-in, and there is no data directory to keep one in.",
                hint="Start the gateway with one (MCPPROXY_DATA_DIR), or give the server a token in its 'headers'.",
            )
        if config.oauth is None:
            return await self.sign_ins.find_bearer(config)
        return await self.sign_ins.bearer(config)
