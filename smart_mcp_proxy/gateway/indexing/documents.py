"""Search documents made from definitions."""

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from smart_mcp_proxy.models import Document, ItemKind, ToolRecord, hash_text
from smart_mcp_proxy.names import extract_server_name

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
        _set_id(self, record.id)
        _set_server(self, record.key.server)
        _set_name(self, record.key.tool)
        _set_listed_name(self, record.listed_name)
        _set_examples(self, examples)
        _set_destructive(self, record.annotations.get("destructiveHint") is True)
        _set_kind(self, "tool")
        _set_record(self, record)

    def __getattr__(self, name: str) -> Any:
        return getattr(_texts(self._record.raw), name)

    @property
    def mark(self) -> bytes:
        """Stands for all that it says, by the definition's hash."""
        return hash_text("\n".join((self._record.change_hash, self.listed_name, *self.examples)))


# Setters of the slots of a class whose objects are frozen: by name it takes twice as long, and a start makes all.
_set_id = vars(Document)["id"].__set__
_set_server = vars(Document)["server"].__set__
_set_name = vars(Document)["name"].__set__
_set_listed_name = vars(Document)["listed_name"].__set__
_set_examples = vars(Document)["examples"].__set__
_set_destructive = vars(Document)["is_destructive"].__set__
_set_kind = vars(Document)["kind"].__set__
_set_record = vars(_RecordDocument)["_record"].__set__


def build_tool_document(record: ToolRecord, *, has_examples: bool = False) -> Document:
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


def build_content_document(record: ToolRecord, kind: ItemKind, shown: str) -> Document:
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
        server=extract_server_name(record.key.server),
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
