"""Merges a change into a server's entry, and names what it changed."""

from collections.abc import Mapping
from typing import Any

from smart_mcp_proxy.servers.edit import is_same


def merge(entry: Any, patch: Any) -> Any:
    """The entry with a change merged into it; neither is modified.

    Objects merge key by key at any depth, null removes a key, arrays and everything else replace what was there.

    Source: RFC 7396; docs/design/protocol-surface.md#merging-a-change
    """
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(entry) if isinstance(entry, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def list_changed_fields(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Names of the fields that differ, with their path (`env.TOKEN`), sorted; no values."""
    names: list[str] = []
    for key in old.keys() | new.keys():
        if key not in old or key not in new:
            present = new.get(key, old.get(key))
            names += _leaves(present, prefix + key)
        elif isinstance(old[key], Mapping) and isinstance(new[key], Mapping):
            names += list_changed_fields(old[key], new[key], f"{prefix}{key}.")
        elif not is_same(old[key], new[key]):
            names.append(prefix + key)
    return sorted(names)


def _leaves(value: Any, name: str) -> list[str]:
    """A field by its name, an object by the names of what it holds."""
    return list_changed_fields({}, value, f"{name}.") if isinstance(value, Mapping) and value else [name]
