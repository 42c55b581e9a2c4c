"""Protocol eras that a client on stdio is offered.

The modern era forbids lists of tools that a search changes, and over a pipe the server may leave an era out: where
searches are to register tools, clients are served in the handshake era.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from smart_mcp_proxy.greeting.seen_clients import find_client

OLDER_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions of the handshake era, as far as the SDK serves them; a test holds them equal."""
SHOWN_CHARS = 60
"""Characters that are repeated of what a client sent."""
_METHOD_NOT_FOUND: Final = -32601
_UNSUPPORTED_VERSION: Final = -32022


class StdioEras(NamedTuple):
    """Clients from which the modern era is withheld, and the settings that say so.

    Attributes:
        withheld_from: Every client, those that heed changed lists, or none.
        cause: The setting with its value.
    """

    withheld_from: Literal["all", "heeding", "none"]
    cause: str

    def offers_modern(self, client: str) -> bool:
        """Whether a client of this name may speak the modern era."""
        if self.withheld_from == "heeding":
            seen = find_client(client)
            return seen is None or not seen.heeds_changes
        return self.withheld_from == "none"

    def reason(self, client: str) -> str:
        """Say for people why a client of this name speaks its era."""
        if self.offers_modern(client):
            return "its own choice"
        return f"2026-07-28 is not offered on stdio under {self.cause}"

    def refuse(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """The JSON-RPC error for a request of the modern era where it is not offered."""
        way = (
            f"On stdio this gateway speaks {OLDER_VERSIONS[0]} and before under {self.cause}: begin with initialize. "
            "For clients that speak 2026-07-28 alone, start the gateway with MCPPROXY_STDIO_ERA=both."
        )
        if method == "server/discover":  # as a server of the handshake era answers, so that clients fall back
            return {"code": _METHOD_NOT_FOUND, "message": f"Method not found: {method}. {way}"}
        requested = str(_envelope(params).get("io.modelcontextprotocol/protocolVersion", ""))[:SHOWN_CHARS]
        message = f"{method[:SHOWN_CHARS]} came in revision {requested!r} of the protocol. {way}"
        data = {"supported": list(OLDER_VERSIONS), "requested": requested}
        return {"code": _UNSUPPORTED_VERSION, "message": message, "data": data}


EVERY_ERA: Final = StdioEras("none", "")


def stdio_eras(setting: str, routing: str) -> StdioEras:
    """Decide which clients on stdio are offered the modern era.

    Args:
        setting: `MCPPROXY_STDIO_ERA`.
        routing: `MCPPROXY_ROUTING_TYPE`, or CALL_TOOL where searches change no list.

    Source: docs/dynamic-tools.md#the-protocols-era-on-stdio
    """
    if setting == "handshake":
        return StdioEras("all", "MCPPROXY_STDIO_ERA=handshake")
    if setting == "auto" and routing == "DYNAMIC":
        return StdioEras("all", "MCPPROXY_ROUTING_TYPE=DYNAMIC")
    if setting == "auto" and routing == "AUTO":
        return StdioEras("heeding", "MCPPROXY_ROUTING_TYPE=AUTO")
    return EVERY_ERA


def client_name(params: Mapping[str, Any] | None) -> str:
    """The name that a request's envelope gives of its client; empty where it gives none."""
    info = _envelope(params).get("io.modelcontextprotocol/clientInfo")
    name = info.get("name") if isinstance(info, Mapping) else None
    return name if isinstance(name, str) else ""


def _envelope(params: Mapping[str, Any] | None) -> Mapping[str, Any]:
    meta = (params or {}).get("_meta")
    return meta if isinstance(meta, Mapping) else {}
