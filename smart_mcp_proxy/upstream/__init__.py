"""Talking to servers: transports, one supervisor per server, raw relay of requests and results."""

from smart_mcp_proxy.upstream.confinement.reach import SHELTER, Shelter, find_shown_paths
from smart_mcp_proxy.upstream.confinement.refusals import find_refusals, suggest_allowance
from smart_mcp_proxy.upstream.confinement.sandbox import describe_gaps, find_way
from smart_mcp_proxy.upstream.fleet import Connector, Fleet
from smart_mcp_proxy.upstream.http_failures import LostSessionError, TlsContext
from smart_mcp_proxy.upstream.keeper import Keeper
from smart_mcp_proxy.upstream.listing import ToolListing, fetch_page, is_listed
from smart_mcp_proxy.upstream.oauth.auth import CONNECT_PATH, SignedOut, SignIns
from smart_mcp_proxy.upstream.oauth.auth_callback import LOGIN_TIMEOUT_S, CallbackServer, PageCallback
from smart_mcp_proxy.upstream.oauth.auth_exchange import SubjectTokens
from smart_mcp_proxy.upstream.oauth.auth_store import SignIn
from smart_mcp_proxy.upstream.per_client import OwnConnection
from smart_mcp_proxy.upstream.personal import PersonalUpstream
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession
from smart_mcp_proxy.upstream.protocol.loop_detection import mark_environment
from smart_mcp_proxy.upstream.protocol.session import OnEvent
from smart_mcp_proxy.upstream.supervisor import Upstream
