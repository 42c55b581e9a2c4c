"""Resources and prompts as a tool of the gateway's own lists and reads them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from smart_mcp_proxy.gateway.calls.requests import ContentRequest, ContentRequests
from smart_mcp_proxy.gateway.results.cleaning import fence
from smart_mcp_proxy.gateway.results.results import decode_members, may_link, rewrite_result
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.links import relink_prompt
from smart_mcp_proxy.models import ContentKind
from smart_mcp_proxy.proxying.query import Listed, PythonType

_parts = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class ContentReader:
    """Lists and reads what is seen in one part of the catalog, under the gateway's names.

    Args:
        contents: What is seen.
        asks: The one path to it.
        is_fenced: Whether text is marked as untrusted.
    """

    def __init__(self, contents: Contents, asks: ContentRequests, *, is_fenced: bool = False) -> None:
        self._contents = contents
        self._asks = asks
        self._is_fenced = is_fenced

    def prompts(self) -> list[Listed]:
        """All prompts."""
        return self._list_contents("prompts", "Prompt")

    def resources(self) -> list[Listed]:
        """All resources and resource templates."""
        return [*self._list_contents("resources", "Resource"), *self._list_contents("templates", "ResourceTemplate")]

    async def read_resource(self, uri: str, caller: Caller) -> bytes:
        """The result of `resources/read` as JSON text, under URIs that lead here."""
        target = await self._asks.find(self._contents, uri, caller.principal)
        raw = await self._asks.ask(ContentRequest("resources/read", target, {"uri": target.name}, {}, caller, uri=uri))
        uri_of = partial(self._contents.select_uri_builder(target), target.server)
        return (await rewrite_result(raw, partial(_present_resource, uri_of=uri_of, is_fenced=self._is_fenced))).text

    async def get_prompt(self, name: str, args: Mapping[str, str], caller: Caller) -> bytes:
        """The result of `prompts/get` as JSON text."""
        target = self._contents.prompt(name)
        params = {"name": target.name, "arguments": args} if args else {"name": target.name}
        raw = await self._asks.ask(ContentRequest("prompts/get", target, params, args, caller))
        if may_link(raw):
            raw = await rewrite_result(
                raw, partial(relink_prompt, uri_of=partial(self._contents.build_resource_uri, target.server))
            )
        return (await rewrite_result(raw, partial(_present_prompt, is_fenced=self._is_fenced))).text

    def _list_contents(self, kind: ContentKind, python_type: PythonType) -> list[Listed]:
        items = self._contents.of(kind).items()
        return [Listed(path, item.record.raw, python_type, item.server, item.name) for path, item in items]


def _present_resource(raw: bytes, uri_of: Callable[[str], str], *, is_fenced: bool) -> bytes:
    """The result of `resources/read` with URIs that lead to the gateway, fenced as tools' output is.

    Args:
        raw: JSON text, cleaned already where the settings ask for it.
        uri_of: The gateway's URI for one of the server's.
        is_fenced: Whether text stands between two lines that mark it as untrusted.

    Raises:
        msgspec.MsgspecError: It is no such result.
    """
    members = decode_members(raw)
    parts: list[dict[str, Any]] = list(_parts.decode(members.get("contents", b"[]")))
    for part in parts:
        if isinstance(uri := msgspec.json.decode(part.get("uri", b"null")), str):
            part["uri"] = uri_of(uri)
    contents = (
        [_fence_content_block({"type": "resource", "resource": part})["resource"] for part in parts]
        if is_fenced
        else parts
    )
    return msgspec.json.encode({**members, "contents": contents})


def _present_prompt(raw: bytes, *, is_fenced: bool) -> bytes:
    """The result of `prompts/get`, fenced as tools' output is.

    Raises:
        msgspec.MsgspecError: It is no such result.
    """
    if not is_fenced:
        return raw
    members = decode_members(raw)
    messages: list[dict[str, Any]] = list(_parts.decode(members.get("messages", b"[]")))
    for message in messages:
        message["content"] = _fence_content_block(message.get("content", {}))
    return msgspec.json.encode({**members, "messages": messages})


def _fence_content_block(block: Any) -> dict[str, msgspec.Raw]:
    """A content block with its text fenced."""
    [found] = _parts.decode(decode_members(fence(msgspec.json.encode({"content": [block]})))["content"])
    return found
