"""Lenient reading of servers' lists: an odd tool, prompt or resource costs only itself."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Final, Protocol, overload

import msgspec
from mcp_types import CLIENT_CAPABILITIES_META_KEY

from smart_mcp_proxy.conditions import LeftOut
from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.extensions import SHOWS_APPS, SKILLS, read_extension_settings
from smart_mcp_proxy.fastmcp_compat.message_guard import read_writable
from smart_mcp_proxy.models import ContentKind, Era
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.skills import skill_problem
from smart_mcp_proxy.upstream.protocol.session import see_log, timeout_error

ListRequest = Callable[[str, Mapping[str, Any]], Awaitable[RawResult]]
"""Sends one request and returns its result."""


class PageRequest(Protocol):
    """Sends one request and returns its result, in a time of its own."""

    async def __call__(self, method: str, params: Mapping[str, Any], *, timeout_s: float) -> RawResult:
        """Send the request `method`; returns its result."""


_MAX_PAGES: Final = 1_000
"""No honest server has more; a dishonest one must not fill our memory page by page."""
_MAX_ITEMS: Final = 50_000
"""Most items of one server; each is stored, indexed and held in memory. Source: docs/design/limits.md#listing"""
_MAX_PROBLEMS: Final = 100
"""Each is a line of the log; a page may hold millions of nulls."""
_SHOWN_CHARS: Final = 80
_JSON_NAMES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    str: "text",
    int: "a number",
    float: "a number",
    list: "a list",
}
_JSON_TYPES: Final = ("array", "boolean", "integer", "null", "number", "string")
"""Types that an error may name: its cause goes to agents, to whom nothing is repeated that nobody approved."""
_DECLARED: Final[Mapping[str, Any]] = {"_meta": {CLIENT_CAPABILITIES_META_KEY: {"extensions": SHOWS_APPS}}}
"""A list is for all clients, so it is asked for like one that can show interfaces: others may get fewer tools. In the
handshake era a session declares it for its calls, too: see `UpstreamSession`."""


class _Page(msgspec.Struct):
    """Page of a list; each kind's decoder renames its member to the field."""

    nextCursor: Any = None  # noqa: N815  (the protocol's name)


class _Kind(msgspec.Struct, frozen=True, dict=True):
    """Kind of list: tools, prompts, resources, resource templates or skills.

    Attributes:
        method: Asks for it.
        member: Of the result, holds the definitions.
        noun: For messages.
        identity: Of a definition, tells it from the others.
        problem: Says why a definition cannot be used, None if it can.
    """

    method: str
    member: str
    noun: str
    identity: str
    problem: Callable[[Any], str | None]

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Reads a page."""
        items = [("items", list[msgspec.Raw])]
        return msgspec.json.Decoder(
            msgspec.defstruct("Page", items, bases=(_Page,), rename={"items": self.member}, kw_only=True)
        )

    def is_offered(self, capabilities: Mapping[str, Any]) -> bool:
        """Whether a server that declares these capabilities has a list of it."""
        if self.member == "skills":
            return read_extension_settings(capabilities, SKILLS) is not None
        return capabilities.get(self.method.partition("/")[0]) is not None


class _Definitions(Sequence[Mapping[str, Any]]):
    """Definitions as they came, read one at a time: as objects they take ten times as much memory.

    Args:
        texts: JSON of each.
    """

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts = tuple(texts)

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if isinstance(index, slice):
            return _Definitions(self._texts[index])
        definition: Mapping[str, Any] = msgspec.json.decode(self._texts[index])
        return definition

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(self._texts)


class _Taken(msgspec.Struct):
    """Pages of one list as far as they were read.

    Attributes:
        definitions: Texts of the usable ones.
        problems: See `ToolListing`.
        left_out: Likewise.
        unusable: Likewise.
    """

    definitions: dict[str, bytes] = msgspec.field(default_factory=dict)
    problems: list[str] = msgspec.field(default_factory=list)
    left_out: list[LeftOut] = msgspec.field(default_factory=list)
    unusable: int = 0

    def leave_out(self, server: str, noun: str, name: str, place: str, cause: str) -> None:
        """Note a definition that cannot be used; one without a name has its place as that."""
        self.unusable += 1
        if self.unusable <= _MAX_PROBLEMS:
            self.left_out.append(LeftOut(name, cause))
            which = place if name == place else repr(name[:_SHOWN_CHARS])
            self.problems.append(f"Server '{server}': {noun} {which} is left out, {cause}.")
        elif self.unusable == _MAX_PROBLEMS + 1:
            self.problems.append(f"Server '{server}': more is left out; the first {_MAX_PROBLEMS} are named above.")


class ToolListing(msgspec.Struct, frozen=True):
    """A server's list.

    Attributes:
        definitions: The usable tools (prompts, resources, templates), each as the server sent it, in its order; names
            are unique.
        problems: What was left out and why, one sentence each.
        left_out: The same of single definitions, the first hundred of them.
        unusable: How many these are.
        folders: Of tools, the folders that the server was given, which their texts may name.
        keep: Says which other definitions stay although this list lacks them, as `Catalog.sync` asks.
    """

    definitions: Sequence[Mapping[str, Any]] = ()
    problems: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    unusable: int = 0
    folders: tuple[str, ...] | None = None
    keep: Callable[[Any, set[str]], set[str]] = lambda connection, gone: set()

    def read(self) -> "ToolListing":
        """The same with its definitions as objects, to be looked at again and again."""
        return msgspec.structs.replace(self, definitions=tuple(self.definitions))


async def fetch_tools(
    server: str, ask: ListRequest, *, timeout_s: float, era: Era = "handshake", folders: tuple[str, ...] | None = None
) -> ToolListing:
    """All pages of a server's tool list.

    Args:
        server: Configured name, for messages.
        ask: Sends one request.
        timeout_s: For all pages together.
        era: Of the session.
        folders: That the server was given.

    Raises:
        UpstreamError: A page cannot be had or read.
        UpstreamTimeoutError: It takes longer than `timeout_s`.
    """
    return msgspec.structs.replace(await _fetch(_TOOLS, server, ask, timeout_s, era), folders=folders)


async def fetch_contents(
    server: str, kind: ContentKind, ask: ListRequest, *, timeout_s: float, era: Era = "handshake"
) -> ToolListing:
    """Fetch all pages of prompts, resources or templates; arguments and errors as `fetch_tools`."""
    return await _fetch(_CONTENTS[kind], server, ask, timeout_s, era)


async def fetch_page(request: PageRequest, uri: str, *, timeout_s: float, era: Era = "handshake") -> RawResult:
    """Fetch a listed resource that is approved with its content; errors as of `fetch_tools`.

    Args:
        request: Sends one request.
        uri: Of the resource.
        timeout_s: How long it may take.
        era: Of the session.
    """
    declared = _DECLARED if era == "modern" else {}
    return await request("resources/read", {**declared, "uri": uri}, timeout_s=timeout_s)


async def _fetch(kind: _Kind, server: str, ask: ListRequest, timeout_s: float, era: Era) -> ToolListing:
    taken = _Taken()
    cursor, seen = None, set[str | int | float]()
    declared = _DECLARED if era == "modern" else {}
    try:
        async with asyncio.timeout(timeout_s):
            for _ in range(_MAX_PAGES):
                if (raw := await _ask_page(kind.method, ask, declared, cursor)) is None:
                    taken.problems.append(
                        f"Server '{server}' refuses its own cursor {cursor}; the {kind.noun}s up to there are kept."
                    )
                    break
                # In a thread: reading some thousand tools takes longer than a call of another server.
                cursor = await asyncio.to_thread(_read_page, kind, server, raw, taken)
                if cursor is None:
                    break
                if type(cursor) not in (str, int, float) or cursor in seen:
                    taken.problems.append(
                        f"Server '{server}' repeats its pages; the {kind.noun}s up to there are kept."
                    )
                    break
                seen.add(cursor)
            else:
                more = f"Server '{server}' has more than {_MAX_PAGES:,} pages of {kind.noun}s; the rest is left out."
                taken.problems.append(more)
    except TimeoutError:
        raise timeout_error(server, kind.method, timeout_s, was_sent=True) from None
    kept = _Definitions(taken.definitions.values())
    return ToolListing(kept, tuple(taken.problems), tuple(taken.left_out), taken.unusable)


async def _ask_page(method: str, ask: ListRequest, declared: Mapping[str, Any], cursor: Any) -> RawResult | None:
    """Fetch one page; None where a cursor that is a number is refused, as it came and as text."""
    if cursor is None:
        return await ask(method, declared)
    for form in (cursor,) if isinstance(cursor, str) else (cursor, str(cursor)):
        try:
            return await ask(method, {**declared, "cursor": form})
        except UpstreamError as exc:
            if isinstance(cursor, str) or exc.answer is None:
                raise
    return None


def _read_page(kind: _Kind, server: str, raw: RawResult, taken: _Taken) -> Any:
    """Add texts of usable definitions to `taken`, and the cause of each other.

    Returns:
        What the page names as the next one; None also where no more are taken.
    """
    sent = f"Server '{server}' sent a {kind.noun} list"
    try:
        page = kind.decoder.decode(raw.text)
    except msgspec.ValidationError as exc:
        hint = "The server is at fault: report it to whoever makes it, or update it."
        raise UpstreamError(f"{sent} without an array '{kind.member}'.", hint=hint) from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UpstreamError(f"{sent} that cannot be read: {exc}.", hint=see_log(server)) from exc
    for number, listed in enumerate(page.items):  # one by one: while the decoder works, no other thread does
        if len(taken.definitions) >= _MAX_ITEMS:
            more = _too_many(kind, server, len(page.items) - number, has_more=page.nextCursor is not None)
            taken.problems.append(more)
            return None
        problem, item = _usable(kind, listed)
        name = item.get(kind.identity) if isinstance(item, Mapping) else None
        if problem is None and name in taken.definitions:
            problem = f"its {kind.identity} is listed twice, the first one is kept"
        if problem is None:
            taken.definitions[str(name)] = bytes(listed)
        else:
            place = f"number {number + 1} of its page"
            taken.leave_out(server, kind.noun, place if name in (None, "") else str(name), place, problem)
    return page.nextCursor


def _too_many(kind: _Kind, server: str, left: int, *, has_more: bool) -> str:
    rest = f"at least {left:,} more" if has_more else f"{left:,} more"
    return (
        f"Server '{server}' lists more than {_MAX_ITEMS:,} {kind.noun}s; {rest} are left out. Have it offer fewer, or "
        "configure it several times with a part each."
    )


def _usable(kind: _Kind, raw: msgspec.Raw) -> tuple[str | None, Any]:
    """Why a definition cannot be used, None if it can; and the definition."""
    try:
        item = read_writable(bytes(raw))
    except (msgspec.DecodeError, RecursionError) as exc:
        return f"it cannot be read: {exc}", _surface(raw)
    return kind.problem(item), item


def _surface(raw: msgspec.Raw) -> Mapping[str, Any]:
    """The members of a definition that can be read, of one that cannot be read as a whole."""
    found = {}
    with suppress(msgspec.MsgspecError, RecursionError):
        for name, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items():
            with suppress(msgspec.MsgspecError, RecursionError):
                found[name] = msgspec.json.decode(value, type=str)
    return found


def _tool_problem(tool: Any) -> str | None:
    """Why a tool's definition cannot be used, None if it can."""
    if (problem := _item_problem("name", tool)) is not None:
        return problem
    if "inputSchema" not in tool:
        return "it has no inputSchema"
    schema = tool["inputSchema"]
    if not isinstance(schema, Mapping):
        return f"its inputSchema is {_JSON_NAMES[type(schema)]} instead of an object"
    if (kind := schema.get("type", "object")) != "object":
        named = repr(kind) if kind in _JSON_TYPES else "another one"
        return f"its inputSchema is of type {named} instead of 'object'"
    if (problem := _member_problem(tool)) is not None:
        return problem
    if not isinstance(tool.get("outputSchema"), Mapping | bool | None):
        return "its outputSchema is no schema"
    return None


def _item_problem(identity: str, item: Any) -> str | None:
    if not isinstance(item, Mapping):
        return "it is no object"
    if not isinstance(name := item.get(identity, ""), str):
        return f"its {identity} is no text"
    if not name:
        return f"it has no {identity}"
    return None


def _member_problem(item: Mapping[str, Any]) -> str | None:
    for key in ("title", "description"):
        if not isinstance(item.get(key), str | None):
            return f"its {key} is no text"
    for key in ("annotations", "_meta"):
        if not isinstance(item.get(key), Mapping | None):
            return f"its {key} is no object"
    return None


def _prompt_problem(prompt: Any) -> str | None:
    """Why a prompt's definition cannot be used, None if it can: clients refuse a whole list for one."""
    if (problem := _item_problem("name", prompt) or _member_problem(prompt)) is not None:
        return problem
    arguments = prompt.get("arguments")
    if arguments is not None and not (
        isinstance(arguments, list) and all(_item_problem("name", each) is None for each in arguments)
    ):
        return "its arguments are no list of named ones"
    return None


def _resource_problem(identity: str, resource: Any) -> str | None:
    """Why the definition of a resource or template cannot be used, None if it can."""
    if (problem := _item_problem(identity, resource) or _item_problem("name", resource)) is not None:
        return problem
    if not isinstance(resource.get("mimeType"), str | None):
        return "its mimeType is no text"
    return _member_problem(resource)


def is_listed(kind: ContentKind, capabilities: Mapping[str, Any]) -> bool:
    """Whether a server that declares these capabilities has a list of a kind."""
    return _CONTENTS[kind].is_offered(capabilities)


_TOOLS = _Kind("tools/list", "tools", "tool", "name", _tool_problem)
_CONTENTS: dict[ContentKind, _Kind] = {
    "prompts": _Kind("prompts/list", "prompts", "prompt", "name", _prompt_problem),
    "resources": _Kind("resources/list", "resources", "resource", "uri", partial(_resource_problem, "uri")),
    "templates": _Kind(
        "resources/templates/list",
        "resourceTemplates",
        "resource template",
        "uriTemplate",
        partial(_resource_problem, "uriTemplate"),
    ),
    "skills": _Kind("skills/list", "skills", "skill", "uri", skill_problem),
}
