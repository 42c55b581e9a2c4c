"""A whole life of a gateway with secrets of every kind, and servers that give them away: nobody reads one of them."""

import asyncio
import base64
import json
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import anyio
import httpx2
import pytest
from agents import Era
from forked_programs import run_forked
from plain_http import plain_client
from run_wire import came_from_agent, configured_with, noting
from transports import ENVIRON, over_http

from smart_mcp_proxy.web.rest import ROUTES

pytestmark = [pytest.mark.anyio, pytest.mark.long]

UPSTREAM = Path(__file__).parent / "leaking_upstream.py"
COMMAND = (sys.executable, "-m", "smart_mcp_proxy")
DEADLINE_S = 60.0


def canary(name: str) -> str:
    """A secret that each of the spellings writes in another way."""
    return f'{name}/cAnAry+7f3"1=&9b{name}'


ENV, SHELL, OPTION, WORD, QUERY, PASSWORD = map(canary, ("env", "shell", "option", "word", "query", "password"))
HEADER, BEARER, OWN = map(canary, ("header", "bearer", "own"))
ADDED, PATCHED, ARGUMENT = map(canary, ("added", "patched", "argument"))
PLAIN = {name: name.replace('"', "") for name in (HEADER, BEARER, OWN)}
"""As they can stand in a header."""
CANARIES = (ENV, SHELL, OPTION, WORD, QUERY, PASSWORD, ADDED, PATCHED, ARGUMENT, *PLAIN.values())


def spellings(secret: str) -> set[bytes]:
    """How it is searched for: as it is, in hex, in an address, in JSON, and in base64 wherever in a text it begins."""
    raw = secret.encode()
    in_base64 = {base64.b64encode(bytes(n) + raw)[-(-n * 8 // 6) : (n + len(raw)) * 8 // 6] for n in range(3)}
    in_json = json.dumps(secret)[1:-1]
    words = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), in_json, json.dumps(in_json)[1:-1]}
    in_either = in_base64 | {word.translate(bytes.maketrans(b"+/", b"-_")) for word in in_base64}
    return {word.encode() for word in words} | in_either | {raw.hex().encode(), raw.hex().upper().encode()}


def leaks(name: str, content: bytes) -> list[str]:
    """Which secrets stand in it."""
    return [
        f"{name}: {secret} as {word.decode()} in ...{content[max(0, at - 100) : at + 60]!r}"
        for secret in CANARIES
        for word in spellings(secret)
        if (at := content.find(word)) >= 0
    ]


class Life:
    """A gateway process with its servers, and all that anybody was told by it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.file = directory / "servers.json"
        self.told: list[tuple[str, bytes]] = []
        self.base = ""

    @property
    def environ(self) -> dict[str, str]:
        settings = {"DATA_DIR": str(self.data_dir), "CONFIG_PATH": str(self.file), "AUTH_TOKEN": PLAIN[OWN]}
        logs = {"LOG_FILE": str(self.directory / "log"), "LOG_LEVEL": "DEBUG", "MANAGE": "true"}
        return (
            ENVIRON | {"CANARY_SHELL": SHELL} | {f"MCPPROXY_{key}": text for key, text in {**settings, **logs}.items()}
        )

    def write_servers(self, port: int) -> None:
        """Secrets in every place that takes one."""
        env = {"CANARY_ENV": ENV, "CANARY_FROM_SHELL": "${CANARY_SHELL}"}
        words = ["--api-key", OPTION, f"--token={WORD}"]
        headers = {"X-Key": PLAIN[HEADER], "Authorization": f"Bearer {PLAIN[BEARER]}"}
        configured_with(headers)
        address = f"http://user:{quote(PASSWORD, safe='')}@127.0.0.1:{port}"
        query = f"?api_key={quote(QUERY, safe='')}"
        servers: dict[str, Any] = {
            mode: {"command": sys.executable, "args": ["-S", str(UPSTREAM), mode, *words], "env": env}
            for mode in ("tells", "dies", "babbles")
        }
        servers["web"] = {"url": f"{address}/mcp{query}", "headers": headers, "proxy": True}
        servers["broken"] = {"url": f"{address}/broken{query}", "headers": headers}
        servers["keyed"] = {"type": "url", "url": f"http://127.0.0.1:{port}/mcp", "authorization_token": PLAIN[BEARER]}
        self.file.write_text(json.dumps({"mcpServers": servers}))

    async def run(self, *words: str) -> bytes:
        """What a command prints."""
        run = partial(run_forked, *words, cwd=self.directory, env=self.environ)
        _, out, err = await anyio.to_thread.run_sync(run)
        self.told.append((f"mcpproxy {' '.join(words)}", out + err))
        return out

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
        """Every answer to it is kept, head and body; of one without an end, what comes within a second."""
        came_from_agent(options.get("headers", {}).items())

        async def keep(reply: httpx2.Response) -> None:
            if reply.headers.get("content-type", "").startswith("text/event-stream") and reply.request.method == "GET":
                parts = []
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        async for part in reply.aiter_bytes():
                            parts.append(part)
                body = b"".join(parts)
            else:
                body = await reply.aread()
            head = "".join(f"{name}: {value}\n" for name, value in reply.headers.items())
            self.told.append((f"{reply.request.method} {reply.request.url}", head.encode() + body))

        async with plain_client(timeout=DEADLINE_S, event_hooks={"response": [keep]}, **options) as made:
            yield made

    def files(self) -> Iterable[tuple[str, bytes]]:
        """All that lies on the disk but the server file, which is where the secrets belong."""
        for path in self.directory.rglob("*"):
            if path.is_file() and path != self.file:
                yield str(path.relative_to(self.directory)), path.read_bytes()


@asynccontextmanager
async def alive(life: Life) -> AsyncIterator[None]:
    """The process, from its first answer to its end; its two streams are files."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    life.base = f"http://127.0.0.1:{port}"
    with (life.directory / "out").open("wb") as out, (life.directory / "err").open("wb") as err:
        child = await asyncio.create_subprocess_exec(
            *COMMAND, "serve", "--http", "--port", str(port), env=life.environ, stdin=-3, stdout=out, stderr=err
        )
    try:
        async with asyncio.timeout(DEADLINE_S), plain_client() as client:
            while not await is_up(client, life.base):
                await asyncio.sleep(0.05)
        yield
        child.terminate()
        async with asyncio.timeout(DEADLINE_S):
            await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def is_up(client: httpx2.AsyncClient, base: str) -> bool:
    try:
        return (await client.get(f"{base}/readyz")).status_code == 200
    except httpx2.TransportError:
        return False


async def act_as_agent(life: Life, era: Era) -> None:
    """Searches, calls that fail, and everything an agent may do with servers."""
    own = {"authorization": f"Bearer {PLAIN[OWN]}"}
    async with over_http(life.base, era, own) as agent:

        async def ask(tool: str, **arguments: Any) -> None:
            answer = await agent.request("tools/call", name=tool, arguments=arguments)
            life.told.append((f"{era} {tool} {arguments}", json.dumps(answer, ensure_ascii=False).encode()))

        async with asyncio.timeout(DEADLINE_S):
            while not (await agent.call("retrieve_tools", query="tells:fail"))["structuredContent"]["tools"]:
                await asyncio.sleep(0.05)
        await ask("retrieve_tools", query="fails")
        await ask("describe_tool", names=["tells:fail", "web:fail", "dies:fail"])
        for server in ("tells", "web", "keyed", "broken", "dies", "babbles"):
            await ask("call_tool_write", name=f"{server}:fail", args={"any": ARGUMENT})
            for operation in ("list", "tail_log", "refresh", "restart"):
                await ask("upstream_servers", operation=operation, name=server)
        await ask("call_tool_write", name="tells:fail", args_json='{"any": ' + json.dumps(ARGUMENT))
        added = {"env_json": json.dumps({"TOKEN": ADDED}), "args_json": json.dumps(["--key", ADDED])}
        await ask("upstream_servers", operation="add", name=f"new-{era}", command="none", **added)
        await ask("upstream_servers", operation="add", name="odd", url=f"http://u:{quote(ADDED)}@[/mcp")
        await ask("upstream_servers", operation="patch", name=f"new-{era}", env_json=json.dumps({"MORE": PATCHED}))
        await ask("upstream_servers", operation="patch", name=f"new-{era}", env_json=json.dumps({"MORE": [PATCHED]}))
        config = json.dumps({"mcpServers": {f"imported-{era}": {"command": "none", "env": {"K": ADDED}}}})
        await ask("upstream_servers", operation="import", config_json=config)
        await ask("upstream_servers", operation="import", config_json=config[:-1])
        await ask("upstream_servers", operation="list")


async def act_as_operator(life: Life) -> None:
    """Every route of the interface, the broker, and requests that are refused."""
    token = (life.data_dir / "operator.token").read_text().strip()
    async with life.client(base_url=life.base, headers={"authorization": f"Bearer {token}"}) as client:
        for endpoint in ROUTES:
            for name in ("tells", "web", "dies"):
                path = endpoint.path.replace("{name:path}", name).replace("{id}", "1")
                if path == "/events":
                    async with client.stream("GET", "/api/v1/events?after=0"):
                        pass
                elif endpoint.method == "GET":
                    await client.get(f"/api/v1{path}")
                elif path.endswith(("/restart", "/refresh", "/call")):
                    await client.post(f"/api/v1{path}", json={"name": f"{name}:fail", "args": {"any": ARGUMENT}})
        await client.post("/api/v1/servers", json={"name": "bad", "config": {"env": {"A": [ADDED]}, "command": 1}})
        await client.post("/api/v1/servers/import", json={"text": '{"a": ' + json.dumps(ADDED)})
        for path in ("/healthz", "/readyz", "/openapi.json", "/nothing"):
            await client.get(path)
    async with life.client(base_url=life.base, headers={"authorization": f"Bearer {PLAIN[OWN]}"}) as client:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fail", "arguments": {}}}
        for name in ("web", "tells", "broken"):
            await client.post(f"/api/mcp/{name}/proxy", json=call)
            await client.get(f"/api/mcp/{name}/proxy/status")
        await client.get("/api/connections")
    async with life.client(base_url=life.base, headers={"authorization": f"Bearer x{PLAIN[OWN]}"}) as client:
        await client.post("/mcp", json={})
        await client.get(f"/api/v1/servers?token={quote(PLAIN[OWN])}")


async def act_as_user(life: Life) -> None:
    """The command line; only what waits for approval is shown to its user in full, and is not asked for here."""
    for words in (
        "server list",
        "server list --json",
        "server show tells",
        "server show web --json",
        "server logs tells",
        "server logs dies",
        "server logs babbles --json",
        "config show",
        "config show --json",
        "doctor",
        "doctor --json",
        "activity list",
        "activity export --json",
        "approve --list",
        "scan",
        "search fails --why",
        "call tells:fail",
        "call web:fail --json",
    ):
        await life.run(*words.split())
    await life.run("server", "patch", "new-modern", json.dumps({"env": {"TOKEN": PATCHED}}))


@pytest.mark.requirement("no-secret-told")
async def test_no_secret_is_told_to_anybody_in_a_whole_life(tmp_path: Path) -> None:
    """Not by an answer, a command, a log, the database or a journal; as it is, in base64, hex, JSON or an address."""
    port_file = tmp_path / "port"
    upstream = await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", str(UPSTREAM), str(port_file)), env=ENVIRON | noting()
    )
    life = Life(tmp_path)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (port_file.exists() and port_file.read_text()):
                await asyncio.sleep(0.02)
        life.write_servers(int(port_file.read_text()))
        async with alive(life):
            await act_as_agent(life, "modern")
            await act_as_agent(life, "handshake")
            await act_as_operator(life)
            await act_as_user(life)
        await life.run("doctor")
        await life.run("activity", "export", "--json")
    finally:
        upstream.kill()
        await upstream.wait()
    found = [leak for name, content in (*life.told, *life.files()) for leak in leaks(name, content)]
    assert not found, f"{len(found)} leaks:\n" + "\n".join(found[:40])
    assert b"[hidden]" in (tmp_path / "log").read_bytes()
    assert len(life.told) > 150
