"""Parts of a demo server: tools, their parameters, the check of arguments."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Schema = dict[str, Any]

_PYTHON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "string": str,
}


def string(description: str, **keywords: Any) -> Schema:
    """The schema of a text; a parameter with a `default` may be left out."""
    return {"type": "string", "description": description, **keywords}


def integer(description: str, **keywords: Any) -> Schema:
    """The schema of a whole number; a parameter with a `default` may be left out."""
    return {"type": "integer", "description": description, **keywords}


def number(description: str, **keywords: Any) -> Schema:
    """The schema of a number; a parameter with a `default` may be left out."""
    return {"type": "number", "description": description, **keywords}


def boolean(description: str, **keywords: Any) -> Schema:
    """The schema of a yes or no; a parameter with a `default` may be left out."""
    return {"type": "boolean", "description": description, **keywords}


def array(description: str, of: Literal["string", "number", "integer"], **keywords: Any) -> Schema:
    """The schema of a list of simple values; a parameter with a `default` may be left out."""
    return {"type": "array", "description": description, "items": {"type": of}, **keywords}


def items(description: str, properties: Mapping[str, Schema]) -> Schema:
    """The schema of a list of objects that all have these properties."""
    return {"type": "array", "description": description, "items": _object(properties, tuple(properties))}


def _object(properties: Mapping[str, Schema], required: Sequence[str]) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


class Tool(NamedTuple):
    """Tool of a demo server: its definition, and the function that does the work.

    Attributes:
        run: Called with the arguments by name (and first the server's state, where it has one). Returns a text, or
            a dict for `structuredContent`. A ValueError or ArithmeticError is the tool's failure.
        title: Display name.
        description: What it does, for the model that has to choose.
        parameters: Schema of each parameter.
        output: Schema of each property of the returned dict; None where a text is returned.
        effect: What it may do to the server's data.
    """

    run: Callable[..., str | dict[str, Any]]
    title: str
    description: str
    parameters: Mapping[str, Schema] = {}
    output: Mapping[str, Schema] | None = None
    effect: Literal["read", "write", "destructive"] = "read"

    @property
    def name(self) -> str:
        """The tool's name: that of its function."""
        return self.run.__name__

    def definition(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        required = [name for name, schema in self.parameters.items() if "default" not in schema]
        annotations: dict[str, Any] = {"readOnlyHint": self.effect == "read", "openWorldHint": False}
        if self.effect != "read":
            annotations["destructiveHint"] = self.effect == "destructive"
        definition = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": _object(self.parameters, required),
            "annotations": annotations,
        }
        if self.output is not None:
            definition["outputSchema"] = _object(self.output, tuple(self.output))
        return definition

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of a call, defaults filled in.

        Raises:
            ValueError: An argument is missing, unknown, of another type or out of its range.
        """
        if unknown := sorted(set(arguments) - set(self.parameters)):
            known = ", ".join(self.parameters) or "none"
            raise ValueError(f"{self.name} has no parameter '{unknown[0]}'. Its parameters: {known}.")
        bound = {}
        for name, schema in self.parameters.items():
            if name in arguments:
                _check(name, arguments[name], schema)
                bound[name] = arguments[name]
            elif "default" in schema:
                bound[name] = schema["default"]
            else:
                raise ValueError(f"{self.name} needs '{name}': {schema['description']}.")
        return bound


class Server(NamedTuple):
    """Demo server: its instructions, tools and initial state.

    Attributes:
        instructions: What it is for, for the model.
        tools: In the order of the list.
        new_state: Makes what the server remembers while it runs; without it the tools get no state.
    """

    instructions: str
    tools: tuple[Tool, ...]
    new_state: Callable[[], object] = lambda: None


def _check(name: str, value: object, schema: Schema) -> None:
    _check_type(name, value, schema["type"])
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"'{name}' is {value!r}. Expected one of: {', '.join(schema['enum'])}.")
    if isinstance(value, int | float):
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        if not low <= value <= high:
            raise ValueError(f"'{name}' is {value}. Expected a value from {low} to {high}.")
    if isinstance(value, str | list):
        size, limit = len(value), schema.get("maxLength") or schema.get("maxItems") or math.inf
        if not (schema.get("minLength") or schema.get("minItems") or 0) <= size <= limit:
            raise ValueError(f"'{name}' has a length of {size}, outside of what the schema of the tool allows.")
    if isinstance(value, list):
        for position, item in enumerate(value):
            _check_type(f"{name}[{position}]", item, schema["items"]["type"])


def _check_type(name: str, value: object, expected: str) -> None:
    is_of_type = isinstance(value, _PYTHON_TYPES[expected]) and (expected == "boolean") == isinstance(value, bool)
    if not is_of_type or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"'{name}' is {value!r:.60}. Expected: {expected}.")
