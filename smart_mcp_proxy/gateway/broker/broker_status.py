"""Status of the servers that the HTTP broker serves."""

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from smart_mcp_proxy.models import ServerState
from smart_mcp_proxy.servers import ServerConfig, mask_entry


# Source: docs/design/broker.md#status
class BrokerStatus(msgspec.Struct, rename="camel"):
    """A server as the broker sees it.

    Attributes:
        name: Configured name.
        is_proxy: Whether the broker passes requests to it.
        target_url: Its address with secrets hidden; None where it is a program.
        is_authorized: Whether it has not asked for a sign-in.
        has_token: Whether a credential is sent to it.
        last_proxy_request: When the broker last passed a request to it, RFC 3339; None if it has not.
        proxy_request_count: How many requests it has passed on since the gateway started.
    """

    name: str
    is_proxy: bool
    target_url: str | None
    is_authorized: bool
    has_token: bool
    last_proxy_request: str | None
    proxy_request_count: int


class ConnectionDetails(msgspec.Struct, rename="camel"):
    """A server's address, and when it last answered a request of the broker."""

    target_url: str | None
    last_authorized: str | None


# Source: docs/design/broker.md#connections
class BrokeredConnection(msgspec.Struct, rename="camel"):
    """A row of the list of connections."""

    name: str
    type: str
    is_available: bool
    is_proxy: bool
    proxy_endpoints: list[str]
    details: ConnectionDetails


class Connections(msgspec.Struct):
    """The servers within the caller's reach."""

    connections: list[BrokeredConnection]


@dataclass(slots=True)
class Count:
    """Counts of the broker's requests to one server; times in seconds since the epoch."""

    requests: int = 0
    last_s: float | None = None
    answered_s: float | None = None


def build_broker_status(config: ServerConfig, state: ServerState, count: Count) -> BrokerStatus:
    """A server at a glance."""
    is_authorized = state is not ServerState.NEEDS_AUTH
    sends_header = any(name.lower() == "authorization" for name in config.headers)
    return BrokerStatus(
        name=config.name,
        is_proxy=config.proxy,
        target_url=_address(config),
        is_authorized=is_authorized,
        has_token=sends_header or (config.oauth is not None and is_authorized),
        last_proxy_request=_moment(count.last_s),
        proxy_request_count=count.requests,
    )


def build_broker_connection(config: ServerConfig, state: ServerState, count: Count) -> BrokeredConnection:
    """A server's row in the list of connections."""
    return BrokeredConnection(
        name=config.name,
        type="mcp-server",
        is_available=state is ServerState.READY,
        is_proxy=config.proxy,
        proxy_endpoints=[f"/api/mcp/{quote(config.name)}/proxy"] if config.proxy else [],
        details=ConnectionDetails(_address(config), _moment(count.answered_s)),
    )


def _address(config: ServerConfig) -> str | None:
    return str(mask_entry({"url": config.url})["url"]) if config.url else None


def _moment(at_s: float | None) -> str | None:
    if at_s is None:
        return None
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
