"""The answers to list and info: definitions as JSON inside one embedded resource."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from smart_mcp_proxy.errors import RequestError, ToolNotFoundError
from smart_mcp_proxy.proxying.metadata import ProxyType, proxy_meta
from smart_mcp_proxy.proxying.operation import Filter, Operation

__all__ = ["Listed", "PythonType", "embedded", "find_listed", "info_result", "list_result", "proxy_uri", "tags_of"]

PythonType = Literal["Tool", "Resource", "ResourceTemplate", "Prompt"]

PAGE_BYTES = 1 << 20
"""A page ends here even where no limit is asked for: no agent reads more, and many clients take no more at once."""
NAMES_SHOWN = 5
_LISTED_TYPES: Mapping[ProxyType, str] = {
    "tool": "Tool",
    "resource": "Resource | ResourceTemplate",
    "prompt": "Prompt",
}
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Listed:
    """One definition, to be listed under a name of ours.

    Attributes:
        path: The name under which it is listed and called; of a resource the URI, of a template the URI template.
        raw: The definition as UTF-8 JSON text of one object.
        python_type: What it is.
        server: The server that it is from; empty where there is only one.
    """

    path: str
    raw: bytes
    python_type: PythonType
    server: str = ""

    def shown(self) -> bytes:
        """The definition under its listed name; nothing else of it is touched."""
        key = {"Resource": "uri", "ResourceTemplate": "uriTemplate"}.get(self.python_type, "name")
        # A copy: the members refer to the text they were read from.
        members: dict[str, Any] = dict(_members.decode(self.raw))
        members[key] = self.path
        return msgspec.json.encode(members)


def tags_of(definition: Mapping[str, Any]) -> frozenset[str]:
    """The tags of a definition, wherever a server writes them: `tags`, or `_meta` of FastMCP's servers."""
    meta = definition.get("_meta")
    places: list[Any] = [definition]
    if isinstance(meta, Mapping):
        places += [meta, meta.get("fastmcp"), meta.get("_fastmcp")]
    lists = [place.get("tags") for place in places if isinstance(place, Mapping)]
    return frozenset(tag for tags in lists if isinstance(tags, list) for tag in tags if isinstance(tag, str))


def list_result(operation: Operation, listed: Iterable[Listed]) -> bytes:
    """One page of the filtered entries, by path; pages neither overlap nor leave gaps."""
    wanted = sorted((each for each in listed if _fits(operation.filter, each)), key=lambda each: each.path)
    page: list[bytes] = []
    size, last, has_more = 0, "", False
    for place, each in enumerate(wanted):
        if place < operation.offset or (operation.cursor and each.path <= operation.cursor):
            continue
        shown = each.shown()
        has_more = len(page) == operation.limit or (bool(page) and size + len(shown) > PAGE_BYTES)
        if has_more:
            break
        page.append(shown)
        size, last = size + len(shown), each.path
    meta = proxy_meta(
        proxyAction="list",
        proxyType=operation.type,
        pythonType=_LISTED_TYPES[operation.type],
        many=True,
        totalCount=len(wanted),
        nextCursor=last if has_more else None,
    )
    return embedded(f"proxy:list/{operation.type}", b"[" + b",".join(page) + b"]", meta)


def info_result(operation: Operation, found: Listed) -> bytes:
    """One definition."""
    meta = proxy_meta(
        proxyAction="info",
        proxyType=operation.type,
        proxyPath=operation.path,
        pythonType=found.python_type,
        many=False,
    )
    return embedded(proxy_uri(operation), found.shown(), meta)


def find_listed(type: ProxyType, path: str, listed: Sequence[Listed]) -> Listed:
    """The one whose listed name or URI is `path`, else the one that calls itself so, or so on its server.

    Raises:
        RequestError: Nothing has that name, or more than one has.
    """
    for each in listed:
        if each.path == path:
            return each
    named = [each for each in listed if path in _own_names(each)]
    if len(named) == 1:
        return named[0]
    if named:
        paths = ", ".join(each.path for each in named[:NAMES_SHOWN])
        raise RequestError(f"{len(named)} of them are named {path[:200]!r}.", hint=f"Use one of: {paths}.")
    raise not_found(type, path)


def _own_names(listed: Listed) -> tuple[str, str]:
    """An entry's own name, and the same with its server before it."""
    name = msgspec.json.decode(listed.raw).get("name")
    return str(name), f"{listed.server}:{name}"


def not_found(type: ProxyType, path: str) -> RequestError:
    """The error for a path that leads nowhere."""
    message, hint = f"No {type} is named {path[:200]!r}.", f"Action 'list' with type '{type}' shows them."
    if type == "tool":
        return ToolNotFoundError(message, hint=hint)
    return RequestError(message, hint=hint, code=f"{type}_not_found")


def proxy_uri(operation: Operation) -> str:
    """The URI of an answer that is no resource of its own."""
    return f"proxy:{operation.action}/{operation.type}/{quote(operation.path, safe='')}"


def embedded(uri: str, text: bytes, meta: Mapping[str, Any], *, is_error: bool = False) -> bytes:
    """A tool result whose one block is an embedded resource that holds JSON text."""
    resource = {"uri": uri, "mimeType": "application/json", "text": text.decode()}
    block = {"type": "resource", "resource": resource, "_meta": meta}
    return msgspec.json.encode({"content": [block], "isError": is_error})


def _fits(wanted: Filter, listed: Listed) -> bool:
    return (
        listed.path.startswith(wanted.prefix)
        and wanted.server in ("", listed.server)
        and (not wanted.tags or not wanted.tags.isdisjoint(tags_of(msgspec.json.decode(listed.raw))))
    )
