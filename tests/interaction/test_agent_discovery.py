"""Server cards, their catalog and the registry's API: behind the token, as far as a caller reaches, off by default."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from agents import META
from plain_http import plain_client
from transports import odd_servers, opened_gateway, over_http, served

from smart_mcp_proxy import __version__
from smart_mcp_proxy.cli.commands.servers.registry_api import open_registry
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.registry import plan_entry
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

OWN = "the-gateways-own-token"
CARD_PATHS = ["/mcp/server-card", "/mcp/p/work/server-card"]
CATALOG_PATHS = ["/.well-known/mcp/catalog.json", "/.well-known/ai-catalog.json"]
REGISTRY_PATHS = ["/v0.1/servers", "/v0.1/servers/x%2Fy/versions", "/v0.1/servers/x%2Fy/versions/latest"]
ALL_PATHS = [*CARD_PATHS, *CATALOG_PATHS, *REGISTRY_PATHS]
PROFILES = {"work": {"servers": ["old"]}, "play": {"servers": ["new"]}}

TEXT = {"type": "string", "minLength": 1}
NAME = {"type": "string", "minLength": 3, "maxLength": 200, "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$"}
INPUT = {"type": "object", "properties": {"isRequired": {"type": "boolean"}, "isSecret": {"type": "boolean"}}}
REMOTE = {
    "type": "object",
    "required": ["type", "url"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["streamable-http", "sse"]},
        "url": {"type": "string", "pattern": r"^(https?://[^\s]+|\{[a-zA-Z_][a-zA-Z0-9_]*\}[^\s]*)$"},
        "headers": {"type": "array", "items": INPUT | {"required": ["name"]}},
        "supportedProtocolVersions": {"type": "array", "items": TEXT},
    },
}
IDENTITY = {
    "name": NAME,
    "version": TEXT | {"maxLength": 255},
    "description": TEXT | {"maxLength": 100},
    "title": TEXT | {"maxLength": 100},
    "remotes": {"type": "array", "items": REMOTE},
}
CARD = {
    "type": "object",
    "required": ["$schema", "name", "version", "description"],
    "additionalProperties": False,
    "properties": IDENTITY
    | {"$schema": {"const": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"}},
}
"""What schema.ts of modelcontextprotocol/experimental-ext-server-card says of the members that are used here."""
CATALOG = {
    "type": "object",
    "required": ["specVersion", "entries"],
    "properties": {
        "entries": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["identifier", "displayName", "type", "url"],
                "properties": {
                    "identifier": {"type": "string", "pattern": "^urn:air:[^:]+:[^:]+$"},
                    "type": {"const": "application/mcp-server-card+json"},
                },
            },
        }
    },
}
"""Docs/discovery.md of the same."""
RESPONSE = {
    "type": "object",
    "required": ["server"],
    "properties": {
        "server": {
            "type": "object",
            "required": ["name", "description", "version"],
            "additionalProperties": False,
            "properties": IDENTITY | {"$schema": TEXT},
        }
    },
}
SERVER_LIST = {
    "type": "object",
    "required": ["servers"],
    "properties": {"servers": {"type": "array", "items": RESPONSE}, "metadata": {"required": ["count"]}},
}
"""ServerResponse and ServerList of docs/reference/api/openapi.yaml of modelcontextprotocol/registry."""


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway that serves all of it, and its address."""
    directory = tmp_path_factory.mktemp("discovery")
    ledger: Path = directory / "ledger"
    ledger.touch()
    async with (
        opened_gateway(
            directory / "data", odd_servers(ledger), profiles=PROFILES, serve_cards=True, serve_registry=True
        ) as opened,
        served(opened, token=OWN) as address,
    ):
        yield opened, address


@pytest.fixture
async def client(gateway: tuple[Gateway, str]) -> AsyncIterator[httpx2.AsyncClient]:
    """A caller with the gateway's own token."""
    async with plain_client(base_url=gateway[1], headers={"authorization": f"Bearer {OWN}"}) as opened:
        yield opened


def fits(value: Any, schema: dict[str, Any]) -> Any:
    jsonschema_rs.validate(schema, value)
    return value


async def test_a_card_says_what_the_connection_will_say(client: httpx2.AsyncClient, gateway: Any) -> None:
    """Name and versions as `server/discover` has them; the address is the one to connect to; no secret is in it."""
    _, address = gateway
    reply = await client.get("/mcp/server-card")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/mcp-server-card+json")
    assert reply.headers["cache-control"] == "private, max-age=300"
    assert "access-control-allow-origin" not in reply.headers
    card = fits(reply.json(), CARD)
    (remote,) = card["remotes"]
    assert remote["url"] == f"{address}/mcp"
    async with over_http(address, "modern", headers={"authorization": f"Bearer {OWN}"}) as agent:
        told = agent.greeting["result"]
    assert set(told["supportedVersions"]) <= set(remote["supportedProtocolVersions"])
    assert "2025-11-25" in remote["supportedProtocolVersions"]
    assert (card["title"], card["version"]) == ("smart-mcp-proxy", told["_meta"][META + "serverInfo"]["version"])
    assert (card["name"], remote["headers"][0]["value"]) == ("127.0.0.1/smart-mcp-proxy", "Bearer {token}")
    assert OWN not in reply.text and "old" not in reply.text


@pytest.mark.parametrize("path", CATALOG_PATHS)
async def test_the_catalog_leads_to_a_card_of_each_profile(client: httpx2.AsyncClient, path: str) -> None:
    """Each of which fits its schema and names the profile's own address."""
    catalog = fits((await client.get(path)).json(), CATALOG)
    assert [entry["displayName"] for entry in catalog["entries"]] == [
        "smart-mcp-proxy",
        "smart-mcp-proxy: play",
        "smart-mcp-proxy: work",
    ]
    for entry in catalog["entries"]:
        reply = await client.get(entry["url"])
        card = fits(reply.json(), CARD)
        assert entry["url"] == card["remotes"][0]["url"] + "/server-card"
        assert entry["identifier"].rpartition(":")[2] == card["name"].rpartition("/")[2]


async def test_the_registry_lists_pages_searches_and_shows_one(client: httpx2.AsyncClient) -> None:
    """By the requests that the API documents; following the cursor gives each server once."""
    whole = fits((await client.get("/v0.1/servers")).json(), SERVER_LIST)
    names = [one["server"]["name"] for one in whole["servers"]]
    assert names == [f"127.0.0.1/smart-mcp-proxy{end}" for end in ("", ".play", ".work")]
    assert whole["metadata"] == {"count": 3}
    paged, cursor = [], ""
    for _ in names:
        query = {"limit": "1"} | ({"cursor": cursor} if cursor else {})
        page = fits((await client.get("/v0.1/servers", params=query)).json(), SERVER_LIST)
        paged += [one["server"]["name"] for one in page["servers"]]
        cursor = page["metadata"].get("nextCursor", "")
    assert (paged, cursor) == (names, "")
    for query, count in (
        ({"search": "WORK"}, 1),
        ({"search": "nothing like it"}, 0),
        ({"version": "latest"}, 3),
        ({"version": __version__}, 3),
        ({"version": "0.0.1"}, 0),
        ({"updated_since": "2026-08-07T13:15:04.280Z", "include_deleted": "true"}, 3),
    ):
        assert len((await client.get("/v0.1/servers", params=query)).json()["servers"]) == count
    base = "/v0.1/servers/127.0.0.1%2Fsmart-mcp-proxy.work/versions"
    one = fits((await client.get(f"{base}/latest")).json(), RESPONSE)
    assert one == (await client.get(f"{base}/{__version__}")).json() == whole["servers"][2]
    assert fits((await client.get(base)).json(), SERVER_LIST)["servers"] == [one]
    assert one["_meta"]["io.modelcontextprotocol.registry/official"] == {"status": "active", "isLatest": True}


async def test_another_gateway_adds_a_profile_from_it(gateway: Any, tmp_path: Path) -> None:
    """As `server add --registry` does: its token goes into a variable, never into the answer."""
    settings = Settings(data_dir=tmp_path, registry_url=f"{gateway[1]}/v0.1", registry_token=OWN)
    async with open_registry(settings, {}) as registry:
        listing = await registry.fetch_listing("127.0.0.1/smart-mcp-proxy.work")
    entry = plan_entry(listing.server, {}).entry
    assert entry["url"] == f"{gateway[1]}/mcp/p/work"
    assert entry["headers"] == {"Authorization": "Bearer ${SMART_MCP_PROXY_WORK_TOKEN}"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v0.1/servers?limit=0", 400),
        ("/v0.1/servers?limit=101", 400),
        ("/v0.1/servers?limit=ten", 400),
        ("/v0.1/servers?cursor=%00", 400),
        ("/v0.1/servers?cursor=w6k=w6k", 400),
        ("/v0.1/servers?updated_since=yesterday", 400),
        ("/v0.1/servers?include_deleted=1", 400),
        ("/v0.1/servers?sort=name", 400),
        ("/v0.1/servers/nobody%2Fnothing/versions/latest", 404),
        ("/v0.1/servers/127.0.0.1%2Fsmart-mcp-proxy/versions/9.9.9", 404),
        ("/v0.1/servers/127.0.0.1%2Fsmart-mcp-proxy.old/versions", 404),
        ("/v0.1/servers/127.0.0.1%2Fsmart-mcp-proxy", 404),
        ("/v0.1/servers/" + "x" * 5_000 + "/versions", 404),
        ("/mcp/p/nobody/server-card", 404),
    ],
)
async def test_bad_requests_are_answered_as_the_api_says(client: httpx2.AsyncClient, path: str, status: int) -> None:
    """With one member, `error`, a sentence."""
    reply = await client.get(path)
    assert reply.status_code == status
    assert isinstance(reply.json()["error"], str) and reply.json()["error"]


@pytest.mark.parametrize("path", ALL_PATHS)
async def test_all_of_it_stands_behind_the_checks_of_the_endpoint(gateway: Any, path: str) -> None:
    """Token, Host and Origin, and nothing but reading."""
    async with plain_client(base_url=gateway[1]) as anybody:
        refused = await anybody.get(path)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        good = {"authorization": f"Bearer {OWN}"}
        for headers, status in (
            ({"authorization": "Bearer wrong"}, 401),
            (good | {"host": "evil.example"}, 421),
            (good | {"origin": "https://evil.example"}, 403),
        ):
            assert (await anybody.get(path, headers=headers)).status_code == status
        for method in ("POST", "PUT", "DELETE"):
            assert (await anybody.request(method, path, headers=good)).status_code == 405
        assert (await anybody.head(path, headers=good)).status_code in (200, 404)


async def test_a_scoped_token_learns_of_what_it_reaches_alone(gateway: Any) -> None:
    """Profiles in which it reaches no server are as if they did not exist."""
    opened, address = gateway
    token = (await opened.admin.agent_tokens.create("old-only", Scope(servers=("old",)))).secret
    async with plain_client(base_url=address, headers={"authorization": f"Bearer {token}"}) as narrow:
        catalog = (await narrow.get(CATALOG_PATHS[0])).json()
        assert [entry["displayName"] for entry in catalog["entries"]] == ["smart-mcp-proxy", "smart-mcp-proxy: work"]
        assert "play" not in json.dumps((await narrow.get("/v0.1/servers")).json())
        assert (await narrow.get("/mcp/p/play/server-card")).status_code == 404
        assert (await narrow.get("/mcp/p/work/server-card")).status_code == 200


async def test_nothing_of_it_is_served_unless_it_is_asked_for(tmp_path: Path) -> None:
    """The answers are those of any path that does not exist."""
    async with (
        opened_gateway(tmp_path, odd_servers(tmp_path / "ledger"), profiles=PROFILES) as opened,
        served(opened) as address,
        plain_client(base_url=address) as anybody,
    ):
        statuses = {path: (await anybody.get(path)).status_code for path in ALL_PATHS}
    assert set(statuses.values()) == {404}


@pytest.mark.parametrize("public", [None, "https://tools.example.com/gateway"])
async def test_an_open_gateway_asks_for_no_token_and_a_public_one_names_its_address(
    tmp_path: Path, public: str | None
) -> None:
    """The name is that of its host, the other way round."""
    settings: dict[str, Any] = {"serve_cards": True, "public_url": public}
    async with (
        opened_gateway(tmp_path, odd_servers(tmp_path / "ledger"), **settings) as opened,
        served(opened) as address,
        plain_client(base_url=address) as anybody,
    ):
        card = fits((await anybody.get("/mcp/server-card")).json(), CARD)
        assert (await anybody.get("/v0.1/servers")).status_code == 404  # has a setting of its own
    assert "headers" not in card["remotes"][0]
    assert card["remotes"][0]["url"] == (f"{public}/mcp" if public else f"{address}/mcp")
    assert card["name"] == f"{'com.example.tools' if public else '127.0.0.1'}/smart-mcp-proxy"
