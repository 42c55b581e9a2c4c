"""Review of a server's list by its policy: who approves what it lists for the first time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anyio import to_thread

from smart_mcp_proxy.catalog import Catalog, Snapshot, change_hash
from smart_mcp_proxy.gateway.shared.app_pages import is_page, without_digests
from smart_mcp_proxy.gateway.shared.definition_scan import collect_peers
from smart_mcp_proxy.models import Review, ToolKey, Trust
from smart_mcp_proxy.names import extract_server_name, shelf
from smart_mcp_proxy.policy import scanner
from smart_mcp_proxy.policy.approval import choose_review
from smart_mcp_proxy.servers import ServerConfig


class ListReview:
    """Decides, for a server's list, which definitions need no user.

    Args:
        catalog: Holds what is known already.
        servers: The configuration in force.
        trust: Who approves where a server's entry does not say.
        count_needed: Returns how many different people approve a definition of a server.
    """

    def __init__(
        self,
        catalog: Catalog,
        servers: Callable[[], Mapping[str, ServerConfig]],
        trust: Trust,
        count_needed: Callable[[str], int],
    ) -> None:
        self._catalog = catalog
        self._servers = servers
        self._trust: Trust = trust
        self._count_needed = count_needed

    async def __call__(self, server: str, definitions: Sequence[Mapping[str, Any]]) -> Review | None:
        """Review a server's list by its policy; None where only the user approves."""
        config = self._servers().get(extract_server_name(server))
        if config is None or config.quarantined:
            return None
        # A policy is nobody, where several people have to agree.
        trust = "manual" if self._count_needed(config.name) > 1 else config.trust or self._trust
        if trust != "scan":
            return choose_review(trust)
        # In a thread, and before the list is stored: reading some thousand definitions takes its time.
        clean = await to_thread.run_sync(_clean, server, definitions, self._catalog.snapshot)
        return choose_review(trust, clean)


def _clean(server: str, definitions: Sequence[Mapping[str, Any]], snapshot: Snapshot) -> frozenset[str]:
    """The hashes of the definitions that nobody approved yet and the scanner finds nothing in."""
    known = {record.change_hash for record in snapshot.by_server.get(server, ())}
    peers = collect_peers(snapshot.by_id.values())
    hashes = ((change_hash(server, each), each) for each in definitions if _is_plain(each))
    unknown = ((hash_, each) for hash_, each in hashes if hash_ not in known)
    scanned = (
        (hash_, scanner.scan(extract_server_name(server), without_digests(each), peers))
        for hash_, each in unknown
        if not _is_changed_content(server, each, snapshot)
    )
    return frozenset(hash_ for hash_, found in scanned if all(finding.severity != "review" for finding in found))


def _is_plain(definition: Mapping[str, Any]) -> bool:
    """Whether a definition can be hashed; the catalog leaves out one that cannot, with a warning."""
    try:
        change_hash("", definition)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _is_changed_content(server: str, definition: Mapping[str, Any], snapshot: Snapshot) -> bool:
    """Whether a definition is of a page or skill that was listed before: the scanner reads no contents."""
    uri = definition.get("uri")
    if not isinstance(uri, str) or not (is_page(uri) or server == shelf(extract_server_name(server), "skills")):
        return False
    key = ToolKey(server, uri)
    return key in snapshot.by_key or key in snapshot.withheld
