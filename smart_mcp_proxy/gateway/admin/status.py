"""The gateway at a glance, for the command line, REST and health checks."""

from collections.abc import Mapping

import msgspec

from smart_mcp_proxy.catalog import Instance
from smart_mcp_proxy.gateway.activity.visitors import Visitor
from smart_mcp_proxy.gateway.shared.sessions import Session
from smart_mcp_proxy.models import ServerStatus


class GatewayStatus(msgspec.Struct, frozen=True):
    """The gateway at a glance.

    Attributes:
        version: Ours.
        pid: Process id.
        servers: Every configured server.
        tools: Visible tools by server.
        waiting: Tools that wait for the user's approval by server, where any do.
        catalog_tokens: Estimated tokens of all visible definitions.
        generation: Of the catalog.
        degraded: Why answers are worse than the settings ask for.
        unmatched: What the configuration names and no server lists.
        embedded: How many tools have their vector, of how many; None where no vectors rank, or not yet.
        is_loaded: Whether the stored index serves.
        sessions: Connected clients of the handshake era.
        visitors: Clients of the modern era that were here.
        gateways: Those that serve on the store, as of the last heartbeat.
        is_shared: Whether the store may be used from other machines.
        clock_ahead_s: Seconds that its clock is ahead of this machine's.
    """

    version: str
    pid: int
    servers: tuple[ServerStatus, ...]
    tools: Mapping[str, int]
    waiting: Mapping[str, int]
    catalog_tokens: int
    generation: int
    degraded: tuple[str, ...]
    unmatched: tuple[str, ...]
    embedded: tuple[int, int] | None
    is_loaded: bool
    sessions: tuple[Session, ...]
    visitors: tuple[Visitor, ...]
    gateways: tuple[Instance, ...]
    is_shared: bool
    clock_ahead_s: float
