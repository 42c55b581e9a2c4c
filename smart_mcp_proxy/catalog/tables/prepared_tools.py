"""Tools as a server lists them now, ready to be stored."""

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from smart_mcp_proxy.catalog.hashing import approval_digest, change_hash, json_text
from smart_mcp_proxy.catalog.moving_parts import is_unchanged
from smart_mcp_proxy.catalog.snapshot import Snapshot
from smart_mcp_proxy.models import ToolKey, ToolRecord, Withheld
from smart_mcp_proxy.names import identity_on
from smart_mcp_proxy.telemetry import fields, get_logger

KNOWN_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""Hints of ToolAnnotations. Source: https://modelcontextprotocol.io/specification/2025-11-25/schema"""
_NOTHING_KNOWN = Snapshot()

_log = get_logger("catalog")


class PreparedTool(msgspec.Struct, frozen=True):
    """A tool as a server lists it now, ready to be stored.

    Attributes:
        key: Server and tool name.
        raw: JSON text of the definition as UTF-8, the snapshot's own where that holds the same.
        hash: Its change hash.
        annotations: JSON text of its known hints.
    """

    key: ToolKey
    raw: bytes
    hash: str
    annotations: str

    @property
    def definition(self) -> str:
        """JSON text of the definition."""
        return self.raw.decode()

    @property
    def description(self) -> str | None:
        """For people who read the table; None where the definition has no text there."""
        description = json.loads(self.raw).get("description")
        return description.encode("utf-8", "replace").decode() if isinstance(description, str) else None


Wanted = Mapping[str, PreparedTool]
"""A server's list, by name."""


def prepare(
    server: str,
    definitions: Sequence[Mapping[str, Any]],
    snapshot: Snapshot = _NOTHING_KNOWN,
    unstorable: str = "",
    longest_bytes: int | None = None,
    folders: Collection[str] | None = None,
) -> dict[str, PreparedTool]:
    """Prepare a server's list by name; of equal names the first, none that cannot be written.

    Args:
        server: Configured name, or a shelf.
        definitions: As the server sent them.
        snapshot: A definition that it holds to the letter needs no other hash.
        unstorable: A character that no name may hold; empty for none.
        longest_bytes: Of a name and the server's together; None for any length.
        folders: Of the server; what differs from the approved definition in nothing else is prepared as that one. None
            where every difference counts.
    """
    prepared: dict[str, PreparedTool] = {}
    identity = identity_on(server)
    for definition in definitions:
        name = definition[identity]
        if name in prepared:
            continue
        try:
            if unstorable and unstorable in name:
                raise ValueError(f"the database holds no name with {unstorable!r}")
            size_bytes = len(name.encode())
            if longest_bytes is not None and size_bytes > longest_bytes - len(server.encode()):
                raise ValueError(f"the database holds no name of {size_bytes:,} bytes")
            prepared[name] = _prepare_tool(ToolKey(server, name), definition, snapshot, folders)
        except (TypeError, ValueError, RecursionError) as exc:
            _log.warning(
                "tool %r of server %s is left out: its definition is not plain JSON: %s",
                name,
                server,
                exc,
                extra=fields(server=server),
            )
    return prepared


def _prepare_tool(
    key: ToolKey, definition: Mapping[str, Any], snapshot: Snapshot, folders: Collection[str] | None
) -> PreparedTool:
    raw, known = json_text(dict(definition)).encode(), snapshot.by_key.get(key)
    text = sys.intern(json_text(_select_known_hints(definition)))  # one of few
    if known is not None and known.raw == raw:
        return PreparedTool(known.key, known.raw, known.change_hash, text)
    if folders is not None and (approved := _find_last_approved(key, snapshot)) is not None:
        approved_raw, approved_hash = approved
        if is_unchanged(json.loads(approved_raw), json.loads(raw), folders):
            return PreparedTool(key, approved_raw, approved_hash, text)
    return PreparedTool(key, raw, change_hash(key.server, definition), text)


def _find_last_approved(key: ToolKey, snapshot: Snapshot) -> tuple[bytes, str] | None:
    """Text and hash of the definition of a tool that was approved last, as far as it is listed."""
    if (known := snapshot.by_key.get(key)) is not None:
        return known.raw, known.change_hash
    withheld = snapshot.withheld.get(key)
    return None if withheld is None or withheld.approved is None else (withheld.approved, withheld.approved_hash)


def _select_known_hints(definition: Mapping[str, Any]) -> dict[str, bool]:
    annotations = definition.get("annotations")
    hints = annotations if isinstance(annotations, Mapping) else {}
    return {hint: hints[hint] for hint in KNOWN_HINTS if isinstance(hints.get(hint), bool)}


def build_approved_record(withheld: Withheld) -> ToolRecord | None:
    """A withheld tool as it was when it was approved last; None where it never was."""
    if withheld.approved is None:
        return None
    record, hash_ = withheld.record, withheld.approved_hash
    hints = _select_known_hints(json.loads(withheld.approved))
    return ToolRecord(
        record.id,
        record.key,
        record.listed_name,
        withheld.approved,
        hash_,
        approval_digest(hash_),
        hints,
        record.examples,
    )
