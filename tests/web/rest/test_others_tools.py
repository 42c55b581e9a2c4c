"""What a server lists to one person alone is nothing that another one is shown, may call, or learns to be there."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keyring
import msgspec
import pytest
from fastmcp import FastMCP
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.middleware import Middleware, MiddlewareContext
from keyring.backends.fail import Keyring as NoKeyring
from page_gateway import Opened, opened, tool
from plain_http import plain_client
from sign_in_fakes import Guarded, Person, Seen, guarded

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.models import Principal
from smart_mcp_proxy.upstream import SignIns

pytestmark = pytest.mark.anyio

PERSONAL = {"per_user": True}
LIMIT_S = 60
SECRET, SECRET_PART = "data://secret", "data%3A%2F%2Fsecret"


class ListsToOne(Middleware):
    """Lists what is called `secret` to one account alone, and everything else to everybody.

    Args:
        place: Of the account among those that list.
    """

    def __init__(self, place: int) -> None:
        self._place = place
        self._accounts: dict[str, None] = {}

    async def on_message(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        answer, token = await call_next(context), get_access_token()
        if not isinstance(answer, Sequence) or token is None:
            return answer
        self._accounts.setdefault(token.client_id)
        is_theirs = [*self._accounts].index(token.client_id) == self._place
        return [each for each in answer if is_theirs or each.name != "secret"]


def add_secrets(target: FastMCP[Any], place: int) -> None:
    target.tool(lambda: "told", name="secret", description="Tells a secret.")
    target.resource(SECRET, name="secret")(lambda: "told")
    target.prompt(lambda: "told", name="secret")
    target.add_middleware(ListsToOne(place))


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Guarded]:
    keyring.set_keyring(NoKeyring())
    async with guarded(add=partial(add_secrets, place=getattr(request, "param", 0))) as made:
        yield made


class Colleague:
    """Somebody with a token of a role, who has signed in at the server."""

    def __init__(self, there: Opened, id_: str, secret: str) -> None:
        self.id = id_
        self._there = there
        self._headers = {"authorization": f"Bearer {secret}"}

    async def ask(self, path: str, **body: Any) -> Any:
        async with plain_client(base_url=self._there.base, headers=self._headers, timeout=LIMIT_S) as client:
            reply = await client.request("POST" if body else "GET", f"/api/v1/{path}", json=body or None)
            return reply.json()

    async def until(self, path: str, is_so: Callable[[Any], bool], **body: Any) -> None:
        """Asks again and again until the answer is this."""
        async with asyncio.timeout(LIMIT_S):
            while not is_so(await self.ask(path, **body)):
                await self._there.gateway.base.changes.wait()


async def sign_in(there: Opened, folder: Path, server: Guarded, name: str) -> Colleague:
    made = await there.gateway.admin.agent_tokens.create(name, Scope(None, "destructive", role="operator"))
    config = server.config(PERSONAL, person=made.token.principal_id)
    async with Person().browser() as browser:
        await SignIns(folder / "data").authorize_server(config, browser)
    return Colleague(there, made.token.principal_id, made.secret)


async def come_in(there: Opened, folder: Path, server: Guarded, name: str) -> Colleague:
    """Signs somebody in, and waits until their calls go through."""
    colleague = await sign_in(there, folder, server, name)
    await colleague.until("call", lambda answer: "error" not in answer, name="web:whoami", arguments={})
    return colleague


def find_names(answer: Any) -> set[str]:
    rows = answer if isinstance(answer, list) else answer.get("tools", answer.get("items", ()))
    return {row["name"] for row in rows}


@pytest.mark.long  # a third of a second of processor time
async def test_rest_shows_finds_and_calls_what_was_listed_to_the_sender(tmp_path: Path, server: Guarded) -> None:
    """Of the server's own list the gateway's user sees all; the log says who searched."""
    others = {"web": {"url": server.url, "oauth": PERSONAL, "trust": "trusted"}}
    async with opened(tmp_path, [tool("a")], others) as there:
        ann = await come_in(there, tmp_path, server, "ann")
        bob = await come_in(there, tmp_path, server, "bob")
        paths = ("tools", "listing?state=visible", "search?q=tells+a+secret")
        for path in paths:
            await ann.until(path, lambda answer: "web:secret" in find_names(answer))
        assert "error" not in await ann.ask("call", name="web:secret", arguments={})
        for path in paths:
            assert "web:secret" not in find_names(await bob.ask(path))
        assert "web:whoami" in find_names(await bob.ask("tools"))
        assert (await bob.ask("tools/web:secret"))["error"]["code"] == "tool_not_found"
        assert [each["verdict"] for each in await bob.ask("check?tool=web:secret")] == ["unknown"]
        called = await bob.ask("call", name="web:secret", arguments={})
        assert called["error"]["code"] == "tool_not_found"
        assert "web:secret" in {str(record.key) for record in there.gateway.visible.records()}
        async with asyncio.timeout(30):  # they are stored a moment after the answer
            while {each["principal"] for each in await there.records("search")} != {ann.id, bob.id}:
                await asyncio.sleep(0)


@pytest.mark.long  # a third of a second of processor time
async def test_a_viewer_looks_at_tools_that_they_may_not_call(tmp_path: Path, server: Guarded) -> None:
    """Their role bounds calls; their token's servers bound both."""
    async with opened(tmp_path, [tool("a")], {"web": {"url": server.url, "oauth": PERSONAL}}) as there:
        tokens = there.gateway.admin.agent_tokens
        for servers, names in ((None, {"s:a", "s:poke"}), (("web",), set[str]())):
            made = await tokens.create(f"viewer of {servers}", Scope(servers, "read", role="viewer"))
            assert find_names(await Colleague(there, "", made.secret).ask("tools")) == names


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("server", [1], indirect=True)
async def test_what_waits_for_one_person_is_unknown_to_another(tmp_path: Path, server: Guarded) -> None:
    """By its name or URI nobody is told that it waits but those whom it was listed to."""
    async with opened(tmp_path, [tool("a")], {"web": {"url": server.url, "oauth": PERSONAL}}) as there:
        ann = await come_in(there, tmp_path, server, "ann")
        bob = await come_in(there, tmp_path, server, "bob")
        async with asyncio.timeout(LIMIT_S):
            while len(there.gateway.admin.approvals.withheld()) < 3:
                await there.gateway.base.changes.wait()
        views = there.gateway.lists.views
        said = {}
        for person in (ann, bob):
            view = views.at("", views.reach(Principal(person.id)))
            assert view is not None
            contents = Contents(there.gateway.catalog, view, 64, None)
            for look, name in ((contents.prompt, "web__secret"), (contents.resource, f"mcpproxy://web/{SECRET_PART}")):
                with pytest.raises(ProxyError) as caught:
                    look(name)
                said[person, name] = caught.value.message
            called = await person.ask("call", name="web:secret", arguments={})
            said[person, "web:secret"] = called["error"]["message"]
        assert all("waits" in text for (person, _), text in said.items() if person is bob)
        assert not any("waits" in text for (person, _), text in said.items() if person is ann)


def refuse_lists(seen: Seen) -> tuple[int, Any] | None:
    """Answer lists with an error that names the account."""
    if b'"tools/list"' not in seen.body or "authorization" not in seen.headers:
        return None
    error = {"code": -32000, "message": "The account of Ann is closed."}
    return 200, {"jsonrpc": "2.0", "id": msgspec.json.decode(seen.body)["id"], "error": error}


@pytest.mark.long  # a third of a second of processor time
async def test_why_one_persons_list_failed_is_said_to_all_without_the_servers_words(
    tmp_path: Path, server: Guarded
) -> None:
    """The person's own call says that the list failed, and not that the server is still connecting."""
    server.answers["/mcp"] = refuse_lists
    async with opened(tmp_path, [tool("a")], {"web": {"url": server.url, "oauth": PERSONAL}}) as there:
        ann = await sign_in(there, tmp_path, server, "ann")
        called = {"name": "web:whoami", "arguments": {}}
        await ann.until("call", lambda answer: "cannot be listed" in answer["error"]["message"], **called)
        (gap,) = (await ann.ask("search?q=who+am+I"))["not_covered"]
        assert "cannot be listed" in gap["reason"] and "Ann" not in gap["reason"]
