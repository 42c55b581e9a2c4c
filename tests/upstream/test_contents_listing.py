"""Lists of prompts, resources and templates, read as leniently as those of tools."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import ContentKind
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream.listing import fetch_contents

pytestmark = pytest.mark.anyio

KINDS: list[tuple[ContentKind, str, str, str]] = [
    ("prompts", "prompts/list", "prompts", "name"),
    ("resources", "resources/list", "resources", "uri"),
    ("templates", "resources/templates/list", "resourceTemplates", "uriTemplate"),
]


class Server:
    """Answers page after page, and notes what it was asked."""

    def __init__(self, *pages: Mapping[str, Any]) -> None:
        self.pages = list(pages)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def ask(self, method: str, params: Mapping[str, Any]) -> RawResult:
        self.asked.append((method, params))
        return RawResult(json.dumps(self.pages.pop(0)).encode())


@pytest.mark.parametrize(("kind", "method", "member", "identity"), KINDS)
async def test_all_pages_are_read_and_odd_items_left_out(
    kind: ContentKind, method: str, member: str, identity: str
) -> None:
    """Each odd one costs itself and a sentence; the first of two with one identity stays."""
    good = [{identity: f"x{number}", "name": f"x{number}", "future": {"é": number}} for number in range(3)]
    odd = [7, {}, {"name": "n", identity: 3}, good[0] | {"title": "again"}, good[1] | {identity: "y", "_meta": []}]
    server = Server({member: [*good[:2], *odd], "nextCursor": "c"}, {member: good[2:]})
    listing = await fetch_contents("s", kind, server.ask, timeout_s=60)
    assert list(listing.definitions) == good
    assert len(listing.problems) == len(odd)
    assert server.asked == [(method, {}), (method, {"cursor": "c"})]


@pytest.mark.parametrize("arguments", [{}, [7], [{"name": ""}], ["name"]])
async def test_a_prompt_with_odd_arguments_is_left_out(arguments: Any) -> None:
    """Clients refuse a whole list for one of these."""
    server = Server({"prompts": [{"name": "p", "arguments": arguments}, {"name": "q", "arguments": None}]})
    listing = await fetch_contents("s", "prompts", server.ask, timeout_s=60)
    assert [each["name"] for each in listing.definitions] == ["q"]


@pytest.mark.parametrize(("kind", "method", "member", "identity"), KINDS)
async def test_a_list_without_its_array_is_the_servers_fault(
    kind: ContentKind, method: str, member: str, identity: str
) -> None:
    """The message names the member that is missing."""
    with pytest.raises(UpstreamError, match=f"'{member}'"):
        await fetch_contents("s", kind, Server({"tools": []}).ask, timeout_s=60)
