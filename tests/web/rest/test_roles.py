"""Roles: every cell of the one table at the page, over REST, by commands and over MCP, and whose groups give which."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import httpx2
import keyring
import pytest
from asgi_server import listening
from fastmcp.server.auth import AccessToken
from keyring.backends.fail import Keyring as NoKeyring
from openid_fakes import CLIENT_ID, CLIENT_SECRET, OpenIdProvider, consent
from page_gateway import Opened, opened, tool
from plain_http import plain_client
from pydantic import SecretStr
from sign_in_fakes import Person

from smart_mcp_proxy.cli.app import build_app
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.gateway.admin.roles import MCP, OPERATIONS, PAGE, REST, Admitted, RoleOperation, is_allowed
from smart_mcp_proxy.gateway.tools import upstream_servers
from smart_mcp_proxy.models import ROLES, WHOLE, Principal, Reach, Role
from smart_mcp_proxy.servers import Profile, ServerConfig
from smart_mcp_proxy.settings import Settings, load_settings
from smart_mcp_proxy.upstream import SignIns
from smart_mcp_proxy.web.auth.groups import Groups
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.page.asking import build_scope, call_asgi_app
from smart_mcp_proxy.web.page.places import PLACES
from smart_mcp_proxy.web.rest import ROUTES, build_rest_app
from smart_mcp_proxy.web.rest.authorization import build_socket_admit

pytestmark = pytest.mark.anyio

_NAMED = re.compile(r"\{[^}]*\}")
READS = {"annotations": {"readOnlyHint": True}}
NOBODY = {"GET /metrics"}
"""Routes that are served elsewhere than below `/api/v1`."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the gateway of all tests here."""
    return "asyncio"


@pytest.fixture(scope="module")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    """A gateway whose agents may manage servers."""
    tools = [tool("look", **READS), tool("put")]
    async with opened(tmp_path_factory.mktemp("roles"), tools, manage=True, metrics=True) as found:
        yield found


async def make_token(there: Opened, role: Role | None, name: str = "") -> dict[str, str]:
    """The header of a token with this role, which reaches as far as that may."""
    access = "destructive" if role is None or is_allowed(role, MCP["call_tool_write"]) else "read"
    called = name or f"{role}-{len(await there.gateway.admin.agent_tokens.tokens())}"
    made = await there.gateway.admin.agent_tokens.create(called, Scope(None, access, role=role))
    return {"authorization": f"Bearer {made.secret}"}


def is_expected(role: Role | None, operation: RoleOperation) -> bool:
    """By their places in a row, and not as the table's own functions say it."""
    order: list[Role | None] = [None, "viewer", "operator", "approver", "admin"]
    return order.index(role) >= order.index(operation.least)


def test_each_route_command_and_tool_has_one_row() -> None:
    """One without a row fails here, and so does a row of what there is not."""
    assert {f"{each.method} {each.path}" for each in ROUTES} == REST.keys() - NOBODY
    assert {f"{each.method} {each.path}" for each in PLACES} == PAGE.keys() - {"POST /leave"}
    managed = {f"upstream_servers {each}" for each in get_args(upstream_servers.Operation)}
    assert managed == {each for each in MCP if " " in each}
    for kind in ("rest", "page", "mcp"):
        named = [each for row in OPERATIONS for each in getattr(row, kind)]
        assert len(named) == len(set(named))


@pytest.mark.parametrize("command", [each for row in OPERATIONS for each in row.commands])
def test_each_command_of_the_table_exists(command: str) -> None:
    """Those without a row ask no gateway."""
    app = build_app()
    for word in command.split():
        if not word.startswith("-"):
            app = app[word]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("role", [None, *ROLES])
async def test_every_cell_over_rest(there: Opened, role: Role | None) -> None:
    """Refused is what the table refuses, before anything else is looked at."""
    headers = await make_token(there, role)
    async with plain_client(base_url=there.base, headers=headers, timeout=60) as client:
        for route, operation in REST.items():
            method, path = route.split(" ", 1)
            if path == "/events":  # it goes on until somebody leaves
                continue
            path = path if route in NOBODY else f"/api/v1{_NAMED.sub('unknown', path)}"
            body: Any = {"json": {}} if method in ("POST", "PUT", "PATCH") else {}
            reply = await client.request(method, path, **body)
            is_refused = reply.status_code in (401, 403) and reply.json()["error"]["code"] in (
                "role_required" if role else "unauthorized",
            )
            assert is_refused != is_expected(role, operation), (route, role, reply.text)


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("role", ROLES)
async def test_every_cell_at_the_page(there: Opened, role: Role) -> None:
    """Places and actions alike; what is allowed goes on to be told that the form is not of this session."""
    who = Principal("https://id#1", WHOLE, role, "ann")
    secret = await there.gateway.admin.page_sessions.open(Admitted("web", role, who))
    async with plain_client(base_url=there.base, timeout=60) as client:
        link = await there.gateway.admin.page_sessions.make_link(Admitted("web", role, who))
        assert (await client.get(link.url)).status_code == 200
        for route, operation in PAGE.items():
            method, path = route.split(" ", 1)
            if path in ("/events", "/leave"):
                continue
            body: Any = {"data": {"csrf": "other"}} if method == "POST" else {}
            reply = await client.request(method, f"/ui{path}", **body)
            is_refused = "role_required" in reply.text or "this needs the role" in reply.text
            assert is_refused != is_expected(role, operation), (route, role, reply.text)
    assert secret


async def call(client: httpx2.AsyncClient, name: str, arguments: dict[str, Any]) -> str:
    """The text that a tool of ours answers with."""
    params = {"name": name, "arguments": arguments}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name}
    headers["accept"] = "application/json, text/event-stream"
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": meta}}
    return (await client.post("/mcp", json=message, headers=headers)).text


@pytest.mark.parametrize("role", [None, *ROLES])
async def test_every_cell_over_mcp(there: Opened, role: Role | None) -> None:
    """A token without a role may do what it always might."""
    headers = await make_token(there, role)
    async with plain_client(base_url=there.base, headers=headers, timeout=60) as client:
        for each, operation in MCP.items():
            name, _, verb = each.partition(" ")
            arguments: dict[str, Any] = {"operation": verb, "name": "unknown"} if verb else {}
            refusal = "role_required"
            if name.startswith("call_tool"):
                arguments, refusal = {"name": "s:look" if name == "call_tool_read" else "s:put"}, "access_denied"
            if role == "viewer" and verb:  # which is not listed where access is to read alone
                refusal = "Unknown tool"
            text = await call(client, name, arguments)
            assert (refusal not in text) == (role is None or is_expected(role, operation)), (each, role, text[:400])


async def test_every_cell_of_the_command_line(there: Opened) -> None:
    """Commands come over a socket that only the gateway's user can open, who is an admin."""
    app = build_rest_app(there.gateway, build_socket_admit(there.gateway.admin.doors))
    for route in REST.keys() - NOBODY - {"GET /events"}:
        method, path = route.split(" ", 1)
        scope = build_scope(method, f"/api/v1{_NAMED.sub('unknown', path)}", "http://gateway", b"{}")
        status, text = await call_asgi_app(app, {**scope, "state": {"peer": None}}, b"{}")
        assert b"role_required" not in text and status != 401, (route, text)


async def test_a_token_with_a_role_has_that_at_the_page_until_it_is_revoked(there: Opened) -> None:
    """Its link opens the page, with its rights and no more."""
    headers = await make_token(there, "viewer", "short")
    async with plain_client(base_url=there.base, timeout=60) as client:
        link = (await client.post("/api/v1/page/links", headers=headers)).json()["url"]
        assert (await client.get(link)).status_code == 200
        assert (await client.get("/ui/waiting")).status_code == 200
        assert (await client.get("/ui/clients")).status_code == 403
        await there.gateway.admin.agent_tokens.revoke("short")
        assert (await client.get("/ui/waiting")).status_code == 401


async def test_a_role_bounds_the_access_of_a_token(there: Opened) -> None:
    """A viewer's token that writes would say two things."""
    async with plain_client(base_url=there.base, headers=await make_token(there, "admin"), timeout=60) as client:
        body = {"name": "x", "role": "viewer", "access": "write"}
        assert "does not allow write access" in (await client.post("/api/v1/tokens", json=body)).text
        wrong = await client.post("/api/v1/tokens", json={"name": "x", "role": "wizard"})
        assert wrong.status_code == 400 and "wizard" in wrong.text


@pytest.mark.long  # a third of a second of processor time
async def test_an_approver_of_the_provider_approves_over_rest_and_a_viewer_does_not(tmp_path: Path) -> None:
    """The real way: sign-in at the provider, its groups, the token that the gateway gives for it."""
    keyring.set_keyring(NoKeyring())
    provider, listener = OpenIdProvider(), bind("127.0.0.1", 0)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with listening(provider.app) as provider.base:
        given = {
            "oidc_url": provider.config_url,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": SecretStr(CLIENT_SECRET),
            "group_roles": ("staff=viewer", "security=approver"),
            "public_url": base,
        }
        async with opened(tmp_path, [tool("a")], listener=listener, **given) as there:
            await there.turn([tool("a", "Does another thing.")])
            hash_ = there.gateway.admin.approvals.withheld()[0].record.change_hash
            codes = []
            for name, groups in (("vic", ["staff"]), ("ann", ["staff", "security"])):
                provider.user = {"sub": name, "groups": groups, "email": f"{name}@example.com", "email_verified": True}
                config = ServerConfig("gateway", "http", url=f"{base}/mcp", oauth={})
                async with Person(consent).browser() as browser:
                    held = await SignIns(tmp_path / name).authorize_server(config, browser)
                headers = {"authorization": f"Bearer {held.access_token}"}
                async with plain_client(base_url=base, headers=headers, timeout=60) as client:
                    body = {"tools": [{"name": "s:a", "hash": hash_}]}
                    reply = await client.post("/api/v1/approvals/approve", json=body)
                    codes.append((reply.status_code, reply.json().get("approved")))
            assert codes == [(403, None), (200, ["s:a"])]
            (record,) = await there.records("approval")
            assert record["principal"].endswith("#ann")


def token(**claims: Any) -> AccessToken:
    """A verified token."""
    return AccessToken(token="", client_id="c", scopes=[], claims=claims)


def groups(*roles: str, own: Reach | None = None, is_bounded: bool = False, **profiles: Profile) -> Groups:
    """Groups with these roles, and profiles that name some."""
    settings = Settings(group_roles=roles)
    return Groups(settings, lambda: profiles, lambda _token: own, is_bounded=is_bounded)


@pytest.mark.parametrize(
    "claim", [None, 5, {}, {"staff": True}, ["staff", 5], [["staff"]], "not staff", "", ["Staff"], True]
)
def test_a_claim_that_names_no_known_group_gives_nothing(claim: Any) -> None:
    """Whatever its type; a text is one name, and not its words."""
    found = groups("staff=admin")
    assert found.find_role(token(groups=claim)) is None
    assert found.find_reach(token(groups=claim)) is None


def test_the_highest_role_of_ten_thousand_groups_counts() -> None:
    """Names may hold blanks and equal signs."""
    found = groups("staff=viewer", "OU=Domain Admins=admin")
    many = [f"group-{number}" for number in range(10_000)]
    assert found.find_role(token(groups=[*many, "staff"])) == "viewer"
    assert found.find_role(token(groups=[*many, "staff", "OU=Domain Admins"])) == "admin"
    assert found.find_role(token(groups="OU=Domain Admins")) == "admin"


def test_a_profile_holds_the_people_of_its_groups() -> None:
    """The first that names one, with the access that it gives, within what the role allows."""
    work = Profile("work", servers=("github",), groups=("devs",), access="write")
    found = groups("staff=viewer", "ops=operator", work=work)
    assert found.find_reach(token(groups=["devs"])) == Reach(None, "write", "work")
    assert found.find_reach(token(groups=["devs", "staff"])) == Reach(None, "read", "work")
    assert found.find_reach(token(groups=["devs", "ops"])) == Reach(None, "write", "work")
    assert found.find_reach(token(groups=["ops"])) == Reach(None, "destructive", None)
    assert found.find_reach(token(groups=["ops"], mcp_servers=5)) is None


def test_the_scopes_of_a_signed_token_stay_its_bounds() -> None:
    """What its holder has not handed on no group gives."""
    assert groups("ops=admin", is_bounded=True).find_reach(token(groups=["ops"])) is None
    bounded = groups("ops=admin", own=Reach(None, "read"), is_bounded=True)
    assert bounded.find_reach(token(groups=["ops"])) == Reach(None, "read", None)


def test_a_role_that_does_not_exist_is_refused_by_name() -> None:
    """And so is a group without a role."""
    for wrong in ("staff=wizard", "staff", "=viewer"):
        with pytest.raises(ConfigError, match=f"MCPPROXY_GROUP_ROLES is '{wrong}'. Expected groups with a role each"):
            load_settings({"MCPPROXY_GROUP_ROLES": wrong})
