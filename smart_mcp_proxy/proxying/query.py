"""The answers to list and info: definitions as JSON inside one embedded resource."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from smart_mcp_proxy.errors import RequestError, ToolNotFoundError
from smart_mcp_proxy.proxying.metadata import ProxyType, proxy_meta
from smart_mcp_proxy.proxying.operation import Filter, Operation

PythonType = Literal["Tool", "Resource", "ResourceTemplate", "Prompt"]

PAGE_BYTES = 1 << 20
"""A page ends here even where no limit is asked for: no agent reads more, and many clients take no more at once."""
NAMES_SHOWN = 10
"""Most names shown of those that a name may mean."""
_LISTED_TYPES: Mapping[ProxyType, str] = {"tool": "Tool", "resource": "Resource | ResourceTemplate", "prompt": "Prompt"}
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Listed(msgspec.Struct, frozen=True):
    """Definition that is listed under a name of ours.

    Attributes:
        path: The name under which it is listed and called; of a resource the URI, of a template the URI template.
        raw: The definition as UTF-8 JSON text of one object.
        python_type: What it is.
        server: The server that it is from; empty where there is only one.
        own: Its name, URI or URI template on that server; empty where that is `path`.
    """

    path: str
    raw: bytes
    python_type: PythonType
    server: str = ""
    own: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it goes by, the surest first: the listed one, `server:name`, its own."""
        return (self.path, f"{self.server}:{self.own}", self.own) if self.own else (self.path,)

    def encode_definition(self) -> bytes:
        """The definition under its listed name; nothing else of it is touched."""
        key = {"Resource": "uri", "ResourceTemplate": "uriTemplate"}.get(self.python_type, "name")
        # A copy: the members refer to the text they were read from.
        members: dict[str, Any] = dict(_members.decode(self.raw))
        members[key] = self.path
        return msgspec.json.encode(members)


def collect_tags(definition: Mapping[str, Any]) -> frozenset[str]:
    """The tags of a definition, wherever a server writes them: `tags`, or `_meta` of FastMCP's servers."""
    meta = definition.get("_meta")
    places: list[Any] = [definition]
    if isinstance(meta, Mapping):
        places += [meta, meta.get("fastmcp"), meta.get("_fastmcp")]
    lists = [place.get("tags") for place in places if isinstance(place, Mapping)]
    return frozenset(tag for tags in lists if isinstance(tags, list) for tag in tags if isinstance(tag, str))


def list_result(operation: Operation, listed: Iterable[Listed]) -> bytes:
    """Build the result of `list`: one page of the filtered entries, sorted by path.

    Pages neither overlap nor leave gaps.
    """
    wanted = sorted((each for each in listed if _fits(operation.filter, each)), key=lambda each: each.path)
    page: list[bytes] = []
    size, last, has_more = 0, "", False
    for place, each in enumerate(wanted):
        if place < operation.offset or (operation.cursor and each.path <= operation.cursor):
            continue
        shown = each.encode_definition()
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
    return build_embedded_result(f"proxy:list/{operation.type}", b"[" + b",".join(page) + b"]", meta)


def info_result(operation: Operation, found: Listed) -> bytes:
    """Build the result of `info`: one definition."""
    meta = proxy_meta(
        proxyAction="info", proxyType=operation.type, proxyPath=operation.path, pythonType=found.python_type, many=False
    )
    return build_embedded_result(proxy_uri(operation), found.encode_definition(), meta)


def find_listed(type: ProxyType, path: str, listed: Sequence[Listed]) -> Listed:
    """The one that goes by `path`, by the surest kind of name that any has.

    Raises:
        RequestError: Nothing has that name, or more than one has.
    """
    for place in range(3):
        if found := [each for each in listed if path in each.names[place : place + 1]]:
            return _only(type, path, found)
    # The name of a resource is for people; it is found by it where no URI is meant.
    return _only(type, path, [each for each in listed if path in _titles(each)])


def _titles(listed: Listed) -> tuple[str, str]:
    name = msgspec.json.decode(listed.raw).get("name")
    return str(name), f"{listed.server}:{name}"


def _only(type: ProxyType, path: str, found: Sequence[Listed]) -> Listed:
    if not found:
        raise not_found(type, path)
    if len(found) > 1:
        raise ambiguous(type, path, [(each.server, each.path) for each in found])
    return found[0]


def ambiguous(type: ProxyType, name: str, found: Sequence[tuple[str, str]]) -> RequestError:
    """The error for a name that several have.

    Args:
        type: Of what.
        name: As it was asked for.
        found: Server and unmistakable name of each.
    """
    servers = [*dict.fromkeys(server for server, _ in found if server)]
    names = [name for _, name in found]
    if len(servers) > 1:
        message = f"{len(servers)} servers have a {type} {name[:200]!r}: {_format_names(servers)}."
    else:
        message = f"{len(found)} {type}s are named {name[:200]!r}."
    return RequestError(
        message,
        hint=f"Use one of: {_format_names(names)}.",
        code="ambiguous_name",
        data={"did_you_mean": names[:NAMES_SHOWN]},
    )


def _format_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def not_found(type: ProxyType, path: str) -> RequestError:
    """The error for a path that leads nowhere."""
    message, hint = f"No {type} is named {path[:200]!r}.", f"Action 'list' with type '{type}' shows them."
    if type == "tool":
        return ToolNotFoundError(message, hint=hint)
    return RequestError(message, hint=hint, code=f"{type}_not_found")


def proxy_uri(operation: Operation) -> str:
    """The URI of an answer that is no resource of its own."""
    return f"proxy:{operation.action}/{operation.type}/{quote(operation.path, safe='')}"


def build_embedded_result(uri: str, text: bytes, meta: Mapping[str, Any], *, is_error: bool = False) -> bytes:
    """A tool result whose one block is an embedded resource that holds JSON text."""
    resource = {"uri": uri, "mimeType": "application/json", "text": text.decode()}
    block = {"type": "resource", "resource": resource, "_meta": meta}
    return msgspec.json.encode({"content": [block], "isError": is_error})


def _fits(wanted: Filter, listed: Listed) -> bool:
    if wanted.server not in ("", listed.server) or not any(name.startswith(wanted.prefix) for name in listed.names):
        return False
    if not wanted.tags and not wanted.all_tags:
        return True
    tags = collect_tags(msgspec.json.decode(listed.raw))
    return (not wanted.tags or not wanted.tags.isdisjoint(tags)) and wanted.all_tags <= tags
