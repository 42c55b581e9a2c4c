"""A server behind OAuth, its authorization server in the same process, and a person with a browser."""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth.auth import AccessToken, ClientRegistrationOptions, RevocationOptions
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthToken
from run_wire import look_at

from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.upstream import Connector, SignIns
from smart_mcp_proxy.upstream.oauth.auth_callback import CallbackServer
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession

METADATA = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"
SCOPES = ["tools:read", "tools:write"]


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    verb: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode()))


Answer = Callable[[Seen], tuple[int, Any] | tuple[int, Any, str] | None]
"""What to answer instead: a status, JSON, and perhaps `WWW-Authenticate`; None for what the server would answer."""


class Provider(InMemoryOAuthProvider):
    """The in-memory authorization server with a lifetime for its tokens."""

    lifetime_s: int | None = 3600

    def _dated(self, token: OAuthToken) -> OAuthToken:
        if self.lifetime_s is not None:
            token.expires_in = self.lifetime_s
        return token

    async def exchange_authorization_code(self, client: Any, authorization_code: Any) -> OAuthToken:
        return self._dated(await super().exchange_authorization_code(client, authorization_code))

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> OAuthToken:
        return self._dated(await super().exchange_refresh_token(client, refresh_token, scopes))


@dataclass
class Guarded:
    """A FastMCP server that wants a sign-in, with all that came to it.

    Attributes:
        base: Its origin, which is the authorization server's issuer too.
        wire: Every request, in order.
        answers: By path, what to answer instead.
    """

    base: str
    provider: Provider
    wire: list[Seen] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    app: Any = None

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    def config(self, oauth: Mapping[str, Any] | None = MappingProxyType({}), **changes: Any) -> ServerConfig:
        """The server as it is configured; None for an entry without `oauth`."""
        values: dict[str, Any] = {"name": "web", "transport": "http", "url": self.url, "oauth": oauth}
        return ServerConfig(**(values | {"limits": ServerLimits(init_s=10, list_s=10, call_s=10)} | changes))

    def asked(self, path: str, **form: str) -> list[Seen]:
        """The requests to `path` whose form has these values."""
        return [seen for seen in self.wire if seen.path == path and form.items() <= seen.form.items()]

    @property
    def refreshes(self) -> list[Seen]:
        return self.asked("/token", grant_type="refresh_token")

    async def until(self, is_so: Callable[[], bool], limit_s: float = 20) -> None:
        """Waits until requests have made it so."""
        with anyio.fail_after(limit_s):
            async with self.changed:
                await self.changed.wait_for(is_so)

    def metadata_says(self, **changes: Any) -> None:
        """Changes what the authorization server says of itself; None leaves a member out."""
        given = {
            "issuer": self.base + "/",
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "code_challenge_methods_supported": ["S256"],
        } | changes
        self.answers[METADATA] = lambda _: (200, {key: value for key, value in given.items() if value is not None})

    def resource_says(self, **changes: Any) -> None:
        """Changes what the server says of its sign-in; None leaves a member out."""
        given = {"resource": self.url, "authorization_servers": [self.base + "/"], "scopes_supported": SCOPES} | changes
        self.answers[RESOURCE] = lambda _: (200, {key: value for key, value in given.items() if value is not None})

    def demand(self, scope: str, *, of: bytes) -> None:
        """Refuses what has `of` in it while the token was not granted this scope. Source: RFC 6750, section 3.1."""

        def refuse(seen: Seen) -> tuple[int, Any, str] | None:
            granted = self.provider.access_tokens.get(seen.headers.get("authorization", "").removeprefix("Bearer "))
            if of not in seen.body or granted is None or scope in granted.scopes:
                return None
            return 403, {}, f'Bearer error="insufficient_scope", scope="{scope}", error_description="more, please"'

        self.answers["/mcp"] = self.answers["/messages/"] = refuse

    def give_to_programs(self, client_id: str, client_secret: str) -> None:
        """Lets the token endpoint know the grant `client_credentials` for one client."""

        def token(seen: Seen) -> tuple[int, Any] | None:
            if seen.form.get("grant_type") != "client_credentials":
                return None
            basic = "Basic " + base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
            if seen.headers.get("authorization") != basic:
                return 401, {"error": "invalid_client"}
            text = f"program-token-{len(self.wire)}"
            self.provider.access_tokens[text] = AccessToken(token=text, client_id=client_id, scopes=SCOPES)
            return 200, {"access_token": text, "token_type": "bearer", "expires_in": self.provider.lifetime_s}

        self.answers["/token"] = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = b""
        while (message := await receive()).get("type") == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode()))
        if scope["path"] in ("/mcp", "/sse", "/messages/"):  # the others are a browser's, too
            look_at(headers)
        seen = Seen(scope["method"], scope["path"], query, headers, body)
        async with self.changed:
            self.wire.append(seen)
            self.changed.notify_all()
        given = self.answers.get(seen.path, lambda _: None)(seen)
        if given is not None:
            fields = [(b"content-type", b"application/json")]
            fields += [(b"www-authenticate", given[2].encode())] if len(given) == 3 else []
            await send({"type": "http.response.start", "status": given[0], "headers": fields})
            await send({"type": "http.response.body", "body": json.dumps(given[1]).encode()})
            return
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Any:
            return parts.pop() if parts else await receive()

        await self.app(scope, replay, send)


@asynccontextmanager
async def guarded(
    transport: str = "http", add: Callable[[FastMCP[Any]], object] = lambda target: None
) -> AsyncIterator[Guarded]:
    """A guarded server on a free port of loopback; `add` gives it more tools."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        provider = Provider(
            base_url=base,
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=SCOPES, default_scopes=SCOPES
            ),
            revocation_options=RevocationOptions(enabled=True),
            required_scopes=SCOPES[:1],
        )
        target = FastMCP("guarded", auth=provider)

        @target.tool
        def whoami() -> str:
            """Says who calls."""
            return "somebody"

        add(target)
        made = Guarded(base, provider)
        made.app = target.http_app(path="/mcp", transport=transport)  # type: ignore[arg-type]
        config = uvicorn.Config(made, log_level="critical", ws="none", timeout_graceful_shutdown=0, lifespan="on")
        server = uvicorn.Server(config)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]))
            with anyio.fail_after(10):
                while not server.started:
                    await anyio.lowlevel.checkpoint()
            try:
                yield made
            finally:
                server.should_exit = True


async def follow(url: str) -> httpx2.Response:
    """What a browser does: follows redirects to the end."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=10) as client:
        return await client.get(url)


async def redirect_of(url: str) -> str:
    """Where the authorization server would send the browser."""
    async with httpx2.AsyncClient(follow_redirects=False, timeout=10) as client:
        return (await client.get(url)).headers["location"]


class Person:
    """Somebody who signs in as soon as a page is shown; counts the pages.

    Args:
        act: What is done with the address; by default it is opened.
    """

    def __init__(self, act: Callable[[str], Awaitable[Any]] = follow, timeout_s: float = 10) -> None:
        self.pages: list[str] = []
        self.replies: list[Any] = []
        self._act = act
        self._timeout_s = timeout_s
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def browser(self, port: int | None = None) -> AsyncIterator[CallbackServer]:
        """The browser, for one sign-in."""
        async with CallbackServer("web", port, self._shown, self._timeout_s) as server:
            yield server
        for task in self._tasks:
            await task

    @property
    def query(self) -> dict[str, str]:
        """What the last page was asked with."""
        return dict(parse_qsl(urlsplit(self.pages[-1]).query))

    def _shown(self, url: str) -> None:
        self.pages.append(url)
        self._tasks.append(asyncio.get_running_loop().create_task(self._open(url)))

    async def _open(self, url: str) -> None:
        self.replies.append(await self._act(url))


class Nobody:
    """A browser that must not be shown anything."""

    redirect_uri = "http://127.0.0.1:9/callback"

    async def ask(self, url: str, state: str) -> AuthorizationCodeResult:
        raise AssertionError(f"a person was shown {url}")


class WallClock:
    """Wall time that can be put forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        import time

        return time.time() + self.ahead_s


@asynccontextmanager
async def linked(sign_ins: SignIns, server: Guarded, **changes: Any) -> AsyncIterator[UpstreamSession]:
    """An open session that uses the stored sign-in."""
    async with Connector(sign_ins=sign_ins) as dial:
        link = await dial(server.config(**changes), environ={}, era=None, on_event=lambda _: None)
        try:
            yield link
        finally:
            await link.close()


async def call(link: UpstreamSession) -> bytes:
    """The answer of its one tool."""
    return (await link.request("tools/call", {"name": "whoami", "arguments": {}}, timeout_s=10)).text
