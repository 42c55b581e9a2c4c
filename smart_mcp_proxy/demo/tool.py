"""Parts of a demo server: tools, their parameters, the check of arguments."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

Schema = dict[str, Any]
_Run = TypeVar("_Run", bound=Callable[..., str | dict[str, Any]])

_PYTHON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
}


def build_schema(kind: str, description: str, **keywords: Any) -> Schema:
    """The schema of a value of a JSON type; a parameter with a `default` may be left out."""
    return {"type": kind, "description": description, **keywords}


string = partial(build_schema, "string")
integer = partial(build_schema, "integer")
number = partial(build_schema, "number")
boolean = partial(build_schema, "boolean")
array = partial(build_schema, "array")


def build_object_schema(properties: Mapping[str, Schema]) -> Schema:
    """The schema of an object with these properties, of which those without a `default` are required."""
    schema: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    required = [name for name, each in properties.items() if "default" not in each]
    return {**schema, "required": required} if required else schema


class Tool(NamedTuple):
    """Tool of a demo server: its definition, and the function that does the work.

    Attributes:
        run: Called with the arguments by name (and first the server's state, where it has one). Its docstring tells
            the model what it does. Returns a text, or a dict for `structuredContent`. A ValueError or
            ArithmeticError is the tool's failure.
        title: Display name.
        parameters: Schema of each parameter.
        output: Schema of each property of the returned dict; None where a text is returned.
        effect: What it may do to the server's data.
    """

    run: Callable[..., str | dict[str, Any]]
    title: str
    parameters: Mapping[str, Schema]
    output: Mapping[str, Schema] | None
    effect: Literal["read", "write", "destructive"]

    def definition(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        annotations: dict[str, Any] = {"readOnlyHint": self.effect == "read", "openWorldHint": False}
        if self.effect != "read":
            annotations["destructiveHint"] = self.effect == "destructive"
        definition = {
            "name": self.run.__name__,
            "title": self.title,
            "description": self.run.__doc__,
            "inputSchema": build_object_schema(self.parameters),
            "annotations": annotations,
        }
        if self.output is not None:
            definition["outputSchema"] = build_object_schema(self.output)
        return definition

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of a call, defaults filled in.

        Raises:
            ValueError: An argument is missing, unknown, of another type or out of its range.
        """
        if unknown := sorted(set(arguments) - set(self.parameters)):
            known = ", ".join(self.parameters) or "none"
            raise ValueError(f"{self.run.__name__} has no parameter '{unknown[0]}'. Its parameters: {known}.")
        bound = {}
        for name, schema in self.parameters.items():
            if name in arguments:
                _check(name, arguments[name], schema)
                bound[name] = arguments[name]
            elif "default" in schema:
                bound[name] = schema["default"]
            else:
                raise ValueError(f"{self.run.__name__} needs '{name}': {schema['description']}.")
        return bound


class Server:
    """Demo server: its instructions, tools by name and initial state.

    Args:
        instructions: Purpose of the server, for the model.
        new_state: Makes what the server remembers while it runs; without it the tools get no state.
    """

    def __init__(self, instructions: str, new_state: Callable[[], object] = lambda: None) -> None:
        self.instructions = instructions
        self.new_state = new_state
        self.tools: dict[str, Tool] = {}

    def tool(
        self,
        title: str,
        output: Mapping[str, Schema] | None = None,
        effect: Literal["read", "write", "destructive"] = "read",
        /,
        **parameters: Schema,
    ) -> Callable[[_Run], _Run]:
        """Decorate a function that is to be a tool; the arguments are those of `Tool`."""

        def add(run: _Run) -> _Run:
            self.tools[run.__name__] = Tool(run, title, parameters, output, effect)
            return run

        return add


def _check(name: str, value: object, schema: Schema) -> None:
    kind = schema["type"]
    is_of_type = isinstance(value, _PYTHON_TYPES[kind]) and (kind == "boolean") == isinstance(value, bool)
    if not is_of_type or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"'{name}' is {value!r:.60}. Expected: {kind}.")
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"'{name}' is {value!r}. Expected one of: {', '.join(schema['enum'])}.")
    if isinstance(value, int | float):
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        if not low <= value <= high:
            raise ValueError(f"'{name}' is {value}. Expected a value from {low} to {high}.")
    elif isinstance(value, str) and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf):
        raise ValueError(f"'{name}' has a length of {len(value)}, outside of what the schema of the tool allows.")
