"""Handlers of an agent's requests besides its tools."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from smart_mcp_proxy.extensions import Extensions
from smart_mcp_proxy.models import ClientInput, ClientLine, Era, OnProgress, Principal


class ClientSession(Protocol):
    """State of a handshake-era client while it is connected."""

    def listens(self) -> None:
        """The client has opened the stream on which it hears what comes outside its requests."""

    def close(self) -> None:
        """The client is gone."""


class Inbound(msgspec.Struct, frozen=True):
    """Request of an agent: the parts that the gateway's handlers read.

    Attributes:
        params: The request's params as they came.
        meta: The agent's `_meta` without connection keys.
        era: Protocol era of this request.
        protocol_version: Negotiated (handshake) or stated (modern) version.
        principal: On whose behalf.
        on_progress: Sends progress to the agent; None unless it gave a token.
        path: Where it came in, see `get_request_path`.
        session: What is kept for its sender; None in the modern era.
        session_id: The session's id; None on a pipe and in the modern era.
        method: What is asked for.
        input: How its sender can be asked for more; None where it cannot be.
        line: The way back to its sender, for what servers ask and tell it meanwhile; None in the modern era.
        extensions: What its sender declares of extensions; None where nothing.
    """

    params: Mapping[str, Any]
    meta: Mapping[str, Any]
    era: Era
    protocol_version: str
    principal: Principal
    on_progress: OnProgress | None
    path: str = ""
    session: ClientSession | None = None
    session_id: str | None = None
    method: str = ""
    input: ClientInput | None = None
    line: ClientLine | None = None
    extensions: Extensions | None = None


class ClientHandlers(Protocol):
    """Handlers for handshake-era clients of servers that know each client."""

    def capabilities(self) -> dict[str, Any]:
        """Capabilities for a client's greeting, at the path of the present request."""

    async def set_level(self, session: ClientSession, level: str) -> None:
        """The client wants log messages from this level on."""

    def roots_changed(self, session: ClientSession) -> None:
        """The client sent `notifications/roots/list_changed`."""


class RequestHandlers(Protocol):
    """Handlers of prompts and resources.

    Attributes:
        methods: What it answers.
    """

    @property
    def methods(self) -> frozenset[str]:
        """The methods that come here."""

    def capabilities(self, era: Era) -> dict[str, Any]:
        """Capabilities of prompts and resources for the greeting of an era, at the path of the request."""

    async def answer(self, method: str, inbound: Inbound) -> dict[str, Any]:
        """The result of one request, whole."""
