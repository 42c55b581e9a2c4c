"""Managing servers as an agent, as the operator over HTTP and as the user on the private socket."""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import httpx2
import jsonschema_rs
import pytest
from agents import Agent, Era
from described import assert_described
from openapi_pydantic import OpenAPI
from plain_http import plain_client
from transports import ENVIRON, in_memory, served

from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.rest import ROUTES, build_rest_app

pytestmark = pytest.mark.anyio

CANARY = "canary-83be01c7"
PATIENCE_S = 60
SERVERS: dict[str, Any] = {
    "mine": {"command": "none", "env": {"TOKEN": CANARY}, "disabled": True},
    "far": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": f"Bearer {CANARY}"}, "disabled": True},
}


@dataclass
class World:
    """A gateway that can be managed, with everybody who can ask it.

    Attributes:
        file: The user's server file.
        agents: An agent of each era.
        web: Plain HTTP at the gateway's address, without a token.
        operator: The same with the operator's token.
        user: The private socket.
    """

    gateway: Gateway
    file: Path
    agents: dict[Era, Agent]
    web: httpx2.AsyncClient
    operator: httpx2.AsyncClient
    user: httpx2.AsyncClient

    def stored(self) -> dict[str, Any]:
        """The entries in the file."""
        found: dict[str, Any] = json.loads(self.file.read_text())["mcpServers"]
        return found

    async def agent(self, **arguments: Any) -> dict[str, Any]:
        """What `upstream_servers` answers to an agent."""
        result = await self.agents["modern"].call("upstream_servers", **arguments)
        answer: dict[str, Any] = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == answer
        assert result["isError"] == ("error" in answer)
        return answer


@asynccontextmanager
async def opened_world(folder: Path, servers: dict[str, Any], **settings: Any) -> AsyncIterator[World]:
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}, indent=2))
    chosen = Settings(
        data_dir=folder / "data", **{"config_path": file, "manage": True, "isolation": "none", **settings}
    )
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(open_gateway(chosen, load_servers(file).servers, environ=ENVIRON))
        base = await stack.enter_async_context(served(gateway))
        agents: dict[Era, Agent] = {}
        for era in ("handshake", "modern"):
            agents[era] = await stack.enter_async_context(in_memory(gateway, era))

        async def client(**options: Any) -> httpx2.AsyncClient:
            hooks = {"response": [assert_described]}
            made = plain_client(timeout=30, event_hooks=hooks, **options)
            return await stack.enter_async_context(made)

        token = (folder / "data" / "operator.token").read_text().strip()
        address = f"{base}/api/v1/"
        yield World(
            gateway,
            file,
            agents,
            await client(base_url=address),
            await client(base_url=address, headers={"authorization": f"Bearer {token}"}),
            await client(base_url="http://x/api/v1/", transport=httpx2.ASGITransport(build_rest_app(gateway))),
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened_world(tmp_path, SERVERS) as opened:
        yield opened


@pytest.fixture(scope="module")
async def unchanged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One for all tests of requests that change nothing."""
    async with opened_world(tmp_path_factory.mktemp("unchanged"), SERVERS) as opened:
        yield opened


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("manage-listed")
async def test_the_tool_is_listed_where_the_user_asks_for_it(world: World, tmp_path: Path) -> None:
    """In both eras, within its budget, and not at all by default."""
    for agent in world.agents.values():
        tools = (await agent.request("tools/list"))["result"]["tools"]
        found = next(tool for tool in tools if tool["name"] == "upstream_servers")
        assert len(json.dumps(found, separators=(",", ":"))) / 4 <= 450
        assert all("type" in value for value in found["inputSchema"]["properties"].values())
    (tmp_path / "other").mkdir()
    async with opened_world(tmp_path / "other", {}, manage=False) as other:
        tools = (await other.agents["modern"].request("tools/list"))["result"]["tools"]
        assert "upstream_servers" not in [tool["name"] for tool in tools]


@pytest.mark.requirement("manage-quarantine")
async def test_a_server_that_an_agent_adds_waits_until_the_user_approves_it(world: World, tmp_path: Path) -> None:
    """The answer says who can approve it and how; the agent cannot; the user can, and then it starts."""
    proof = tmp_path / "started"
    arguments = {"command": "touch", "args_json": json.dumps([str(proof)]), "env_json": '{"A": "1"}'}
    added = await world.agent(operation="add", name="new", **arguments)
    assert (added["state"], added["quarantined"]) == ("quarantined", True)
    assert "mcpproxy server approve new" in added["message"]
    assert added["changed"] == ["allow", "args", "command", "env.A", "quarantined"]
    written = {"command": "touch", "args": [str(proof)], "env": {"A": "1"}, "quarantined": True}
    assert world.stored()["new"] == written | {"allow": {}}
    for operation in ("restart", "refresh"):
        assert (await world.agent(operation=operation, name="new"))["error"]["code"] == "quarantined"
    assert (await world.web.post("servers/new/approve")).status_code == 401
    assert not proof.exists()
    approved = await world.user.post("servers/new/approve")
    assert approved.json()["changed"] == ["quarantined"]
    with anyio.fail_after(PATIENCE_S):
        while not proof.exists():
            await world.gateway.base.changes.wait()


@pytest.mark.requirement("manage-quarantine")
async def test_only_the_user_sees_in_full_what_waits_for_approval(world: World) -> None:
    """On the private socket; over HTTP, to agents and once it is approved it is masked."""
    await world.agent(operation="add", name="new", command="x", args_json='["--token", "/tmp/evil.js"]')
    assert (await world.user.get("servers/new")).json()["config"]["args"] == ["--token", "/tmp/evil.js"]
    assert (await world.operator.get("servers/new")).json()["config"]["args"] == ["--token", "***"]
    assert "evil" not in json.dumps(await world.agent(operation="list"))
    await world.user.post("servers/new/approve")
    assert (await world.user.get("servers/new")).json()["config"]["args"] == ["--token", "***"]


@pytest.mark.requirement("manage-quarantine")
async def test_only_the_user_sees_in_full_what_would_be_sent_to_an_address(world: World) -> None:
    """Headers, token and sign-in decide as much as arguments do."""
    written = {
        "hasty": {"headers": {"X-Client": "v1 ${file:/home/u/.ssh/id_rsa}", "X-Key": "evil-1"}},
        "keyed": {"authorization_token": "evil-2 ${keyring:bank}"},
        "signed": {"oauth": {"client_id": "c", "client_secret": "evil-3 ${env:HOME}"}},
    }
    for name, fields in written.items():
        entry = {"url": "http://127.0.0.1:1/mcp", **fields}
        config = json.dumps({"mcpServers": {name: entry}})
        await world.agent(operation="import", config_json=config)
        assert (await world.user.get(f"servers/{name}")).json()["config"] == entry | {"quarantined": True}
        told = (await world.operator.get(f"servers/{name}")).text + json.dumps(await world.agent(operation="list"))
        assert "evil-" not in told and "id_rsa" not in told


@pytest.mark.requirement("manage-quarantine")
async def test_a_disabled_server_that_an_agent_enables_waits_for_its_user(world: World) -> None:
    """Enabling is starting; the answer says who decides."""
    done = await world.agent(operation="enable", name="mine")
    assert (done["state"], done["quarantined"]) == ("quarantined", True)
    assert "mcpproxy server approve mine" in done["message"]
    assert not (await world.operator.post("servers/far/enable")).json()["quarantined"]


@pytest.mark.requirement("manage-merge")
async def test_a_patch_changes_what_it_names(world: World) -> None:
    """Seed 3's rules: scalars and arrays replace, maps merge, null removes; the answer names fields, no values."""
    done = await world.agent(operation="patch", name="mine", enabled=True, timeout=5000)
    assert (done["changed"], done["quarantined"]) == (["disabled", "quarantined", "timeout"], True)
    entry = {"command": "none", "env": {"TOKEN": CANARY}, "timeout": 5000}
    assert world.stored()["mine"] == entry | {"quarantined": True}
    await world.user.post("servers/mine/approve")
    done = await world.agent(operation="update", name="mine", env_json='{"B": "2", "TOKEN": "***"}', args_json='["a"]')
    assert (done["changed"], done["quarantined"]) == (["allow", "args", "env.B", "quarantined"], True)
    assert world.stored()["mine"]["env"] == {"TOKEN": CANARY, "B": "2"}
    done = await world.agent(operation="patch", name="mine", env_json="null", args_json="[]")
    assert done["changed"] == ["args", "env.B", "env.TOKEN"]
    done = await world.agent(operation="patch", name="mine", isolation_json='{"images": "node"}')
    assert done["error"]["code"] == "invalid_entry" and "isolation" in done["error"]["message"]


@pytest.mark.requirement("manage-secrets")
async def test_no_answer_shows_a_secret(world: World) -> None:
    """Not to an agent, not over HTTP, not on the socket; references stay readable."""
    texts = [
        json.dumps(await world.agent(operation="list")),
        json.dumps(await world.agent(operation="patch", name="mine", timeout=5000)),
        json.dumps(await world.agent(operation="patch", name="mine", headers_json="[1]")),
        json.dumps(await world.agent(operation="add", name="mine", command="x")),
        json.dumps(await world.agent(operation="remove", name="far")),
    ]
    for client in (world.operator, world.user):
        replies = [await client.get(path) for path in ("status", "servers", "servers/mine", "config", "profiles")]
        assert [reply.status_code for reply in replies] == [200] * len(replies)
        texts += [reply.text for reply in replies]
    assert "***" in texts[0] and all(CANARY not in text for text in texts)


@pytest.mark.requirement("manage-settings")
async def test_settings_and_bad_requests_are_refused_with_the_next_step(tmp_path: Path, world: World) -> None:
    """As results with a code, whatever was wrong."""
    wrong = {
        "invalid_arguments": {"operation": "add"},
        "server_not_found": {"operation": "enable", "name": "min"},
        "server_exists": {"operation": "add", "name": "MINE", "command": "x"},
        "revision_conflict": {"operation": "remove", "name": "mine", "revision": "sha256:0"},
        "operator_only": {"operation": "patch", "name": "mine", "url": "http://localhost", "command": ""},
        "invalid_entry": {"operation": "import", "config_json": "nothing"},
    }
    for code, arguments in wrong.items():
        error = (await world.agent(**arguments))["error"]
        assert (error["code"], error["delivery"]) == (code, "not_sent"), error
        assert error["hint"]
    before = world.file.read_text()
    (tmp_path / "locked").mkdir()
    async with opened_world(tmp_path / "locked", SERVERS, read_only=True) as locked:
        assert (await locked.agent(operation="enable", name="mine"))["error"]["code"] == "read_only"
        assert (await locked.operator.post("servers/mine/enable")).status_code == 403
        assert len((await locked.agent(operation="list"))["servers"]) == 2
    assert world.file.read_text() == before


@pytest.mark.requirement("manage-no-spawn")
@pytest.mark.long  # half a second of work and more
async def test_no_word_of_an_agent_starts_a_process(world: World, tmp_path: Path) -> None:
    """Every operation and every route, with a program in every field that could take one.

    The programs are real: once the user approves one of them, it runs.
    """
    proofs = tmp_path / "proofs"
    proofs.mkdir()

    def program(name: str) -> dict[str, Any]:
        return {"command": "touch", "args": [str(proofs / name)]}

    def flat(name: str) -> dict[str, str]:
        return {"command": "touch", "args_json": json.dumps([str(proofs / name)])}

    shell = f"touch {proofs}/shell"
    for count, operation in enumerate(
        ["add", "update", "patch", "enable", "disable", "restart", "refresh", "tail_log", "list", "remove"]
    ):
        for name in ("mine", "far", f"new{count}", f"$({shell})", f"`{shell}`"):
            await world.agent(operation=operation, name=name, enabled=True, **flat(f"{operation}-{count}"))
            await world.agent(operation=operation, name=name, command=shell, cwd=f"$({shell})", type="stdio")
            await world.agent(operation=operation, name=name, url=f"file:///bin/sh -c '{shell}'")
    names = sorted(world.stored())
    text = json.dumps({"mcpServers": {"imported": program("imported"), "mine": program("mine")}})
    await world.agent(operation="import", config_json=text)
    for name in names:
        await world.agent(operation="enable", name=name)
        await world.agent(operation="restart", name=name)
    for endpoint in ROUTES:
        path = endpoint.path.lstrip("/").replace("{name:path}", "mine").replace("{name}", "mine").replace("{id}", "1")
        for body in (
            {"name": "web", "config": program("web")},
            {"config": program("patch")},
            {"text": text},
            program("bare"),
        ):
            reply = await world.web.request(endpoint.method, path, json=body)
            assert reply.status_code == 401 or endpoint.operation.least is None, (endpoint, reply.text)
    assert (await world.operator.post("servers", json={"name": "web", "config": program("web")})).json()["quarantined"]
    assert (await world.user.post("servers/imported/approve")).status_code == 200
    with anyio.fail_after(PATIENCE_S):
        while not (proofs / "imported").exists():
            await world.gateway.base.changes.wait()
    assert [found.name for found in proofs.iterdir()] == ["imported"]


def filled(schema: dict[str, Any], text: str) -> list[Any]:
    """Values of a schema that hold `text` wherever it allows any."""
    kinds = schema.get("type", [])
    found: list[Any] = [text] if "string" in kinds and "enum" not in schema else []
    if "array" in kinds:
        found += [[value] for value in filled(schema.get("items", {}), text)]
    if "object" in kinds:
        found.append({"command": text, "args": ["-c", text], text: text, "mcpServers": {"x": {"command": text}}})
    return found


@pytest.mark.requirement("manage-no-spawn")
@pytest.mark.long  # hundreds of calls; no word of an agent stays quick
async def test_no_argument_of_any_tool_and_no_body_starts_a_process(tmp_path: Path) -> None:
    """Every tool that an agent is listed, every argument of it, and every address that it could ask over HTTP."""
    shell = f"touch {tmp_path}/proof"
    words = (shell, f"$({shell})", f"`{shell}`", f"; {shell} #", f"file:///bin/sh?{shell}", f"mine:{shell}")
    settings: dict[str, Any] = {"proxy_tool": "proxy", "code": "python"}
    async with opened_world(tmp_path, SERVERS, **settings) as world:
        agent = world.agents["modern"]
        tools = (await agent.request("tools/list"))["result"]["tools"]
        assert {"retrieve_tools", "call_tool_write", "upstream_servers", "proxy", "code_execution"} <= {
            tool["name"] for tool in tools
        }
        asked = 0
        for tool in tools:
            members = tool["inputSchema"]["properties"]
            given = {name: "mine:tool" if name == "name" else "x" for name in tool["inputSchema"].get("required", ())}
            for name, schema in members.items():
                for word in words:
                    for value in filled(schema, word):
                        answer = await agent.request("tools/call", name=tool["name"], arguments={**given, name: value})
                        assert answer.keys() & {"result", "error"}
                        asked += 1
        base = str(world.web.base_url).removesuffix("/api/v1/")
        for word in words:
            call = {"jsonrpc": "2.0", "id": 1, "method": word, "params": {"name": word, "command": word}}
            for path in ("mcp", "mcp/p/x", "api/mcp/mine/proxy", "api/mcp/far/proxy", f"api/mcp/{quote(word)}/proxy"):
                reply = await world.web.post(f"{base}/{path}", json=call, headers={"accept": "*/*"})
                assert 400 <= reply.status_code < 600, (path, reply.text)
        assert asked > 100
        assert not (tmp_path / "proof").exists()
    subprocess.run(["/bin/sh", "-c", shell], check=True)
    assert (tmp_path / "proof").exists(), "the words are a command after all"


@pytest.mark.requirement("rest-network")
@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "status", {}, 200),
        ("GET", "servers", {}, 401),
        ("GET", "servers", {"authorization": "Bearer wrong"}, 401),
        ("GET", "servers", {"authorization": "Basic TOKEN"}, 401),
        ("GET", "servers", {"authorization": "TOKEN"}, 401),
        ("GET", "servers", {"authorization": "Bearer TOKENx"}, 401),
        ("GET", "servers", {"authorization": "Bearer TOKEN"}, 200),
        ("GET", "servers", {"authorization": "bearer TOKEN", "origin": "http://localhost:3000"}, 200),
        ("GET", "servers", {"authorization": "Bearer TOKEN", "host": "evil.example"}, 421),
        ("GET", "status", {"host": "evil.example"}, 421),
        ("GET", "status", {"origin": "http://evil.example"}, 403),
        ("GET", "status", {"origin": "null"}, 403),
        ("POST", "servers/mine/enable", {}, 401),
        ("POST", "servers/mine/enable", {"authorization": "Bearer TOKEN"}, 200),
        ("POST", "servers/mine/enable", {"authorization": "Bearer TOKEN", "origin": "http://evil.example"}, 403),
        ("POST", "servers", {"authorization": "Bearer TOKEN", "content-type": "text/plain"}, 415),
        (
            "POST",
            "servers",
            {"authorization": "Bearer TOKEN", "content-type": "application/x-www-form-urlencoded"},
            415,
        ),
        ("POST", "servers", {"authorization": "Bearer TOKEN", "content-type": "application/json"}, 400),
        ("OPTIONS", "servers", {"origin": "http://localhost"}, 405),
        ("DELETE", "status", {"authorization": "Bearer TOKEN"}, 405),
        ("GET", "nothing", {}, 404),
    ],
)
async def test_the_network_is_let_in_by_host_origin_and_the_operators_token(
    unchanged: World, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    """Every refusal is JSON that says what to do; no page elsewhere is ever let in."""
    token = unchanged.operator.headers["authorization"].partition(" ")[2]
    sent = {name: value.replace("TOKEN", token) for name, value in headers.items()}
    reply = await unchanged.web.request(method, path, headers=sent)
    assert reply.status_code == status, reply.text
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert (status == 401) == ("www-authenticate" in reply.headers)
    if status >= 400:
        assert {"code", "message", "hint"} <= reply.json()["error"].keys()
        assert token not in reply.text


@pytest.mark.requirement("rest-network")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("OPTIONS", "servers", "GET, POST"),
        ("POST", "servers/mine", "GET, PATCH, PUT, DELETE"),
        ("PUT", "servers/mine/enable", "POST"),
        ("DELETE", "servers/mine/logs", "GET"),
        ("GET", "approvals/approve", "POST"),
    ],
)
async def test_a_method_that_a_path_has_not_is_refused_with_those_it_has(
    unchanged: World, method: str, path: str, allowed: str
) -> None:
    """A change of `servers/mine/enable` is not one of a server of that name."""
    reply = await unchanged.operator.request(method, path)
    assert (reply.status_code, reply.headers["allow"]) == (405, allowed)
    assert reply.json()["error"]["code"] == "http_method_not_allowed"


@pytest.mark.requirement("rest-network")
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "servers/", 405), ("POST", "call/", 404), ("GET", "config/", 404), ("GET", "../../openapi.json/", 404)],
)
async def test_a_slash_too_many_is_told_and_not_redirected(
    unchanged: World, method: str, path: str, status: int
) -> None:
    """A redirect may lose the body or the token."""
    for client in (unchanged.operator, unchanged.web):
        reply = await client.request(method, str(client.base_url.join(path)), json={} if method == "POST" else None)
        assert (reply.status_code, reply.json()["error"]["hint"]) == (status, "Leave out the slash at its end.")


@pytest.mark.requirement("rest-network")
@pytest.mark.parametrize("query", ["q=a&detail=long", "q=a&read_only=yes", "q=a&why=1", "q=a&limit=0", "q=", ""])
async def test_a_word_that_a_search_does_not_know_is_an_error(unchanged: World, query: str) -> None:
    """And not taken for another one."""
    reply = await unchanged.operator.get(f"search?{query}")
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.requirement("rest-network")
async def test_a_search_tells_an_operator_why_a_tool_is_not_in_its_answer(world: World) -> None:
    """The verdict that decides, a sentence, and the server's state; a profile that is not there is an error."""
    told = (await world.operator.get("search?q=dig&why_not=mine:dig")).json()
    assert (told["name"], told["verdict"]) == ("mine:dig", "server_disabled")
    assert told["reason"].startswith("Server 'mine' is disabled.")
    assert told["server"] == {"name": "mine", "state": "disabled"}
    assert told["rank"] is told["score"] is told["top"] is None
    for query, status in {"q=dig&profile=none": 404, "q=dig&why_not=": 404, "why_not=mine:dig": 400}.items():
        assert (await world.operator.get(f"search?{query}")).status_code == status
    assert (await world.web.get("search?q=dig&why_not=mine:dig")).status_code == 401


@pytest.mark.requirement("rest-network")
@pytest.mark.parametrize("body", [b'{"name": "\xff"}', b"\xff\xfe", b"[" * 100_000, b'{"name": 1}', b""])
async def test_a_body_that_cannot_be_read_is_the_callers_fault(unchanged: World, body: bytes) -> None:
    """Bytes that are no UTF-8 included: 400, and what to do."""
    for client in (unchanged.operator, unchanged.user):
        reply = await client.post("servers", content=body, headers={"content-type": "application/json"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.requirement("rest-network")
async def test_a_misspelt_field_is_refused_and_nothing_done(world: World) -> None:
    """Left out of account, it would widen a token, drop a guard against a stale change, or call without arguments."""
    stored = world.file.read_text()
    for client in (world.operator, world.user):
        for method, path, body, word in (
            ("POST", "tokens", {"name": "wide", "server": ["mine"]}, "server"),
            ("POST", "servers", NEW | {"name": "new", "revison": "x"}, "revison"),
            ("PATCH", "servers/mine", {"config": {"timeout": 5000}, "revison": "x"}, "revison"),
            ("POST", "call", {"name": "mine:x", "args": {}}, "args"),
            ("POST", "approvals/approve", {"tools": [], "reopen": True}, "reopen"),
        ):
            reply = await client.request(method, path, json=body)
            error = reply.json()["error"]
            assert (reply.status_code, error["code"]) == (400, "invalid_request")
            assert f"`{word}`" in error["message"] and error["hint"].startswith("Send a JSON object with: "), error
    assert (await world.operator.get("tokens")).json() == {"tokens": []} and world.file.read_text() == stored


@pytest.mark.requirement("rest-network")
@pytest.mark.parametrize(
    ("method", "path", "known"),
    [
        ("DELETE", "servers/mine?revison=x", "revision"),
        ("POST", "servers/mine/disable?dry_run=1", "revision"),
        ("DELETE", "examples?tol=mine:x", "tool, question"),
        ("GET", "search?q=a&servers=mine", "q, limit, detail, server, read_only, why, types, profile, why_not"),
        ("GET", "servers?all=1", "none"),
    ],
)
async def test_a_misspelt_parameter_is_refused_and_nothing_done(
    unchanged: World, method: str, path: str, known: str
) -> None:
    """Without the one that was meant, more would be done than was asked for."""
    reply = await unchanged.operator.request(method, path)
    assert (reply.status_code, reply.json()["error"]["hint"]) == (400, f"It takes: {known}.")
    assert list(unchanged.stored()) == list(SERVERS)


@pytest.mark.requirement("rest-network")
@pytest.mark.parametrize(
    "path", ["servers/mine/logs?lines=", "search?q=a&limit=", "activity?limit=", "activity?after="]
)
async def test_a_number_of_any_length_is_answered(unchanged: World, path: str) -> None:
    """Also one with more digits than are ever read."""
    reply = await unchanged.operator.get(path + "9" * 5_000)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.requirement("rest-servers")
async def test_switching_a_server_for_a_stale_revision_is_a_conflict(world: World) -> None:
    """By an agent as by the operator; nothing is switched."""
    for operation in ("enable", "disable"):
        answer = await world.agent(operation=operation, name="mine", revision="sha256:0")
        assert answer["error"]["code"] == "revision_conflict"
    revision = (await world.agent(operation="list"))["revision"]
    assert (await world.agent(operation="enable", name="mine", revision=revision))["changed"]


@pytest.mark.requirement("rest-network")
async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(world: World) -> None:
    """Nothing is done, and nothing is raised."""
    scope = {
        **{"type": "http", "method": "POST", "path": "/api/v1/servers", "raw_path": b"", "query_string": b""},
        **{"headers": [(b"content-type", b"application/json")], "http_version": "1.1", "scheme": "http"},
    }
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b'{"name"', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        pass

    await build_rest_app(world.gateway)(scope, receive, send)
    assert messages == [] and list(world.stored()) == list(SERVERS)


@pytest.mark.requirement("rest-network")
async def test_a_token_for_an_agent_that_is_taken_unknown_or_odd_is_told_by_status(world: World) -> None:
    """409, 404 and 400."""
    ask = world.operator
    assert (await ask.post("tokens", json={"name": "ci"})).status_code == 200
    for reply, status, code in (
        (await ask.post("tokens", json={"name": "ci"}), 409, "token_exists"),
        (await ask.delete("tokens/nobody"), 404, "token_not_found"),
        (await ask.post("tokens", json={"name": "x", "expires_in_s": 1e300}), 400, "invalid_request"),
        (await ask.patch("status"), 405, "http_method_not_allowed"),
    ):
        assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert [token["name"] for token in (await ask.get("tokens")).json()["tokens"]] == ["ci"]


@pytest.mark.requirement("rest-network")
async def test_the_operators_token_is_the_owners_own(world: World) -> None:
    """Nobody else can read it; without it the status says next to nothing."""
    file = world.gateway.settings.data_dir / "operator.token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert (await world.web.get("status")).json().keys() == {"version", "is_loaded", "is_settled"}
    assert "servers" in (await world.operator.get("status")).json()


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("rest-servers")
async def test_servers_are_managed_over_rest(world: World) -> None:
    """Each route does what it says, in the file and in the gateway; a stale revision is a conflict."""
    ask, revision = world.operator, (await world.operator.get("servers")).json()["revision"]
    entry = {"url": "http://127.0.0.1:9/mcp", "disabled": True}
    added = (await ask.post("servers", json={"name": "web", "config": entry, "revision": revision})).json()
    assert (added["state"], added["quarantined"]) == ("quarantined", True)
    stale = await ask.patch("servers/web", json={"config": {"timeout": 5000}, "revision": revision})
    assert (stale.status_code, stale.json()["error"]["data"]) == (409, {"revision": added["revision"]})
    replaced = (await ask.put("servers/web", json={"config": {"url": "http://127.0.0.1:9/other"}})).json()
    assert (replaced["changed"], replaced["quarantined"]) == (["disabled", "url"], True)
    assert (await ask.get("servers/web")).json()["state"] == "quarantined"
    shown = (await ask.get("servers/web")).json()
    assert (await ask.post("servers/web/approve", params={"revision": revision})).status_code == 409
    done = (await ask.post("servers/web/approve", params={"revision": shown["revision"]})).json()
    assert not done["quarantined"] and "web" in world.gateway.visible.servers
    assert (await ask.post("servers/web/disable")).json()["state"] == "disabled"
    restarted = await ask.post("servers/web/restart")
    assert (restarted.status_code, restarted.json()["error"]["code"]) == (409, "server_disabled")
    imported = (
        await ask.post("servers/import", json={"text": '{"i": {"command": "x"}, "mine": {"command": "x"}}'})
    ).json()
    assert (imported["added"], list(imported["skipped"])) == (["i"], ["mine"])
    config = (await ask.get("config")).json()
    assert (config["path"], list(config["servers"])) == (str(world.file), ["mine", "far", "web", "i"])
    removed = await ask.delete("servers/web", params={"revision": config["revision"]})
    assert removed.json()["state"] == "removed" and "web" not in world.gateway.visible.servers
    assert (await ask.get("servers/web")).status_code == 404
    assert (await ask.get("servers/mine/logs", params={"lines": 5})).json() == {"server": "mine", "lines": []}
    trusted = (await world.user.post("servers", json={"name": "own", "config": entry})).json()
    assert not trusted["quarantined"]


@pytest.mark.requirement("rest-servers")
@pytest.mark.long  # half a second of work and more
async def test_changes_that_come_at_once_are_all_made(world: World) -> None:
    """Fifty patches of one server, by agents and by the operator: none is lost."""
    await asyncio.gather(
        *(world.agent(operation="patch", name="mine", env_json=json.dumps({f"A{n}": "1"})) for n in range(25)),
        *(world.operator.patch("servers/mine", json={"config": {"env": {f"B{n}": "1"}}}) for n in range(25)),
    )
    assert len(world.stored()["mine"]["env"]) == 51


@pytest.mark.requirement("manage-recorded")
async def test_every_change_is_recorded_with_its_author_and_refused_ones_with_their_code(world: World) -> None:
    """By field names; what the fields hold is nobody's business."""
    await world.agent(operation="patch", name="mine", env_json=json.dumps({"B": CANARY}))
    await world.agent(operation="add", name="a:b", command=CANARY)
    await world.operator.post("servers/mine/approve")
    await world.user.post("servers/mine/refresh")
    await world.agent(operation="restart", name="far")
    await world.user.delete("servers/far")
    found: list[dict[str, Any]] = []
    with anyio.fail_after(PATIENCE_S):
        while len(found) < 6:
            reply = await world.operator.get("activity", params={"kind": "config"})
            found = reply.json()["items"]
    assert CANARY not in reply.text
    assert {(one["principal"], one["subject"], one["outcome"]) for one in found} == {
        ("local", "mine", "ok"),
        ("local", "a:b", "invalid_request"),
        ("web", "mine", "ok"),
        ("operator", "mine", "server_disabled"),
        ("local", "far", "server_disabled"),
        ("operator", "far", "ok"),
    }
    changes = {(one["detail"]["by"], one["detail"]["change"]) for one in found}
    assert {("agent", "changed"), ("operator", "refreshed"), ("agent", "restarted")} <= changes


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("openapi")
async def test_the_description_of_the_interface_is_that_of_its_routes(world: World) -> None:
    """OpenAPI 3.1; each route of the table is described and served, each schema is one, answers fit theirs."""
    document = (await world.web.get(str(world.web.base_url.join("/openapi.json")))).json()
    OpenAPI.model_validate(document)
    operations = {
        (method, path)
        for path, found in document["paths"].items()
        for method in found
        if path.startswith("/api/v1/")  # the broker's are checked with the broker
    }
    table = {(row.method.lower(), "/api/v1" + row.path.replace(":path", "")) for row in ROUTES}
    assert operations == table and len(table) == len(ROUTES)
    ids = [one["operationId"] for found in document["paths"].values() for one in found.values()]
    assert len(set(ids)) == len(ids)
    for path in ("status", "servers", "servers/mine", "config", "profiles", "tools", "servers/mine/logs"):
        template = "/api/v1/" + path.replace("mine", "{name}")
        operation = document["paths"][template]["get"]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        checked = jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})
        checked.validate((await world.operator.get(path)).json())
        assert (operation["security"] == []) == (path == "status")


NEW = {"config": {"url": "https://example.com/mcp"}}
STALE = {"revision": "sha256:0"}
FAILURES: list[tuple[str, str, Any, int]] = [
    *(("GET", f"/servers/nobody{part}", None, 404) for part in ("", "/logs")),
    *(
        ("POST", f"/servers/nobody/{verb}", None, 404)
        for verb in ("enable", "disable", "approve", "restart", "refresh")
    ),
    *(("POST", f"/servers/mine/{verb}", None, 409) for verb in ("restart", "refresh")),
    *((verb, "/servers/nobody", NEW, 404) for verb in ("PATCH", "PUT")),
    *((verb, "/servers/mine", NEW | STALE, 409) for verb in ("PATCH", "PUT")),
    *(("POST", f"/servers/mine/{verb}?revision=x", None, 409) for verb in ("enable", "disable")),
    ("POST", "/servers", NEW | {"name": "mine"}, 409),
    ("DELETE", "/servers/nobody", None, 404),
    ("DELETE", "/servers/mine?revision=x", None, 409),
    ("POST", "/servers/mine/approve?revision=x", None, 409),
    *((verb, "/servers/nobody/login", None, 404) for verb in ("GET", "POST")),
    *(
        ("POST", f"/servers/{name}/login/address", {"address": "x"}, code)
        for name, code in (("nobody", 404), ("mine", 409))
    ),
    ("GET", "/listing?server=nobody", None, 404),
    ("GET", "/tools?server=nobody", None, 404),
    ("GET", "/tools/nobody:x", None, 404),
    ("DELETE", "/examples?tool=nobody:x", None, 404),
    ("GET", "/search?q=a&server=nobody", None, 404),
    ("GET", "/approvals?server=nobody", None, 404),
    ("GET", "/approvals/nobody:x", None, 404),
    ("POST", "/approvals/approve", {"tools": [{"name": "nobody:x", "hash": ""}]}, 404),
    ("POST", "/approvals/reseal", None, 409),
    *(("POST", f"/approvals/{verb}", {"name": "nobody:x"}, 404) for verb in ("block", "unblock")),
    ("GET", "/activity/nothing", None, 404),
    ("POST", "/tokens", {"name": "ci"}, 409),
    ("DELETE", "/tokens/nobody", None, 404),
    ("DELETE", "/sign-ins/nobody", None, 404),
]
ELSEWHERE = {("POST", "/call"), ("POST", "/approvals/approve"), ("GET", "/tools/{name:path}"), ("GET", "/sign-ins")}
"""Their other failures need a server at work: test_agent_broker.py, test_agent_approval.py, test_bad_upstreams.py and
test_own_sign_ins.py show them."""


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("openapi")
async def test_every_failure_that_a_route_describes_happens(world: World, tmp_path: Path) -> None:
    """None is there for show: each handler is made to fail in each of its ways."""
    assert (await world.operator.post("tokens", json={"name": "ci"})).status_code == 200
    met: set[tuple[str, str, int]] = set()
    for method, path, body, status in FAILURES:
        reply = await world.operator.request(method, path.removeprefix("/"), json=body)
        assert reply.status_code == status, (method, path, reply.text)
        met.add((*_route_of(method, path.partition("?")[0]), status))
    (tmp_path / "inline").mkdir()
    async with opened_world(tmp_path / "inline", SERVERS, config_json="{}", config_path=None) as inline:
        for row in ROUTES:
            if 400 in (failure.http_status for failure in row.failures):
                every = {"name": "new", "text": json.dumps({"mcpServers": {"new": NEW["config"]}}), **NEW}
                body = {name: every[name] for name in getattr(row.body, "__struct_fields__", ()) if name in every}
                path = row.path.replace("{name:path}", "mine").removeprefix("/")
                reply = await inline.operator.request(row.method, path, json=body if row.body else None)
                assert reply.json()["error"]["code"] == "config_read_only", reply.text
                met.add((row.method, row.path, 400))
    for row in ROUTES:
        described = {failure.http_status for failure in row.failures} - {500}
        missing = {status for status in described if (row.method, row.path, status) not in met}
        assert not missing or (row.method, row.path) in ELSEWHERE, (row.method, row.path, missing)


def _route_of(method: str, path: str) -> tuple[str, str]:
    """The row of the table that answers this: the one with the fewest words left open."""
    fitting = [
        row.path
        for row in ROUTES
        if row.method == method and re.fullmatch(re.sub(r"\{[^}]+\}", ".+", row.path), path) is not None
    ]
    return method, min(fitting, key=lambda each: (each.endswith("}"), each.count("{")))
