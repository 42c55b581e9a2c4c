"""Pages of tools' interfaces: their digests, the tools that have one, and whom these are for.

A page (`ui://...`) is approved with its content: the catalog's definition of the resource holds a digest of what the
server answered when it was listed, so that another content is another definition.

Source: https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from smart_mcp_proxy.catalog import canonical_json, change_hash
from smart_mcp_proxy.extensions import APP_META
from smart_mcp_proxy.models import ToolRecord

FLAT_KEY: Final = "ui/resourceUri"
"""The older form of `_meta.ui.resourceUri`."""
DIGEST_KEY: Final = "dev.smartmcpproxy/pageDigest"
UNLISTED_KEY: Final = "dev.smartmcpproxy/unlisted"
"""Says that a page is in no list of its server's: only a tool names it."""
UNREAD: Final = "unread"
"""In the place of a digest: the server did not give the page when it was listed."""
_SCHEME: Final = "ui://"
_KEPT: Final = 2_048


def is_page(uri: str) -> bool:
    """Whether a server's URI is that of an interface."""
    return uri.startswith(_SCHEME)


def find_page_uri(definition: Mapping[str, Any]) -> str | None:
    """The page that a tool's definition, or a result, names; None where it names none."""
    meta = definition.get("_meta")
    if not isinstance(meta, Mapping):
        return None
    ui = meta.get(APP_META)
    found = ui.get("resourceUri") if isinstance(ui, Mapping) else None
    found = meta.get(FLAT_KEY) if found is None else found
    return found if isinstance(found, str) and is_page(found) else None


def page_digest(contents: Any) -> str:
    """Digest of a page as `resources/read` gave it: text, type, and what its `_meta.ui` asks of a host."""
    parts = contents if isinstance(contents, list) else [contents]
    facts = [_facts(part) if isinstance(part, Mapping) else part for part in parts]
    return f"sha256:{hashlib.sha256(canonical_json(facts)).hexdigest()}"


def _facts(part: Mapping[str, Any]) -> list[Any]:
    meta = part.get("_meta")
    return [*map(part.get, ("uri", "mimeType", "text", "blob")), meta.get(APP_META) if isinstance(meta, dict) else None]


def add_page_digest(definition: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """A resource's definition with its page's digest."""
    meta = definition.get("_meta")
    return {**definition, "_meta": {**(meta if isinstance(meta, Mapping) else {}), DIGEST_KEY: digest}}


def remove_gateway_meta(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """A definition as its server sent it, without what the gateway keeps in it."""
    meta = definition.get("_meta")
    if not isinstance(meta, Mapping) or meta.keys().isdisjoint((DIGEST_KEY, UNLISTED_KEY)):
        return definition
    kept = {key: value for key, value in meta.items() if key not in (DIGEST_KEY, UNLISTED_KEY)}
    rest = {key: value for key, value in definition.items() if key != "_meta"}
    return rest | ({"_meta": kept} if kept else {})


def without_digests(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """The words of a definition, without digests of a page or a skill's files, which look like code."""
    files = definition.get("resources")
    if not isinstance(files, list):
        return remove_gateway_meta(definition)
    return {**definition, "resources": [file.get("uri") for file in files if isinstance(file, Mapping)]}


def read_page_digest(record: ToolRecord) -> str | None:
    """The digest that a resource was approved with; None for what has none."""
    return _parse_digest(record.raw) if DIGEST_KEY.encode() in record.raw else None


def hash_without_digest(record: ToolRecord) -> str:
    """The change hash of a definition as its server sent it."""
    if DIGEST_KEY.encode() not in record.raw:
        return record.change_hash
    return change_hash(record.key.server, remove_gateway_meta(msgspec.json.decode(record.raw)))


@lru_cache(_KEPT)
def _parse_digest(raw: bytes) -> str | None:
    meta = msgspec.json.decode(raw).get("_meta")
    found = meta.get(DIGEST_KEY) if isinstance(meta, Mapping) else None
    return found if isinstance(found, str) else None


def is_for_apps_alone(raw: bytes) -> bool:
    """Whether a tool is for its server's interfaces, and no model is to see it."""
    return b'"visibility"' in raw and "model" not in _visibility(raw)


def is_for_apps(raw: bytes) -> bool:
    """Whether an interface of its server may call a tool."""
    return b'"visibility"' not in raw or "app" in _visibility(raw)


@lru_cache(_KEPT)
def _visibility(raw: bytes) -> tuple[str, ...]:
    """Whom a tool's definition says it is for; everybody where it does not say."""
    meta = msgspec.json.decode(raw).get("_meta")
    ui = meta.get(APP_META) if isinstance(meta, Mapping) else None
    stated = ui.get("visibility") if isinstance(ui, Mapping) else None
    return tuple(stated) if isinstance(stated, list) else ("model", "app")
