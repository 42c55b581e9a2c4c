"""Parameters of opening a session with a server, whatever the transport."""

import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from smart_mcp_proxy.io.watchdog import Watchdog
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream.confinement.reach import Shelter
from smart_mcp_proxy.upstream.http_failures import TlsContext
from smart_mcp_proxy.upstream.oauth.auth_bearer import Bearer
from smart_mcp_proxy.upstream.oauth.auth_exchange import ExchangedBearer
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession
from smart_mcp_proxy.upstream.protocol.server_requests import Conversation
from smart_mcp_proxy.upstream.protocol.session import OnEvent

MAX_MESSAGE_BYTES: Final = 16 << 20
"""Largest message accepted from a server: legitimate results reach megabytes, memory has to last for many of them."""

_TEMPORARY: Final = "/tmp"
"""Folder for temporary files if no variable names one."""


class SessionOptions(msgspec.Struct, frozen=True):
    """Parameters of opening a session; a transport reads those that it needs.

    Attributes:
        config: The server, expanded.
        on_event: Told of changes and log lines.
        era: What the server spoke last time, to save the probe; None if that is not known.
        peer: The one client that the session is for; None where many share it.
        environ: The gateway's own environment.
        max_message_bytes: Larger messages are refused.
        tls: Certificates and proxies.
        bearer: The sign-in that every request carries; closed with the session.
        watchdog: Ends the server's process group if the gateway is killed.
        shelter: Keeps folders for confined servers.
    """

    config: ServerConfig
    on_event: OnEvent
    era: Era | None = None
    peer: Conversation | None = None
    environ: Mapping[str, str] = msgspec.field(default_factory=dict)
    max_message_bytes: int = MAX_MESSAGE_BYTES
    tls: TlsContext = msgspec.field(default_factory=TlsContext)
    bearer: Bearer | ExchangedBearer | None = None
    watchdog: Watchdog | None = None
    shelter: Shelter | None = None

    def folders(self) -> tuple[str, ...]:
        """The folders that the server's process is given: working folder, home, that for temporary files."""
        config = self.config
        home, temporary = (config.env.get(name) or self.environ.get(name) for name in ("HOME", "TMPDIR"))
        named = [path for path in (config.cwd or os.getcwd(), home, temporary or _TEMPORARY) if path]
        found = dict.fromkeys(path for each in named for path in (os.path.abspath(each), os.path.realpath(each)))
        return tuple(path for path in found if path != os.path.dirname(path))  # the root stands in every path


Opener = Callable[[SessionOptions], Coroutine[Any, Any, UpstreamSession]]
"""Opens a session and agrees on an era with the server within `limits.init_s`.

Raises:
    UpstreamAuthError: The server asks for a sign-in.
    UpstreamError: It cannot be started or reached, ends at once, or refuses.
    UpstreamTimeoutError: It does not answer in time.
"""
