"""What a person finds who opens the gateway's address in a browser."""

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import httpx2
import pytest
from markupsafe import escape
from plain_http import plain_client
from transports import odd_servers, opened_gateway, served

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("pages")]

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
VOID = {"meta", "br", "hr"}


class Balanced(HTMLParser):
    """Notes whatever refers to another place, and fails on an element that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "link", "img", "iframe", "form", "object"}
        self.references += [value or "" for name, value in attrs if name in {"href", "src", "action"}]
        self.ids |= {value or "" for name, value in attrs if name == "id"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser at a gateway that asks agents for a token."""
    folder: Path = tmp_path_factory.mktemp("pages")
    async with (
        opened_gateway(folder / "data", odd_servers(folder / "ledger")) as gateway,
        served(gateway, token="a-token") as base,
        plain_client(base_url=base, headers=BROWSER) as client,
    ):
        yield client


def read(reply: httpx2.Response) -> Balanced:
    """The page, whole and with nothing of elsewhere."""
    assert reply.status_code == 200 and reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["content-security-policy"].startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"https?://|//[a-z]", reply.text.partition("<body>")[0])
    page = Balanced()
    page.feed(reply.text)
    assert page.open == []
    assert all(each.startswith(("/", "#")) and not each.startswith("//") for each in page.references)
    return page


async def test_the_address_alone_says_what_is_served_where(browser: httpx2.AsyncClient) -> None:
    """A page for people, JSON for programs; each place that it names is there."""
    page = read(await browser.get("/"))
    places = (await browser.get("/", headers={"accept": "*/*"})).json()
    assert places["mcp"] == "/mcp" and places["openapi"] == "/openapi.json"
    assert set(page.references) == {path for name, path in places.items() if name != "name"}
    for path in {"/docs", "/openapi.json", "/healthz", "/readyz"} & set(page.references):
        assert (await browser.get(path)).status_code in (200, 503)
    for path in ("/mcp", "/sse"):
        assert (await browser.get(path)).status_code == 401


async def test_who_posts_to_the_address_alone_is_told_where_mcp_is(browser: httpx2.AsyncClient) -> None:
    """A client configured without the path."""
    reply = await browser.post("/", json={"jsonrpc": "2.0", "id": 1, "method": "initialize"})
    assert (reply.status_code, reply.json()["error"]["hint"]) == (405, "MCP is served at /mcp.")


async def test_the_rest_interface_is_described_for_people(browser: httpx2.AsyncClient) -> None:
    """Every operation, parameter and schema of the OpenAPI, on one page without a script."""
    reply = await browser.get("/docs")
    page = read(reply)
    document = (await browser.get("/openapi.json")).json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert f"{method.upper()} {escape(path)}" in reply.text
            assert escape(operation["summary"]) in reply.text
            for parameter in operation.get("parameters", ()):
                assert f"<code>{parameter['name']}</code>" in reply.text
    assert page.ids == set(document["components"]["schemas"])
    assert {each[1:] for each in page.references if each.startswith("#")} <= page.ids
    assert (await browser.get("/docs/")).status_code == 404
