"""The scan of stored definitions: each beside the tools that it is compared with."""

from collections.abc import Iterable

import msgspec

from smart_mcp_proxy.gateway.shared.app_pages import without_digests
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.names import extract_server_name
from smart_mcp_proxy.policy import scanner
from smart_mcp_proxy.policy.scanner import Finding


def collect_peers(records: Iterable[ToolRecord]) -> "scanner.Peers":
    """The tools among records, for definitions to be compared with."""
    # Shelves left out: a server's own prompt may have the name and the words of its tool.
    tools = (record for record in records if ":" not in record.key.server)
    return scanner.Peers(scanner.PeerTool(*record.key, _description(record)) for record in tools)


def scan_record(record: ToolRecord, peers: "scanner.Peers") -> tuple[Finding, ...]:
    """The scanner's findings about a stored definition."""
    definition = without_digests(msgspec.json.decode(record.raw))
    return scanner.scan(extract_server_name(record.key.server), definition, peers)


def _description(record: ToolRecord) -> str:
    text = msgspec.json.decode(record.raw).get("description")
    return text if isinstance(text, str) else ""
