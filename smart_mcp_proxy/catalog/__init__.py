"""WHICH tools exist: the SQLite file in the data directory, and its picture in memory."""

from smart_mcp_proxy.catalog.catalog import Catalog
from smart_mcp_proxy.catalog.database import DATABASE_NAME
from smart_mcp_proxy.catalog.examples import USES_NEEDED, Example, Lesson
from smart_mcp_proxy.catalog.hashing import approval_digest, canonical_json, change_hash
from smart_mcp_proxy.catalog.instances import INSTANCE_STALE_S, Instance
from smart_mcp_proxy.catalog.snapshot import Diff, Snapshot

__all__ = [
    "DATABASE_NAME",
    "INSTANCE_STALE_S",
    "USES_NEEDED",
    "Catalog",
    "Diff",
    "Example",
    "Instance",
    "Lesson",
    "Snapshot",
    "approval_digest",
    "canonical_json",
    "change_hash",
]
