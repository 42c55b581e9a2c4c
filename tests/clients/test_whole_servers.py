"""Two foreign servers, whole: what a client gets of them through the gateway is what it gets of them directly.

Every tool, resource, template, prompt and completion, by the official Python SDK, in both eras, under the gateway's
names and passed through. Answers are compared as JSON, order of members and kinds of numbers included.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import anyio
import pytest
from installed import GATEWAY, Installation, serving
from mcp import MCPError, StdioServerParameters
from mcp.client.stdio import get_default_environment
from mcp_types import PromptReference, ResourceTemplateReference
from node_tools import SERVER_EVERYTHING, SERVER_FILESYSTEM, node_folder, npm_package
from tapped import TappedClient, tapped

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

LIMIT_S = 120
MODES = {"handshake": "legacy", "modern": "2026-07-28"}
CLOCK = re.compile(
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d GMT|\d{1,2}:\d\d:\d\d\s?[AP]M|\d\d:\d\d:\d\d"
)
"""Some answers hold the time of day."""
CLOCK_BASE64 = re.compile(r"(?<=bG9iIGNyZWF0ZWQgYXQg)\w+=*")
"""Some have it in base64, behind `blob created at`."""
OURS = re.compile(r',\\n  \\"(?:SMART_MCP_PROXY_\w+|PYTHONHASHSEED)\\": \\"[\w.: ]*\\"')
"""What a server finds in its environment of ours, in an answer that shows it."""

EXCEPTIONS = {
    "names": "Under the gateway's names, the name or URI of a definition or link says its server, nothing else does.",
    "era": "A modern answer says that it is complete, who sent it, and how long it may be kept.",
    "environment": "A server is started with three variables more, two of which say by whom: see `OURS`.",
    "list": "Under the gateway's names its own tools are listed too, and those of servers in the order of their names.",
    "arguments": "Under the gateway's names, arguments that do not fit a tool are refused unsent, with the schema.",
    "unknown": "A tool that the server does not list, and a method that it has not, are refused by the gateway itself.",
}
"""All that may differ, and why; each is taken out of the comparison where it stands, and nowhere else."""

TEXT, BLOB = "demo://resource/dynamic/text/{resourceId}", "demo://resource/dynamic/blob/{resourceId}"
DATA_URI = "data:text/plain;base64,SGVsbG8="


class Step(NamedTuple):
    """One request: a method, what it names, and its arguments."""

    method: str
    name: str = ""
    arguments: Mapping[str, Any] = {}
    member: str = ""
    """Of a completion: the argument that is completed."""
    differs: str = ""
    """The exception that this is one of, passed through or not."""
    differs_named: str = ""
    """The exception that this is one of under the gateway's names."""


def tool(name: str, /, **arguments: Any) -> Step:
    return Step("tools/call", name, arguments)


def completion(name: str, member: str, value: str, /, **others: str) -> Step:
    return Step("completion/complete", name, {"value": value, **others}, member)


EVERYTHING = [
    tool("echo", message="grüße ✓ \U0001f600 \n\t\"'\\"),
    tool("get-annotated-message", messageType="error", includeImage=True),
    tool("get-env"),
    tool("get-resource-links", count=10),
    tool("get-resource-reference", resourceType="Text", resourceId=1),
    tool("get-resource-reference", resourceType="Blob", resourceId=2),
    tool("get-resource-reference", resourceType="Text", resourceId=-1),
    tool("get-structured-content", location="Chicago"),
    tool("get-sum", a=0.1, b=2e10),
    tool("get-sum", a="x")._replace(differs_named="arguments"),
    tool("get-tiny-image"),
    tool("no-such-tool")._replace(differs="unknown"),
    tool("gzip-file-as-resource", name="a b.gz", data=DATA_URI, outputType="resource"),
    tool("gzip-file-as-resource", name="c.gz", data=DATA_URI, outputType="resourceLink"),
    tool("gzip-file-as-resource", name="d.gz", data="data:broken", outputType="resource"),
    tool("simulate-research-query", topic="lamps"),
    *[tool("toggle-simulated-logging")] * 2,
    *[tool("toggle-subscriber-updates")] * 2,
    tool("trigger-long-running-operation", duration=0.2, steps=4),
    Step("prompts/get", "simple-prompt"),
    Step("prompts/get", "args-prompt", {"city": "Köln", "state": "NRW"}),
    Step("prompts/get", "args-prompt", {"city": "Bonn"}),
    Step("prompts/get", "args-prompt"),
    Step("prompts/get", "completable-prompt", {"department": "Sales", "name": "Eve"}),
    Step("prompts/get", "resource-prompt", {"resourceType": "Text", "resourceId": "3"}),
    Step("prompts/get", "resource-prompt", {"resourceType": "Blob", "resourceId": "4"}),
    Step("prompts/get", "resource-prompt", {"resourceType": "Text", "resourceId": "none"}),
    *(
        Step("resources/read", f"demo://resource/static/document/{name}.md")
        for name in ("architecture", "extension", "features", "how-it-works", "instructions", "startup", "structure")
    ),
    *(Step("resources/read", template.replace("{resourceId}", "7")) for template in (TEXT, BLOB)),
    Step("resources/read", TEXT.replace("{resourceId}", "none")),
    Step("resources/read", "demo://nowhere"),
    Step("prompts/get", "no-such-prompt", differs="unknown"),
    completion("completable-prompt", "department", "S"),
    completion("completable-prompt", "name", "", department="Sales"),
    completion("completable-prompt", "name", "E", department="Sales"),
    completion("resource-prompt", "resourceType", ""),
    completion("resource-prompt", "resourceId", "5"),
    completion("simple-prompt", "nothing", "x"),
    *(completion(template, "resourceId", "12") for template in (TEXT, BLOB)),
    # Last: one of the tools has registered a resource by now.
    *map(Step, ("tools/list", "prompts/list", "resources/list", "resources/templates/list")),
    *(Step("resources/read", f"demo://resource/session/{name}.gz") for name in ("a b", "c")),
]

FILES = [
    tool("list_allowed_directories"),
    tool("write_file", path="$/notes/a.txt", content="eins\nzwei\ndrei\n"),
    tool("write_file", path="$/none/a.txt", content=""),
    tool("read_text_file", path="$/notes/a.txt"),
    tool("read_text_file", path="$/notes/a.txt", head=1),
    tool("read_text_file", path="$/notes/a.txt", tail=2),
    tool("read_text_file", path="$/notes/a.txt", head=1, tail=1),
    tool("read_text_file", path="/etc/passwd"),
    tool("read_file", path="$/notes/ünï côde.txt"),
    tool("read_media_file", path="$/notes/dot.png"),
    tool("read_multiple_files", paths=["$/notes/a.txt", "$/missing"]),
    tool("edit_file", path="$/notes/a.txt", edits=[{"oldText": "zwei", "newText": "2"}], dryRun=True),
    tool("edit_file", path="$/notes/a.txt", edits=[{"oldText": "zwei", "newText": "2"}]),
    tool("edit_file", path="$/notes/a.txt", edits=[{"oldText": "four", "newText": "4"}]),
    tool("create_directory", path="$/new/deep"),
    tool("move_file", source="$/notes/a.txt", destination="$/new/deep/b.txt"),
    tool("list_directory", path="$/notes"),
    tool("list_directory_with_sizes", path="$/notes", sortBy="size"),
    tool("directory_tree", path="$"),
    tool("search_files", path="$", pattern="**/*.txt"),
    tool("get_file_info", path="$/notes/dot.png"),
    Step("tools/list"),
    *(Step(f"{kind}/list", differs="unknown") for kind in ("prompts", "resources", "resources/templates")),
]
STEPS = {"any": EVERYTHING, "files": FILES}
METHODS = {"tools/list": "list_tools", "prompts/list": "list_prompts", "resources/list": "list_resources"}
METHODS["resources/templates/list"] = "list_resource_templates"
LISTED = {"tools/list": ("tools", "name"), "prompts/list": ("prompts", "name"), "resources/list": ("resources", "uri")}
LISTED["resources/templates/list"] = ("resourceTemplates", "uriTemplate")


class Servers:
    """The two servers, in front of a folder that is made anew for every run."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "files"
        node = str(node_folder() / "node")
        everything, files = (npm_package(name) / "dist" / "index.js" for name in (SERVER_EVERYTHING, SERVER_FILESYSTEM))
        self.commands = {"any": [node, str(everything), "stdio"], "files": [node, str(files), str(self.folder)]}
        self.renew()

    def renew(self) -> None:
        """Makes the folder what it was."""
        shutil.rmtree(self.folder, ignore_errors=True)
        notes = self.folder / "notes"
        notes.mkdir(parents=True)
        (notes / "dot.png").write_bytes(bytes(range(256)))
        (notes / "ünï côde.txt").write_text("grüße\n", "utf-8")

    def target(self, server: str, environment: Mapping[str, str]) -> StdioServerParameters:
        """How a client starts one by itself."""
        command, *arguments = self.commands[server]
        return StdioServerParameters(command=command, args=arguments, env=dict(environment))


class Names(NamedTuple):
    """What a client calls things by. Source: docs/design/wire-formats.md#names-of-tools"""

    server: str
    """Empty where things have the names that their server gave them."""

    def shown(self, method: str, name: str) -> str:
        """What a client calls something of the server's that this method is about."""
        if not self.server or not name:
            return name
        if "://" not in name:
            return f"{self.server}__{name}"
        kept = "{}" if method in ("resources/templates/list", "completion/complete") else ""
        return f"mcpproxy://{self.server}/{quote(name, safe=kept)}"


async def answers(tap: TappedClient, server: str, names: Names, folder: Path) -> dict[str, dict[str, Any]]:
    """What the client is answered to every step of a server's, by the step."""
    found: dict[str, dict[str, Any]] = {}
    for number, step in enumerate(STEPS[server]):
        asked = json.loads(json.dumps(step.arguments).replace("$", str(folder)))
        with suppress(MCPError):  # kept as it came
            await ask(tap, step, names.shown(step.method, step.name), asked)
        found[f"{number} {step.method} {step.name} {step.arguments}"] = tap.answers.pop(step.method)
    return found


async def ask(tap: TappedClient, step: Step, name: str, arguments: dict[str, Any]) -> None:
    """Makes one request."""
    client = tap.client
    if step.method == "tools/call":
        await client.call_tool(name, arguments)
    elif step.method == "prompts/get":
        await client.get_prompt(name, arguments or None)
    elif step.method == "resources/read":
        await client.read_resource(name)
    elif step.method == "completion/complete":
        ref: Any = ResourceTemplateReference(uri=name) if "://" in name else PromptReference(name=name)
        value = arguments.pop("value")
        await client.complete(ref, {"name": step.member, "value": value}, arguments or None)
    else:
        await getattr(client, METHODS[step.method])()


def expected(step: Step, answer: dict[str, Any], names: Names) -> dict[str, Any]:
    """A direct answer as it should come through the gateway: `EXCEPTIONS["names"]`."""
    if step.method in LISTED and "error" not in answer:
        member, identity = LISTED[step.method]
        listed = [{**each, identity: names.shown(step.method, each[identity])} for each in answer[member]]
        return {**answer, member: listed}
    if step.method in ("tools/call", "prompts/get") and "error" not in answer and names.server:
        return _relinked(deepcopy(answer), names)
    if step.method == "resources/read" and "error" not in answer:
        return {"contents": [{**each, "uri": names.shown(step.method, each["uri"])} for each in answer["contents"]]}
    return answer


def _relinked(answer: dict[str, Any], names: Names) -> dict[str, Any]:
    """An answer with the URIs under which the gateway reaches the resources that it links to or embeds."""
    blocks = [*answer.get("content", ()), *(message["content"] for message in answer.get("messages", ()))]
    for block in blocks:
        if (holder := {"resource_link": block, "resource": block.get("resource")}.get(block["type"])) is not None:
            holder["uri"] = names.shown("resources/read", holder["uri"])
    return answer


def comparable(answer: dict[str, Any], era: str, names: Names) -> str:
    """An answer as JSON, without what is the gateway's own: `EXCEPTIONS["era"]`, `["list"]`, `["environment"]`."""
    kept = dict(answer)
    if era == "modern" and "error" not in answer:
        assert kept.pop("resultType") == "complete"
        assert list(kept.pop("_meta")) == ["io.modelcontextprotocol/serverInfo"]
        kept = {key: value for key, value in kept.items() if key not in ("ttlMs", "cacheScope")}
    if names.server and "tools" in kept:
        theirs = [each for each in kept["tools"] if each["name"].startswith(f"{names.server}__")]
        kept["tools"] = sorted(theirs, key=lambda each: str(each["name"]))
    text = json.dumps(kept, ensure_ascii=False)
    return OURS.sub("", CLOCK.sub("<time>", CLOCK_BASE64.sub("<time>", text)))


def is_refused(answer: dict[str, Any]) -> bool:
    """Whether this says that something could not be had, in whatever words."""
    return "error" in answer or answer.get("isError") is True


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the file."""
    return "asyncio"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Servers:
    """The servers, installed."""
    return Servers(tmp_path_factory.mktemp("servers"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What every process of this file starts with."""
    return get_default_environment() | {"LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def urls(
    servers: Servers, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, bool], str]]:
    """The address of a gateway for each server, under its own names and passed through."""
    home = tmp_path_factory.mktemp("whole")
    with ExitStack() as stack:

        def serve(name: str, is_passed: bool) -> str:
            folder = home / f"{name}-{is_passed}"
            folder.mkdir()
            command, *arguments = servers.commands[name]
            entry = {"command": command, "args": arguments, "trust": "trusted", "isolation": "none"}
            (folder / "mcp_config.json").write_text(json.dumps({"mcpServers": {name: entry}}), "utf-8")
            variables = {"MCPPROXY_CONFIG_PATH": str(folder / "mcp_config.json")}
            variables["MCPPROXY_LIST_ALL_BELOW_TOKENS"] = "100000"
            options = ("--passthrough", name) if is_passed else ()
            return stack.enter_context(serving(Installation((*GATEWAY, *options), environment | variables), folder))

        yield {(name, is_passed): serve(name, is_passed) for name in servers.commands for is_passed in (False, True)}


@pytest.fixture(scope="module")
async def direct(servers: Servers, environment: dict[str, str]) -> dict[str, dict[str, dict[str, Any]]]:
    """What each server answers by itself."""
    found = {}
    for server in STEPS:
        servers.renew()
        async with tapped(servers.target(server, environment), "legacy") as tap:
            with anyio.fail_after(LIMIT_S):
                found[server] = await answers(tap, server, Names(""), servers.folder)
    return found


@pytest.mark.parametrize("server", STEPS)
async def test_everything_that_a_server_lists_is_compared(direct: dict[str, Any], server: str) -> None:
    """What a new version brings fails here until it has a step."""
    used = {(step.method, step.name) for step in STEPS[server]}
    users = {"tools/list": "tools/call", "prompts/list": "prompts/get", "resources/list": "resources/read"}
    users["resources/templates/list"] = "completion/complete"
    for answer, step in zip(direct[server].values(), STEPS[server], strict=True):
        if step.method in LISTED and "error" not in answer:
            member, identity = LISTED[step.method]
            assert {(users[step.method], each[identity]) for each in answer[member]} <= used


@pytest.mark.parametrize("is_passed", [False, True], ids=["named", "passed"])
@pytest.mark.parametrize("era", MODES)
@pytest.mark.parametrize("server", STEPS)
async def test_a_server_is_the_same_through_the_gateway(
    servers: Servers,
    urls: dict[tuple[str, bool], str],
    direct: dict[str, dict[str, dict[str, Any]]],
    server: str,
    era: str,
    is_passed: bool,
) -> None:
    """Every answer of it, but for what stands in `EXCEPTIONS`."""
    names = Names("" if is_passed else server)
    servers.renew()
    async with tapped(urls[server, is_passed], MODES[era]) as tap:
        with anyio.fail_after(LIMIT_S):
            through = await answers(tap, server, names, servers.folder)
    for (label, own), step in zip(direct[server].items(), STEPS[server], strict=True):
        if step.differs or (step.differs_named and not is_passed):
            assert {step.differs, step.differs_named} <= {"", *EXCEPTIONS}
            assert is_refused(own) and is_refused(through[label]), label
        else:
            wanted = comparable(expected(step, own, names), "handshake", names)
            assert comparable(through[label], era, names) == wanted, label
