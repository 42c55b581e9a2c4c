"""Metadata of `proxy` answers, written and read."""

from collections.abc import Mapping
from typing import Any, Literal, Self

import msgspec
from pydantic import BaseModel

META_PREFIX = "dev.smartmcpproxy/"
"""Before each key in `_meta`. Models of today's protocol drop unknown annotations, where the draft of the extension has
these keys; for clients of the handshake era they stand there as well.

Source: docs/design/proxy-extension.md#metadata
"""

ProxyAction = Literal["list", "info", "call", "batch"]
ProxyType = Literal["tool", "resource", "prompt"]

_FIELDS = {
    "proxyType": "proxy_type",
    "proxyAction": "proxy_action",
    "proxyPath": "proxy_path",
    "pythonType": "python_type",
    "many": "many",
    "contentType": "content_type",
    "totalCount": "total_count",
    "nextCursor": "next_cursor",
}
"""Keys on the wire and the attributes that hold them."""
FACTS = frozenset(_FIELDS)
"""Names of all facts, as the draft of the extension writes them."""


def proxy_meta(**facts: Any) -> dict[str, Any]:
    """Members of `_meta` for these facts, named as on the wire; without None values."""
    return {META_PREFIX + key: value for key, value in facts.items() if value is not None}


class ProxyResponseInfo(msgspec.Struct, frozen=True):
    """Facts that one content block of a `proxy` answer states; None for unstated ones.

    Attributes:
        proxy_type: tool, resource or prompt.
        proxy_action: list, info, call or batch.
        proxy_path: Name or URI that was asked for.
        python_type: What the JSON text holds: Tool, Resource, ResourceTemplate, Prompt, GetPromptResult,
            CallToolResult, or several of them in the form `Resource | ResourceTemplate`.
        many: Whether the JSON text is an array of these.
        content_type: A resource's own MIME type, where the answer shows it as JSON.
        total_count: How many there are in all, where the answer is one page of a list.
        next_cursor: What to ask the next page with; None after the last one.
    """

    proxy_type: str | None = None
    proxy_action: str | None = None
    proxy_path: str | None = None
    python_type: str | None = None
    many: bool | None = None
    content_type: str | None = None
    total_count: int | None = None
    next_cursor: str | None = None

    @classmethod
    def from_annotations(cls, annotations: Any) -> Self:
        """The facts in a block's annotations, as servers of the older form send them.

        Args:
            annotations: A mapping or a model; anything else says nothing. A `_meta` mapping is read as well.
        """
        return cls._from(_convert_to_mapping(annotations))

    @classmethod
    def from_content(cls, block: Any) -> Self:
        """Read the facts of a content block: `_meta` first, prefixed or not, then annotations.

        Args:
            block: A content block or a resource's contents, as a model or a mapping.
        """
        content = _convert_to_mapping(block)
        resource = _convert_to_mapping(content.get("resource"))
        # The weakest first: what comes later wins.
        places = (
            {key: value for key, value in resource.items() if key == "contentType"},
            content.get("annotations"),
            resource.get("_meta"),
            content.get("_meta"),
        )
        found: dict[str, Any] = {}
        for place in places:
            found |= {key: value for key, value in _facts(_convert_to_mapping(place)).items() if value is not None}
        return cls._from(found)

    @classmethod
    def _from(cls, facts: Mapping[str, Any]) -> Self:
        known = _facts(facts)
        return cls(**{field: _check_field_type(field, known[key]) for key, field in _FIELDS.items() if key in known})


def _facts(members: Mapping[str, Any]) -> dict[str, Any]:
    bare = {key: members[key] for key in _FIELDS if key in members}
    return bare | {key: members[META_PREFIX + key] for key in _FIELDS if META_PREFIX + key in members}


def _check_field_type(field: str, value: Any) -> Any:
    """The value if it is of the field's type: what a server says is not to be trusted with more."""
    wanted: type = {"many": bool, "total_count": int}.get(field, str)
    return value if isinstance(value, wanted) else None


def _convert_to_mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value if isinstance(value, Mapping) else {}
