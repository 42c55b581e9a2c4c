"""Form to try a tool with, made from its input schema, and the arguments typed into it."""

import hashlib
import json
from typing import Any, Final, NamedTuple

import msgspec

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.web.page.hidden import has_hidden
from smart_mcp_proxy.web.page.visit import Form

WHOLE: Final = "json"
"""Field of all arguments as JSON, which counts in place of the others where something is in it."""
MOST_FIELDS: Final = 60
_KINDS: Final = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_LONG_WORDS: Final = ("body", "content", "text", "query", "message", "description", "code", "sql")
"""In the name of a property whose value often has several lines."""


class Field(NamedTuple):
    """Form field of an argument.

    Attributes:
        name: Of the form's field.
        key: The argument's own name.
        kind: text, long, integer, number, boolean, choice or json.
        is_required: Whether the schema asks for it.
        description: As the server sent it.
        choices: Of a choice, as JSON.
        default: As it would be typed; empty where it hides something.
    """

    name: str
    key: str
    kind: str
    is_required: bool
    description: str
    choices: tuple[str, ...] = ()
    default: str = ""


def build_form_fields(schema: Any) -> tuple[Field, ...]:
    """The fields of a tool's form; of very many arguments the first ones, required ones in front."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ()
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    found = [_build_field(key, each, is_required=key in names) for key, each in properties.items()]
    return tuple(sorted(found, key=lambda field: not field.is_required)[:MOST_FIELDS])


def _build_field(key: str, schema: Any, *, is_required: bool) -> Field:
    schema = schema if isinstance(schema, dict) else {}
    choices = schema.get("enum")
    kind = _KINDS.get(str(schema.get("type")), "json")
    if isinstance(choices, list) and choices:
        kind = "choice"
    elif kind == "text" and any(word in key.casefold() for word in _LONG_WORDS):
        kind = "long"
    description = schema.get("description")
    default = schema.get("default")
    typed = "" if default is None else default if isinstance(default, str) else json.dumps(default)
    return Field(
        # Not the key itself, which may be any text, nor its place, which changes with the definition.
        name=f"arg-{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:12]}",
        key=key,
        kind=kind,
        is_required=is_required,
        description=description if isinstance(description, str) else "",
        choices=tuple(json.dumps(each) for each in choices) if kind == "choice" else (),
        default="" if has_hidden(typed) else typed,  # it would be sent unseen
    )


def parse_form_arguments(form: Form, fields: tuple[Field, ...]) -> dict[str, Any]:
    """The arguments of a form that was sent; what is left empty is not sent.

    Raises:
        RequestError: A value is none of its argument's type.
    """
    whole = form.text(WHOLE).strip()
    if whole:
        value = parse_typed_json("The arguments", whole, "Put texts into quotation marks.")
        if not isinstance(value, dict):
            raise RequestError("The arguments are no JSON object.", hint='Write them as {"name": value}.')
        return value
    typed = ((field, form.text(field.name)) for field in fields)
    return {field.key: _parse_value(field, text) for field, text in typed if text != ""}


def _parse_value(field: Field, text: str) -> Any:
    if field.kind in ("text", "long"):
        return text
    value = parse_typed_json(f"{field.key[:60]!r}", text, "Put texts into quotation marks.")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if field.kind == "integer" and not (is_number and isinstance(value, int)):
        raise RequestError(f"{field.key[:60]!r} is {text[:40]!r}.", hint="Type a whole number.")
    if field.kind == "number" and not is_number:
        raise RequestError(f"{field.key[:60]!r} is {text[:40]!r}.", hint="Type a number.")
    return value


def parse_typed_json(what: str, text: str, hint: str) -> Any:
    """The value that somebody typed as JSON; nothing that JSON has not, such as NaN or half a character.

    Raises:
        RequestError: It is none.
    """
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise RequestError(f"{what}: {text[:40]!r} is no JSON: {exc}.", hint=hint) from exc
