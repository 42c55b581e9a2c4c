"""Lists of tools as clients see them, and the gateway's own tools that stand in them."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, Final, Generic, TypeGuard, TypeVar, get_args, get_origin

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.extensions import Extensions
from smart_mcp_proxy.models import ClientInput, ClientLine, Era, Hit, OnMessage, OnProgress, Role, ToolRecord
from smart_mcp_proxy.proxying.spellings import Kind, Spellings, abbreviate_value
from smart_mcp_proxy.raw_result import RawResult

ALWAYS_LOAD: Final[Mapping[str, Any]] = {"anthropic/alwaysLoad": True}
"""Has Claude Code show a tool from the first turn on; it keeps all others behind a search of its own.
Source: docs/design/protocol-surface.md#the-fixed-list"""


class Arguments(BaseModel):
    """Arguments of a tool: exact types, no unknown names."""

    model_config = ConfigDict(extra="forbid", strict=True)


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


class Registration(msgspec.Struct, frozen=True):
    """Changes that a search made in its caller's list of tools.

    Attributes:
        newly_registered: Listed names that entered it.
        evicted: Listed names that left it.
        pool: Size and limit of the caller's pool; None where it has none.
        toolset: Handle, address and remaining life of a list made for this search; None where none was made.
        reason: Why nothing entered the list of a caller that could expect it, as sentences; else empty.
    """

    newly_registered: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    pool: Mapping[str, int] | None = None
    toolset: Mapping[str, Any] | None = None
    reason: str = ""


class Caller(msgspec.Struct, frozen=True):
    """The caller of a tool.

    Attributes:
        principal: On whose behalf.
        meta: The request's `_meta` without connection keys.
        on_progress: Where progress goes; None if nobody asked for it.
        session: Its session; None on a pipe, which has one client, and where each request stands alone.
        tool_list: Its list of tools, where tools that it finds are registered; None where none are.
        on_message: Where the notifications go that come on the request's own exchange; see `CallRequest`.
        input: How it can be asked for more; None where it cannot be.
        line: The way back to it, for what servers ask and tell it meanwhile; None where there is none.
        extensions: What it declares of extensions; None where nothing.
        is_root: As of `CallRequest`, for what it asks of prompts and resources.
        era: Of its request.
        role: What it may do of what roles allow; None for whatever an agent may.
    """

    principal: str
    meta: Mapping[str, Any]
    on_progress: OnProgress | None
    session: str | None = None
    tool_list: "ToolList | None" = None
    on_message: OnMessage | None = None
    input: ClientInput | None = None
    line: ClientLine | None = None
    extensions: Extensions | None = None
    is_root: bool = False
    era: Era = "modern"
    role: Role | None = None


CallTool = Callable[[str, Mapping[str, Any], Caller], Coroutine[Any, Any, RawResult]]
"""Calls a tool: its name, its arguments, and on whose behalf."""


class ToolList(ABC):
    """Tools that one client sees, and the way to call them.

    Whatever does not wait is a look-up: nothing is sent or read for it.
    """

    @property
    @abstractmethod
    def instructions(self) -> str:
        """Instructions for a model at connection."""

    @property
    def list_ttl_ms(self) -> int:
        """Time for which a client may keep the list, in milliseconds."""
        return 0

    async def wait_listed(self) -> None:
        """Return when there is a list to show, if only an empty one.

        By default at once: what is missing still will be announced when it comes.
        """
        return

    @abstractmethod
    def definitions(self, era: Era) -> Sequence[Mapping[str, Any]]:
        """The tools as one era's `tools/list` shows them."""

    @abstractmethod
    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether a call of this name is taken, if only to be refused with the reason."""

    @abstractmethod
    def demands_headers(self, name: str) -> bool:
        """Whether a listed tool wants some arguments in HTTP headers too; the SDK has the rules."""

    @abstractmethod
    def may_need_line(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a call of a listed tool may lead to a server that knows each client."""

    @abstractmethod
    def state(self) -> Hashable:
        """Equal as long as the list is the same one; None while there is none to show."""

    @abstractmethod
    def hint(self, name: str) -> str:
        """Hint for a name that is not listed."""

    @abstractmethod
    def call(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> Coroutine[Any, Any, RawResult]:
        """The result of a listed tool."""

    async def register(
        self, found: Sequence[tuple[Hit, ToolRecord]], toolset: str | None, principal: str
    ) -> Registration:
        """Register the tools of one search for this client; by default none.

        Args:
            found: Hits with their tools, best first.
            toolset: Handle of a toolset to extend.
            principal: On whose behalf.

        Raises:
            RequestError: There is no such toolset.
        """
        return Registration()

    def note_called(self, record: ToolRecord) -> None:
        """Note that this client calls a tool, in whatever way; by default nothing is kept by use."""
        return


class AgentTool(ABC, Generic[ArgumentsT]):
    """Built-in tool of the gateway itself.

    Attributes:
        name: Under which it is listed.
        description: For a model; indented as the code around it.
        annotations: As MCP has them.
        output_schema: Of its structured content; None where nothing is promised.
        arguments: Their type.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    annotations: ClassVar[Mapping[str, bool]]
    output_schema: ClassVar[Mapping[str, Any] | None] = None
    arguments: type[ArgumentsT]

    @abstractmethod
    async def run(self, arguments: ArgumentsT, caller: Caller) -> RawResult:
        """The tool's result."""

    def definition(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        definition = {
            "name": self.name,
            "description": inspect.cleandoc(self.description),
            "inputSchema": _flat(msgspec.json.decode(_schema(self.arguments))),
            "annotations": dict(self.annotations),
        }
        if self.output_schema is not None:
            definition["outputSchema"] = self.output_schema
        return definition

    def call(self, arguments: Mapping[str, Any], caller: Caller) -> Coroutine[Any, Any, RawResult]:
        """The answer to a call with unchecked arguments.

        Raises:
            RequestError: The arguments do not fit this tool.
        """
        try:
            parsed = self.arguments.model_validate(dict(arguments))
        except ValidationError:
            parsed = self._parse_spellings(arguments)
        return self.run(parsed, caller)

    def may_need_line(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the call may lead to a server that knows each client; a look-up."""
        return False

    def _parse_spellings(self, arguments: Mapping[str, Any]) -> ArgumentsT:
        """Parse arguments once more, by the spellings that agents use."""
        try:
            return self.arguments.model_validate(_spellings(self.arguments).read(arguments))
        except ValidationError as exc:
            problems = exc.errors(include_url=False, include_context=True)
            raise RequestError(
                f"{self.name}: {'; '.join(_describe_problem(problem) for problem in problems[:3])}.",
                hint=f"Parameters: {', '.join(self._parameters())}.",
                code="invalid_arguments",
            ) from exc

    def _parameters(self) -> list[str]:
        schema = self.definition()["inputSchema"]
        return [f"{name} (required)" if name in schema.get("required", ()) else name for name in schema["properties"]]


_PLACE_CHARS = 100
"""Characters of a parameter's name in an error: a wrong one may have any length."""


@dataclass(eq=False, repr=False)
class OwnTools:
    """The gateway's own tools, the same for everybody.

    Attributes:
        tools: In the order in which they are listed.
        is_always_loaded: Whether clients that defer tools are asked to show these from the start.
        instructions: Instructions for a model at connection, as of now; a look-up.
        by_name: The tools.
    """

    tools: Sequence[AgentTool[Any]] = ()
    _: KW_ONLY
    is_always_loaded: bool = True
    instructions: Callable[[], str] = lambda: ""

    def __post_init__(self) -> None:
        self.by_name = {tool.name: tool for tool in self.tools}

    @cached_property
    def definitions(self) -> list[dict[str, Any]]:
        """The tools as `tools/list` shows them, in either era."""
        more = {"_meta": dict(ALWAYS_LOAD)} if self.is_always_loaded else {}
        return [tool.definition() | more for tool in self.tools]

    @cached_property
    def schemas(self) -> dict[str, Mapping[str, Any]]:
        """Their input schemas, by name."""
        return {definition["name"]: definition["inputSchema"] for definition in self.definitions}


def _describe_problem(problem: ErrorDetails) -> str:
    place = ".".join(str(part) for part in problem["loc"])[:_PLACE_CHARS]
    if problem["type"] == "missing":
        return f"{place} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{place} is not a parameter"
    words = problem["msg"].partition(" or instance of ")[0].replace("a valid dictionary", "an object")
    return f"{place} is {abbreviate_value(problem['input'])}: {words[:1].lower()}{words[1:]}"


@cache  # one per tool
def _spellings(model: type[BaseModel]) -> Spellings:
    """The spellings of a model's fields."""
    kinds: dict[str, Kind] = {}
    within: dict[str, Spellings] = {}
    for name, field in model.model_fields.items():
        # The type, or where it may be left out as null, the one beside None.
        types = [type_ for type_ in get_args(field.annotation) if inspect.isclass(type_)]
        model_ = next((type_ for type_ in (field.annotation, *types) if _is_model(type_)), None)
        if model_ is not None:
            within[name] = _spellings(model_)
        origin = get_origin(field.annotation)
        kinds[name] = "texts" if origin is list else "object" if origin is dict or model_ is not None else "value"
    return Spellings(kinds, within)


def _is_model(type_: object) -> TypeGuard[type[BaseModel]]:
    return inspect.isclass(type_) and issubclass(type_, BaseModel)


@cache
def _schema(arguments: type[Arguments]) -> bytes:
    """The JSON schema of these arguments, made once in a process; each tool changes its own copy."""
    return msgspec.json.encode(arguments.model_json_schema())


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as a client with few tokens and a simple parser wants it: no titles, no empty defaults.

    And no truth value for `additionalProperties`, which Google's SDK for Python reads as a schema. Other members are
    refused anyway, with their names.
    """
    properties = {}
    for name, value in schema.get("properties", {}).items():
        kept = {key: part for key, part in value.items() if key != "title"}
        if kept.get("default") in ("", [], {}, False):
            del kept["default"]
        if kept.get("additionalProperties") is True:
            kept["additionalProperties"] = {}
        properties[name] = kept
    flat: dict[str, Any] = {"type": "object", "properties": properties}
    if schema.get("required"):
        flat["required"] = schema["required"]
    return flat
