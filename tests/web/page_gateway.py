"""A gateway over HTTP in front of a server whose list is a file, and a browser's side of its page."""

import asyncio
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
from plain_http import plain_client

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.admin.roles import OWNER
from smart_mcp_proxy.servers import load_configured_servers
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import ActivityKind
from smart_mcp_proxy.web.auth.sign_in import is_sign_in_enabled
from smart_mcp_proxy.web.auth.sign_in_pages import open_oidc_login
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.serve_http import serve_http

UPSTREAM = Path(__file__).parents[1] / "interaction" / "turning_upstream.py"
ENVIRON = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
LIMIT_S = 60

PLACES = (
    "",
    "waiting",
    "search",
    "search?q=echo&why_not=s:a",
    "servers",
    "server?name=s",
    "servers/new",
    "sign-ins",
    "tools",
    "tool?name=s:a",
    "tool?name=s:b",
    "activity",
    "clients",
    "settings",
)
"""All that is shown, with a tool `s:a` that agents see and `s:b` that waits."""


def tool(name: str, description: str = "Does a thing.", **more: Any) -> dict[str, Any]:
    """A definition."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


class Turning:
    """The server `s`: what it lists, and what was called.

    Args:
        folder: Of its files.
    """

    def __init__(self, folder: Path) -> None:
        self.tools, self.ledger = folder / "tools.json", folder / "ledger"
        self.ledger.touch()

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry in a server file."""
        return {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(self.tools), str(self.ledger)]}

    def lists(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """It lists these from now on."""
        self.tools.write_text(json.dumps(tools))


class Opened:
    """A gateway that serves its page.

    Args:
        gateway: Open.
        base: Its address.
        turning: The server behind it.
    """

    def __init__(self, gateway: Gateway, base: str, turning: Turning) -> None:
        self.gateway = gateway
        self.base = base
        self.turning = turning

    async def link(self) -> str:
        """A link that the command line would open."""
        return (await self.gateway.admin.page_sessions.make_link(OWNER)).url

    async def turn(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """The server lists these, and the gateway has noticed."""
        self.turning.lists(tools)
        known = self.gateway.catalog.snapshot
        self.gateway.lists.tool_sync.list_soon("s")
        async with asyncio.timeout(LIMIT_S):
            while self.gateway.catalog.snapshot is known:
                await self.gateway.base.changes.wait()

    async def records(self, kind: ActivityKind) -> list[dict[str, Any]]:
        """The activity records of a kind, the newest first, without what differs from one time to the next."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(LIMIT_S):
            while not found:
                page = await self.gateway.catalog.activity_page(ActivityFilter(kind=kind), 100)
                found = [_plain(each.activity) for each in page]
                await asyncio.sleep(0)
        return found


@asynccontextmanager
async def opened(
    folder: Path,
    tools: Sequence[Mapping[str, Any]],
    others: Mapping[str, Any] | None = None,
    listener: socket.socket | None = None,
    **settings: Any,
) -> AsyncIterator[Opened]:
    """A gateway that has listed the server, whose entry is in a file that can be edited."""
    turning = Turning(folder)
    turning.lists(tools)
    config = folder / "mcp_config.json"
    config.write_text(json.dumps({"mcpServers": {"s": turning.entry, **(others or {})}}))
    own = Settings(data_dir=folder / "data", config_path=config, **settings)
    file = load_configured_servers(own, folder)
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(open_gateway(own, file.servers, environ=ENVIRON))
        listener = listener or bind("127.0.0.1", 0)
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        sign_in = await open_oidc_login(own, profiles=gateway.base.config.profiles) if is_sign_in_enabled(own) else None
        await stack.enter_async_context(serve_http(gateway, listener, token=None, sign_in=sign_in))
        gateway.start_upstreams()
        assert await gateway.wait_settled(LIMIT_S)
        yield Opened(gateway, base, turning)


class Browser:
    """A browser without scripts, as far as the page can tell.

    Args:
        client: Keeps its cookies.
    """

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.text = ""

    async def enter(self, link: str) -> None:
        """Opens a link."""
        reply = await self.client.get(link)
        assert reply.status_code == 200, reply.text

    async def get(self, place: str = "") -> httpx2.Response:
        """Opens a place of the page."""
        reply = await self.client.get(f"/ui/{place}")
        self.text = reply.text
        return reply

    async def send(self, action: str, fields: Mapping[str, Any] | None = None, **more: Any) -> httpx2.Response:
        """Sends a form with the token of the page that is open, and goes where it leads."""
        token = re.search(r'name="csrf" value="([0-9a-f]{64})"', self.text)
        assert token is not None, self.text
        headers = {"origin": str(self.client.base_url).rstrip("/")}
        reply = await self.client.post(
            f"/ui/{action}", data={"csrf": token[1], **(fields or {}), **more}, headers=headers
        )
        if reply.status_code == 303:
            return await self.get(reply.headers["location"].removeprefix("/ui/"))
        self.text = reply.text
        return reply


@asynccontextmanager
async def stranger(there: Opened) -> AsyncIterator[Browser]:
    """A browser that nobody let in."""
    async with plain_client(base_url=there.base, timeout=LIMIT_S) as client:
        yield Browser(client)


@asynccontextmanager
async def browser(there: Opened) -> AsyncIterator[Browser]:
    """A browser that came by a link."""
    async with stranger(there) as found:
        await found.enter(await there.link())
        await found.get("waiting")
        yield found


def field_of(page: Browser, number: int) -> str:
    """Name of the nth field for an argument on the page of a tool."""
    return re.findall(r'name="(arg-[0-9a-f]{12})"', page.text)[number - 1]


async def settled_records(there: Opened, kind: ActivityKind, count: int) -> list[dict[str, Any]]:
    """The records, once there are so many: they are stored a quarter of a second late."""
    async with asyncio.timeout(60):
        while len(found := await there.records(kind)) < count:
            await asyncio.sleep(0)
    return found


def without_hash(record: dict[str, Any]) -> dict[str, Any]:
    """A record apart from the definition that it is about."""
    return record | {"detail": {key: value for key, value in record["detail"].items() if key != "hash"}}


class Markup(HTMLParser):
    """Elements of a page: what a browser would run, load or take for a form.

    Args:
        text: The page.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def harm(self) -> list[str]:
        """Whatever the policy forbids or a stranger could have written."""
        found = []
        for tag, attributes in self.elements:
            if tag in {"iframe", "object", "embed", "style", "base", "img", "audio", "video"}:
                found.append(tag)
            if tag == "script" and attributes != {"type": "module", "src": "/ui/static/page.js"}:
                found.append(f"script {attributes}")
            found += [f"{tag} {name}" for name in attributes if name.startswith("on") or name == "style"]
            places = [attributes[name] for name in ("href", "src", "action") if name in attributes]
            found += [place for place in places if not place.startswith(("/ui/", "#", "?"))]
        return found


def _plain(record: Any) -> dict[str, Any]:
    names = ("kind", "principal", "session", "server", "tool", "subject", "outcome", "delivery", "digest", "arguments")
    return {name: getattr(record, name) for name in names} | {"detail": dict(record.detail)}
