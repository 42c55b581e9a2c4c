"""Skills of servers as one place sees them: which holds a file, and what lies in a directory."""

import mimetypes
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from smart_mcp_proxy.catalog import Snapshot
from smart_mcp_proxy.gateway.shared.app_pages import read_page_digest
from smart_mcp_proxy.gateway.shared.refusals import content_withheld, skill_file_unlisted
from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_skill_uri
from smart_mcp_proxy.models import ToolKey, ToolRecord, WithheldState
from smart_mcp_proxy.names import extract_server_name, shelf
from smart_mcp_proxy.skills import SkillFile, find_skill_root, is_inside, map_skill_files

DIRECTORY: Final = "inode/directory"
_KEPT: Final = 2_048


@lru_cache(_KEPT)
def decode_skill_entry(raw: bytes) -> Mapping[str, Any]:
    """A skill's entry as its server sent it."""
    entry: Mapping[str, Any] = msgspec.json.decode(raw)
    return entry


@lru_cache(_KEPT)
def read_skill_manifest(raw: bytes) -> Mapping[str, SkillFile] | None:
    """The files that a skill was approved with, by the server's URI; None for one that is generated."""
    return map_skill_files(decode_skill_entry(raw))


def find_approved_digest(record: ToolRecord, uri: str) -> str | None:
    """The digest of the content that a page or a skill's file was approved with; None for what has none."""
    if record.key.server != shelf(extract_server_name(record.key.server), "skills"):
        return read_page_digest(record)
    file = (read_skill_manifest(record.raw) or {}).get(uri)
    return None if file is None else file.digest


def relink_skill_entry(server: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry under URIs that lead to the gateway; all else as it is."""
    files = entry["resources"]
    if not isinstance(files, str):
        files = [{**file, "uri": gateway_skill_uri(server, file["uri"])} for file in files]
    return {**entry, "uri": gateway_skill_uri(server, entry["uri"]), "resources": files}


def find_holding_skill(snapshot: Snapshot, server: str, uri: str, records: Iterable[ToolRecord]) -> ToolRecord | None:
    """The approved skill that a file belongs to; None where the URI has nothing to do with skills.

    Args:
        snapshot: Knows what is withheld.
        server: Configured name.
        uri: As the server knows it.
        records: Its approved skills that are seen.

    Raises:
        QuarantinedError: The skill waits for the user, or was approved without this file.
    """
    place, records = shelf(server, "skills"), list(records)
    if (own := snapshot.withheld.get(ToolKey(place, uri))) is not None:
        raise content_withheld(own.record.key, own.state)
    _refuse_blocked(snapshot, ToolKey(shelf(server, "resources"), uri))
    holding = [record for record in records if uri in (read_skill_manifest(record.raw) or ())]
    if holding:
        return _innermost(holding)
    around = [record for record in records if is_inside(find_skill_root(record.key.tool), uri)]
    keys = [key for key in snapshot.withheld if key.server == place and is_inside(find_skill_root(key.tool), uri)]
    nearest = _innermost(around) if around else None
    if keys and (nearest is None or max(map(_depth, keys)) > _depth(nearest.key)):
        key = max(keys, key=_depth)
        raise content_withheld(key, snapshot.withheld[key].state)
    if nearest is None or read_skill_manifest(nearest.raw) is None:
        return nearest
    if ToolKey(shelf(server, "resources"), uri) in snapshot.by_key:  # approved by itself
        return None
    raise skill_file_unlisted(nearest.key)


def list_skill_children(uri: str, records: Iterable[ToolRecord]) -> list[dict[str, Any]] | None:
    """Children of a directory of approved skills, as resources; None where it is in none of them.

    Args:
        uri: The directory, as the server knows it.
        records: The approved skills of the server that are seen.
    """
    files = [file for record in records for file in read_skill_manifest(record.raw) or () if is_inside(uri, file)]
    if not files:
        return None
    children = [f"{uri}/{file.removeprefix(f'{uri}/').partition('/')[0]}" for file in sorted(files)]
    return [_child(child, is_file=child in files) for child in dict.fromkeys(children)]


def _child(uri: str, *, is_file: bool) -> dict[str, Any]:
    name = unquote(uri.rpartition("/")[2])
    type_ = _guess_mime_type(name) if is_file else DIRECTORY
    return {"uri": uri, "name": name} | ({"mimeType": type_} if type_ else {})


def _guess_mime_type(name: str) -> str | None:
    return "text/markdown" if name.lower().endswith(".md") else mimetypes.guess_type(name)[0]


def _refuse_blocked(snapshot: Snapshot, key: ToolKey) -> None:
    withheld = snapshot.withheld.get(key)
    if withheld is not None and withheld.state is WithheldState.BLOCKED:
        raise content_withheld(key, withheld.state)


def _innermost(records: Iterable[ToolRecord]) -> ToolRecord:
    return max(records, key=lambda record: _depth(record.key))


def _depth(key: ToolKey) -> int:
    return len(find_skill_root(key.tool))
