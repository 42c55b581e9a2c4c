"""Outlines of large definitions, and the parts of them that a path names."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.retrieval.summaries import format_type

OUTLINED_BYTES: Final = 16_000
"""Definitions above it are outlined: 4,000 tokens."""
_PART_BYTES: Final = 4_000
"""Parts of such a definition above it."""
_OUTLINE_BYTES: Final = 8_000
_DEPTHS: Final = (4, 3, 2, 1)
_NAMED: Final = 20
_SCHEMAS: Final = ("input_schema", "output_schema")


def outline_definition(described: Mapping[str, Any]) -> dict[str, Any]:
    """Outline a large definition: names, types and what is required, the beginning of its texts.

    Args:
        described: As `build_description` gives it; a small one is returned as it is.
    """
    if len(msgspec.json.encode(described)) <= OUTLINED_BYTES:
        return dict(described)
    outlined: dict[str, Any] = {}
    cut = []
    for name, part in described.items():
        size = len(msgspec.json.encode(part))
        if size <= _PART_BYTES:
            outlined[name] = part
            continue
        cut.append(name)
        if isinstance(part, str):
            outlined[name] = part[: _PART_BYTES // 4] + "…"
        elif name in _SCHEMAS:
            outlined[f"{name}_outline"] = _outline_within(part, part)
    paths = " or ".join(f'"{name}/NAME"' if name in _SCHEMAS else f'"{name}"' for name in cut)
    tokens = len(msgspec.json.encode(described)) // 4
    outlined["hint"] = (
        f"This is an outline of {tokens:,} tokens: a parameter with ? is optional, ~ stands for more than is shown. "
        f"describe_tool opens a part by its path: {paths}."
    )
    return outlined


def open_part(described: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Open a part of a definition, again outlined where it is large.

    Args:
        described: The whole.
        path: Names from its members on, with `/` between them; those of parameters may leave out the keywords of the
            schema, as in `input_schema/config/retries`.

    Raises:
        RequestError: There is no such part.
    """
    part: Any = described
    root: Any = described
    names = [name for name in path.split("/") if name]
    if not names:
        return {"path": path, **outline_definition(described)}
    for place, name in enumerate(names):
        children = _list_children(part, root)
        if name.removesuffix("?") not in children:
            known = ", ".join(list(children)[:_NAMED]) or "nothing"
            above = "/".join(names[:place]) or "the definition"
            raise RequestError(f"path is {path[:200]!r}, and {above} has no {name[:80]!r}.", hint=f"It has: {known}.")
        part = _resolve(children[name.removesuffix("?")], root)
        root = root if place else part
    is_large = len(msgspec.json.encode(part)) > OUTLINED_BYTES
    if is_large and names[0] in _SCHEMAS:
        return {"path": path, "outline": _outline_within(part, root)}
    return {"path": path, "part": part}


def _outline_within(schema: Any, root: Any) -> Any:
    """The deepest outline of a schema that fits."""
    for depth in _DEPTHS:
        found = _outline_schema(schema, root, depth)
        if len(msgspec.json.encode(found)) <= _OUTLINE_BYTES:
            break
    return found


def _outline_schema(schema: Any, root: Any, depth: int) -> Any:
    schema = _resolve(schema, root)
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if isinstance(properties, Mapping) and properties and depth:
        needed = schema.get("required") or ()
        return {
            name if name in needed else f"{name}?": _outline_schema(inner, root, depth - 1)
            for name, inner in properties.items()
        }
    items = _resolve(schema.get("items"), root) if isinstance(schema, Mapping) else None
    if isinstance(items, Mapping) and isinstance(items.get("properties"), Mapping) and depth:
        return [_outline_schema(items, root, depth - 1)]
    return format_type(schema)


def _list_children(part: Any, root: Any) -> Mapping[str, Any]:
    """Members of a part by name: of a schema its parameters first, through lists and references."""
    part = _resolve(part, root)
    if not isinstance(part, Mapping):
        return {}
    inner = part
    while "properties" not in inner and isinstance(items := _resolve(inner.get("items"), root), Mapping):
        inner = items
    properties = inner.get("properties")
    return {**part, **(properties if isinstance(properties, Mapping) else {})}


def _resolve(schema: Any, root: Any) -> Any:
    """The schema that a local reference names; itself where it is none."""
    for _ in _DEPTHS:
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        schema = root
        for name in reference[2:].split("/"):
            schema = schema.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(schema, Mapping) else None
    return schema
