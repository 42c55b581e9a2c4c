"""Search documents made from definitions."""

from typing import Any

import msgspec

from smart_mcp_proxy.models import Document, ItemKind, ToolRecord
from smart_mcp_proxy.names import server_of

__all__ = ["content_document_of", "document_of"]


def document_of(record: ToolRecord, *, has_examples: bool = False) -> Document:
    """Return a tool's search document: its words, without its schema's structure.

    Args:
        record: The tool.
        has_examples: Whether questions learned from use are among them.
    """
    definition = msgspec.json.decode(record.raw)
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    parameters = (
        tuple((str(name), _text(value, "description")) for name, value in properties.items())
        if isinstance(properties, dict)
        else ()
    )
    return Document(
        id=record.id,
        server=record.key.server,
        name=record.key.tool,
        title=_text(definition, "title"),
        description=_text(definition, "description"),
        parameters=parameters,
        listed_name=record.listed_name,
        examples=record.examples if has_examples else (),
        is_destructive=record.annotations.get("destructiveHint") is True,
    )


def content_document_of(record: ToolRecord, kind: ItemKind, shown: str) -> Document:
    """Return the search document of a prompt, a resource or a template, the words of a URI included.

    Args:
        record: As the catalog holds it.
        kind: What it is.
        shown: The name or URI that agents see.
    """
    definition = msgspec.json.decode(record.raw)
    title, arguments = _text(definition, "title"), definition.get("arguments") or ()
    return Document(
        id=record.id,
        server=server_of(record.key.server),
        name=_text(definition, "name") or record.key.tool,
        title=title if kind == "prompt" else f"{title}\n{record.key.tool}",
        description=_text(definition, "description"),
        parameters=tuple((argument["name"], _text(argument, "description")) for argument in arguments),
        listed_name=shown,
        kind=kind,
    )


def _text(value: Any, member: str) -> str:
    text = value.get(member) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""
