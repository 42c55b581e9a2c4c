"""The gateway as the client that the conformance suite tests: started by the suite, with the address of its server.

A gateway in front of that server alone, an agent at it that uses everything it is offered, and a person who signs in,
again where the server wants more than was granted. Exit status 1: a call or a sign-in was refused.

With `--direct` the same agent at the server itself, for scenarios about skills: it then compares what it reads with
what was listed, as the specification says hosts do, which behind the gateway the gateway does for it.

With `--wait SOCKET` it imports everything once, which takes longer than most scenarios, and becomes the client of each
program that hands its words, environment and streams over at that socket: scripts/conformance_client.py has them.

Usage: client_under_test.py [--direct] URL | --wait SOCKET
"""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import yaml
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.skills import SkillsClientExtension
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.servers import load_servers, read_oauth
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import CallbackServer, SignIns

NAME = "suite"
SIGN_INS = 3
"""So often a person tries; then they ask whoever runs the server."""
SETTLED_S = 20
METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The document that the suite's authorization servers know."""
PROGRAMS = ("auth/client-credentials-basic", "auth/client-credentials-jwt")
"""Scenarios in which a program signs in, and no person."""
LISTED_ONLY = ("json-schema-ref-no-deref",)
"""Scenarios whose servers list tools and know no calls."""
OF_SKILLS = "sep-2640-"
SKILLS_LISTED_ONLY = ("sep-2640-client-no-prefetch",)
"""Scenarios in which no skill is loaded."""
ECHOED, ECHO = "json_schema_2020_12_tool", "json_schema_echo"
VALUES: Mapping[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


class Visit:
    """What happens in one scenario."""

    def __init__(self, url: str, scenario: str, context: Mapping[str, Any], version: str, folder: Path) -> None:
        entry: dict[str, Any] = {"type": "http", "url": url, "trust": "trusted", "input_requests": True}
        entry["connection"] = "per_client"
        if scenario.startswith("auth/"):
            entry["oauth"] = _oauth(scenario, context, folder)
        self._servers = load_servers(json.dumps({"mcpServers": {NAME: entry}})).servers
        self._calls: list[dict[str, Any]] = context.get("toolCalls", [])
        self._is_modern = version >= "2026"
        self._calls_tools = scenario not in LISTED_ONLY
        self._scenario = scenario
        self._folder = folder
        self._problems: list[str] = []

    @property
    def _is_about_skills(self) -> bool:
        return self._scenario.startswith(OF_SKILLS)

    async def run(self) -> list[str]:
        """What was refused in the end."""
        config = self._servers[NAME]
        if config.oauth is None:
            await self._use_everything()
            return self._problems
        for _ in range(SIGN_INS):
            await self._sign_in()
            if not self._problems:
                await self._use_everything()
                if not self._problems:
                    break
        return self._problems

    async def _sign_in(self) -> None:
        """Signs in as `mcpproxy server login` does."""
        config, sign_ins = self._servers[NAME], SignIns(self._folder)
        self._problems = []
        async with AsyncExitStack() as stack:
            browser = None
            if read_oauth(NAME, config.oauth or {}).grant == "authorization_code":
                group = await stack.enter_async_context(asyncio.TaskGroup())
                server = CallbackServer(NAME, None, lambda url: group.create_task(_open(url)))
                browser = await stack.enter_async_context(server)
            try:
                await sign_ins.authorize_server(config, browser)
            except UpstreamError as exc:
                self._problems.append(str(exc))

    async def _use_everything(self) -> None:
        """Calls every tool that the gateway offers and reads the rest, as an agent of the same era does."""
        self._problems = []
        async with open_gateway(
            Settings(data_dir=self._folder), self._servers, environ={}, passthrough=NAME
        ) as gateway:
            gateway.start_upstreams()
            await gateway.wait_settled(SETTLED_S)
            mode = "2026-07-28" if self._is_modern else "legacy"
            async with Client(gateway.mcp_server(), mode=mode, elicitation_handler=_answer, timeout=20) as agent:
                tools = {tool.name: tool for tool in await agent.list_tools()}
                upstream = gateway.upstreams.fleet.upstreams.get(NAME)
                assert upstream is not None
                if upstream.status.state != "ready":
                    self._problems.append(f"{upstream.status.state}: {upstream.status.error}")
                given = [(call["name"], call["arguments"]) for call in self._calls]
                given = given or [(name, _arguments(name, tools)) for name in tools if self._calls_tools]
                for name, arguments in given:
                    result = await agent.call_tool(name, arguments, raise_on_error=False)
                    if result.is_error:
                        self._problems.append(f"{name}: {result.content}")
                for resource in await _listed(agent.list_resources):
                    await agent.read_resource(resource.uri)
                for prompt in await _listed(agent.list_prompts):
                    await agent.get_prompt(prompt.name, {each.name: "text" for each in prompt.arguments or ()})
            if self._is_about_skills:
                async with _host(gateway.mcp_server()) as host:
                    await load_skills(host, self._scenario, verifies=False)


def _host(server: Any) -> Client[Any]:
    return Client(server, mode="auto", extensions=[SkillsClientExtension()], timeout=20)


async def load_skills(host: Client[Any], scenario: str, *, verifies: bool) -> None:
    """Reads each skill's main file, and the others of a skill that was not refused then."""
    for skill in await host.list_skills():
        if scenario in SKILLS_LISTED_ONLY:
            continue
        try:
            (part,) = await host.read_resource(skill.uri)
        except MCPError as exc:
            print(f"{skill.uri}: {exc}", file=sys.stderr)
            continue
        if verifies and not _is_promised(skill, part.text):
            continue
        for file in skill.resources:
            if file.uri != skill.uri:
                await host.read_resource(file.uri)


def _is_promised(skill: Any, text: str) -> bool:
    """Whether a main file is the one that its skill's entry describes."""
    data = text.encode()
    listed = next(file for file in skill.resources if file.uri == skill.uri)
    written = yaml.safe_load(text.split("---\n")[1])
    about = skill.frontmatter.model_dump(by_alias=True, exclude_none=True)
    return (len(data), f"sha256:{sha256(data).hexdigest()}", written) == (listed.size, listed.digest, about)


def _oauth(scenario: str, context: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    known = {key: context[key] for key in ("client_id", "client_secret") if key in context}
    if "private_key_pem" in context:
        known["private_key"] = context["private_key_pem"]
    if token := context.get("valid_jwt") or context.get("idp_id_token"):
        known |= {key: context[key] for key in ("idp_token_endpoint", "idp_client_id") if key in context}
        path = folder / "token.jwt"
        path.write_text(token)
        return known | {"grant": "jwt_bearer", "assertion_file": str(path)}
    if scenario in PROGRAMS:
        return known | {"grant": "client_credentials"}
    return known or {"client_metadata_url": METADATA_URL}


def _arguments(name: str, tools: Mapping[str, Any]) -> dict[str, Any]:
    if name == ECHO:
        return {"schema": tools[ECHOED].input_schema}
    schema = tools[name].input_schema
    return {key: VALUES[schema["properties"][key].get("type", "object")] for key in schema.get("required", ())}


async def _listed(ask: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
    """A list; empty where the server has none of that kind."""
    try:
        return await ask()
    except MCPError as exc:
        if exc.code != METHOD_NOT_FOUND:
            raise
        return []


async def _answer(message: str, response_type: Any, params: Any, context: Any) -> Any:
    """Says yes, with what the server suggests."""
    properties = params.model_dump(by_alias=True)["requestedSchema"]["properties"]
    given = {key: schema["default"] for key, schema in properties.items() if schema.get("default") is not None}
    given |= {key: True for key, schema in properties.items() if key not in given and schema["type"] == "boolean"}
    return ElicitResult(action="accept", content=given)


async def _open(url: str) -> None:
    """What a browser does whose person agrees to everything."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=10, trust_env=False) as client:
        await client.get(url)


async def play(words: list[str]) -> int:
    """Plays the scenario that the environment names; the exit status."""
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25")
    if "--direct" in words:
        async with _host(words[-1]) as host:
            await load_skills(host, scenario, verifies=True)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        problems = await Visit(words[-1], scenario, context, version, Path(folder)).run()
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


def wait(path: str) -> None:
    """Becomes the client of each program that connects to `path`, in a process of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the status goes to who connected
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            link, _ = listener.accept()
            with link:
                if not os.fork():
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os._exit(_be_client(link))


def _be_client(link: socket.socket) -> int:
    streams = socket.recv_fds(link, 1, 2)[1]
    words, environ = json.load(link.makefile())
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(environ)
    status = 1
    try:
        status = asyncio.run(play(words))
    finally:
        sys.stderr.flush()
        link.sendall(bytes([status]))
    return status


if __name__ == "__main__":
    if sys.argv[1] == "--wait":
        wait(sys.argv[2])
    sys.exit(asyncio.run(play(sys.argv[1:])))
