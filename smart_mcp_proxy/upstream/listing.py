"""A server's tool list, read leniently: one odd tool costs that tool, never the list."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.upstream.link import timeout_error

__all__ = ["Ask", "ToolListing", "fetch_tools"]

Ask = Callable[[str, Mapping[str, Any]], Awaitable[bytes]]
"""Sends one request and returns its result as JSON text."""

_MAX_PAGES: Final = 1_000
"""No honest server has more; a dishonest one must not fill our memory page by page."""
_SHOWN_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class ToolListing:
    """What a server lists.

    Attributes:
        definitions: The usable tools, each as the server sent it, in its order; names are unique.
        problems: What was left out and why, one sentence each.
    """

    definitions: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()


async def fetch_tools(server: str, ask: Ask, *, timeout_s: float) -> ToolListing:
    """All pages of a server's tool list.

    Args:
        server: Configured name, for messages.
        ask: Sends one request.
        timeout_s: For all pages together.

    Raises:
        UpstreamError: A page cannot be had or read.
        UpstreamTimeoutError: It takes longer than `timeout_s`.
    """
    definitions: dict[str, Mapping[str, Any]] = {}
    problems: list[str] = []
    cursor, seen = None, set[str]()
    try:
        async with asyncio.timeout(timeout_s):
            for _ in range(_MAX_PAGES):
                text = await ask("tools/list", {} if cursor is None else {"cursor": cursor})
                # In a thread: reading some thousand tools takes longer than a call of another server.
                cursor = await asyncio.to_thread(_read_page, server, text, definitions, problems)
                if cursor is None:
                    break
                if not isinstance(cursor, str) or cursor in seen:
                    problems.append(f"Server '{server}' repeats its pages; the tools up to there are kept.")
                    break
                seen.add(cursor)
            else:
                problems.append(f"Server '{server}' has more than {_MAX_PAGES:,} pages of tools; the rest is left out.")
    except TimeoutError:
        raise timeout_error(server, "tools/list", timeout_s, was_sent=True) from None
    return ToolListing(tuple(definitions.values()), tuple(problems))


class _Page(msgspec.Struct):
    tools: list[msgspec.Raw]
    nextCursor: Any = None  # noqa: N815  (the protocol's name)


_page = msgspec.json.Decoder(_Page)


def _read_page(server: str, text: bytes, definitions: dict[str, Mapping[str, Any]], problems: list[str]) -> Any:
    """Adds the usable tools of one page to `definitions`, and a sentence to `problems` for each of the others.

    Returns:
        What the page names as the next one.
    """
    try:
        page = _page.decode(text)
    except msgspec.ValidationError as exc:
        raise UpstreamError(f"Server '{server}' sent a tool list without an array 'tools'.") from exc
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UpstreamError(f"Server '{server}' sent a tool list that cannot be read: {exc}.") from exc
    for raw in page.tools:  # one by one: while the decoder works, no other thread does
        problem, tool = _usable(raw)
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if problem is None and name in definitions:
            problem = "its name is listed twice, the first one is kept"
        if problem is None:
            definitions[str(name)] = tool
        else:
            problems.append(f"Server '{server}': tool {str(name)[:_SHOWN_CHARS]!r} is left out, {problem}.")
    return page.nextCursor


def _usable(raw: msgspec.Raw) -> tuple[str | None, Any]:
    """Why a definition cannot be used, None if it can; and the definition."""
    try:
        tool = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        return f"it cannot be read: {exc}", None
    return _problem(tool), tool


def _problem(tool: Any) -> str | None:
    """Why a definition cannot be used, None if it can."""
    if not isinstance(tool, Mapping):
        return "it is no object"
    if not isinstance(name := tool.get("name"), str) or not name:
        return "it has no name"
    schema = tool.get("inputSchema")
    if not isinstance(schema, Mapping):
        return "its inputSchema is no object"
    if schema.get("type", "object") != "object":
        return f"its inputSchema is of type {str(schema['type'])[:_SHOWN_CHARS]!r} instead of 'object'"
    for key, kind in (("title", str), ("description", str), ("annotations", Mapping), ("_meta", Mapping)):
        if tool.get(key) is not None and not isinstance(tool[key], kind):
            return f"its {key} has the wrong type"
    if not isinstance(tool.get("outputSchema"), Mapping | bool | None):
        return "its outputSchema is no schema"
    return None
