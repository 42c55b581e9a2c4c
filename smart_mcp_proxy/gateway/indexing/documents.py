"""Search documents made from definitions."""

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from smart_mcp_proxy.models import Document, ItemKind, ToolRecord, mark_of
from smart_mcp_proxy.names import server_of

__all__ = ["content_document_of", "document_of"]

_READ = 64
"""Definitions that are kept as read: what looks at a document looks at several of its texts in turn."""


class _Texts(NamedTuple):
    title: str
    description: str
    parameters: tuple[tuple[str, str], ...]


class _RecordDocument(Document):
    """A document that reads its texts in the stored definition: a copy would be half of the memory."""

    __slots__ = ("_record",)

    def __init__(self, record: ToolRecord, examples: tuple[str, ...]) -> None:
        # Title, description and parameters are left unset, so that `__getattr__` is asked for them.
        for name, value in (
            ("id", record.id),
            ("server", record.key.server),
            ("name", record.key.tool),
            ("listed_name", record.listed_name),
            ("examples", examples),
            ("is_destructive", record.annotations.get("destructiveHint") is True),
            ("kind", "tool"),
            ("_record", record),
        ):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(_texts(self._record.raw), name)

    @property
    def mark(self) -> bytes:
        """Stands for all that it says, by the definition's hash."""
        return mark_of("\n".join((self._record.change_hash, self.listed_name, *self.examples)))


def document_of(record: ToolRecord, *, has_examples: bool = False) -> Document:
    """Return a tool's search document: its words, without its schema's structure.

    Args:
        record: The tool.
        has_examples: Whether questions learned from use are among them.
    """
    return _RecordDocument(record, record.examples if has_examples else ())


@lru_cache(maxsize=_READ)
def _texts(raw: bytes) -> _Texts:
    definition = msgspec.json.decode(raw)
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    parameters = (
        tuple((str(name), _text(value, "description")) for name, value in properties.items())
        if isinstance(properties, dict)
        else ()
    )
    return _Texts(_text(definition, "title"), _text(definition, "description"), parameters)


def content_document_of(record: ToolRecord, kind: ItemKind, shown: str) -> Document:
    """Return the search document of a prompt, a resource or a template, the words of a URI included.

    Args:
        record: As the catalog holds it.
        kind: What it is.
        shown: The name or URI that agents see.
    """
    definition = msgspec.json.decode(record.raw)
    if kind == "skill":
        definition = {**definition["frontmatter"], "title": ""}
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
