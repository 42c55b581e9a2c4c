"""Talking to servers: transports, one supervisor per server, raw relay of requests and results."""

from smart_mcp_proxy.upstream.auth import SignedOut, SignIns
from smart_mcp_proxy.upstream.auth_callback import LOGIN_TIMEOUT_S, CallbackServer
from smart_mcp_proxy.upstream.dial import Dialer
from smart_mcp_proxy.upstream.fleet import Fleet
from smart_mcp_proxy.upstream.http import TlsContext
from smart_mcp_proxy.upstream.lineage import marked
from smart_mcp_proxy.upstream.link import Link, OnEvent
from smart_mcp_proxy.upstream.listing import ToolListing
from smart_mcp_proxy.upstream.own import OwnConnection
from smart_mcp_proxy.upstream.supervisor import Upstream

__all__ = [
    "LOGIN_TIMEOUT_S",
    "CallbackServer",
    "Dialer",
    "Fleet",
    "Link",
    "OnEvent",
    "OwnConnection",
    "SignIns",
    "SignedOut",
    "TlsContext",
    "ToolListing",
    "Upstream",
    "marked",
]
