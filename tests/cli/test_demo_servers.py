"""The bundled demo servers: real MCP servers in both protocol eras, spoken to over their pipes."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from demo_samples import CONVERSATIONS, Expected
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from smart_mcp_proxy.demo import DEMO_NAMES, demo_servers
from smart_mcp_proxy.demo.server import serve

ERAS = ["handshake", "modern"]
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Conversation:
    """A client of one demo server: writes lines to it and reads lines from it."""

    def __init__(self, process: subprocess.Popen[str], era: str) -> None:
        self.process = process
        self.era = era
        self.last_id = 0

    def send(self, line: str) -> dict[str, Any]:
        """Writes one line and reads the answer to it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a request of this era and returns its whole answer."""
        self.last_id += 1
        if self.era == "modern":
            params = {"_meta": ENVELOPE, **params}
        answer = self.send(json.dumps({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}))
        assert answer["id"] == self.last_id
        return answer

    def call(self, name: str, arguments: object) -> dict[str, Any]:
        """The result of a tool call."""
        result: dict[str, Any] = self.ask("tools/call", name=name, arguments=arguments)["result"]
        return result


@contextmanager
def conversation(name: str, era: str) -> Iterator[Conversation]:
    """An open conversation with a running demo server, which must end by itself when its input does."""
    entry = demo_servers()[name]
    with subprocess.Popen(
        [entry["command"], *entry["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        talk = Conversation(process, era)
        try:
            if era == "handshake":
                talk.ask("initialize", **HANDSHAKE)
            yield talk
            _, errors = process.communicate(timeout=5)
            assert (process.returncode, errors) == (0, "")
        finally:
            process.kill()


def judge(result: dict[str, Any], expected: Expected) -> None:
    """Fails unless the result is what a sample conversation expects."""
    assert result["isError"] is False, result
    text = result["content"][0]["text"]
    found = result.get("structuredContent", text)
    if isinstance(expected, dict):
        assert {key: found[key] for key in expected} == expected
        assert json.loads(text) == found
    elif isinstance(expected, str):
        assert text == expected
    else:
        assert expected(found), found


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", DEMO_NAMES)
def test_every_tool_does_what_its_definition_says(name: str, era: str) -> None:
    """Definitions are complete and valid, every tool of the list works, structured results fit their schema."""
    with conversation(name, era) as talk:
        tools = {tool["name"]: tool for tool in talk.ask("tools/list")["result"]["tools"]}
        assert {called for called, _, _ in CONVERSATIONS[name]} == set(tools)
        for called, arguments, expected in CONVERSATIONS[name]:
            Draft202012Validator(tools[called]["inputSchema"]).validate(arguments)
            result = talk.call(called, arguments)
            judge(result, expected)
            assert ("structuredContent" in result) == ("outputSchema" in tools[called])
            if "outputSchema" in tools[called]:
                Draft202012Validator(tools[called]["outputSchema"]).validate(result["structuredContent"])


@pytest.mark.parametrize("name", DEMO_NAMES)
def test_definitions_are_ones_a_model_can_choose_by(name: str) -> None:
    """Every tool has a title, a description and hints; every parameter and property has a description and a type."""
    with conversation(name, "modern") as talk:
        for tool in talk.ask("tools/list")["result"]["tools"]:
            assert tool["title"]
            assert len(tool["description"]) > 20
            hints = tool["annotations"]
            assert ("destructiveHint" in hints) is not hints["readOnlyHint"]
            for schema in filter(None, (tool["inputSchema"], tool.get("outputSchema"))):
                Draft202012Validator.check_schema(schema)
                for described in schema["properties"].values():
                    assert described["description"]
                    assert described["type"]


def test_hints_tell_reading_adding_and_destroying_apart() -> None:
    """A tool that only reads, one that only adds and one that destroys carry different hints."""
    with conversation("todo", "modern") as talk:
        hints = {tool["name"]: tool["annotations"] for tool in talk.ask("tools/list")["result"]["tools"]}
    assert hints["list_tasks"] == {"readOnlyHint": True, "openWorldHint": False}
    assert hints["add_task"] == {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
    assert hints["delete_task"] == {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}


def test_no_two_tools_have_the_same_name() -> None:
    """Whoever tries the search sees which server answers."""
    names = [tool["name"] for name in DEMO_NAMES for tool in definitions(name)]
    assert len(names) == len(set(names)) == 20


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_a_handshake_agrees_on_any_version_of_its_era(version: str) -> None:
    """The client's version is accepted, and an unknown one is answered with the newest of the era."""
    with conversation("colors", "handshake") as talk:
        assert (
            talk.ask("initialize", **HANDSHAKE | {"protocolVersion": version})["result"]["protocolVersion"] == version
        )
        result = talk.ask("initialize", **HANDSHAKE | {"protocolVersion": "1999-01-01"})["result"]
        assert result["protocolVersion"] == "2025-11-25"
        assert result["serverInfo"]["name"] == "demo-colors"
        assert talk.ask("ping")["result"] == {}
        assert "resultType" not in talk.ask("tools/list")["result"]


def test_discovery_and_results_of_the_modern_era_carry_its_fields() -> None:
    """server/discover names versions and capabilities; results say resultType, who answered and how long they hold."""
    with conversation("clock", "modern") as talk:
        found = talk.ask("server/discover")["result"]
        assert found["supportedVersions"] == ["2026-07-28"]
        assert found["capabilities"] == {"tools": {"listChanged": False}}
        for result in (found, talk.ask("tools/list")["result"]):
            assert result["resultType"] == "complete"
            assert result["ttlMs"] > 0
            assert result["cacheScope"] == "public"
        called = talk.call("now", {})
        assert called["resultType"] == "complete"
        assert called["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "demo-clock"


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({}, -32602),
        ({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, -32602),
        (ENVELOPE | {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}, -32022),
    ],
)
def test_a_broken_envelope_is_a_protocol_error(meta: dict[str, Any], code: int) -> None:
    """Without an earlier initialize a request needs the whole envelope, of a version that the server speaks."""
    with conversation("clock", "modern") as talk:
        assert talk.ask("tools/list", _meta=meta)["error"]["code"] == code


@pytest.mark.parametrize("era", ERAS)
def test_unknown_methods_and_tools_are_protocol_errors(era: str) -> None:
    """Each era has its own methods, and an unknown tool is answered with the known ones."""
    with conversation("clock", era) as talk:
        foreign = "server/discover" if era == "handshake" else "ping"
        assert talk.ask(foreign)["error"]["code"] == -32601
        error = talk.ask("tools/call", name="nope", arguments={})["error"]
        assert error["code"] == -32602
        assert "convert_timezone" in error["message"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", -32700),
        ("[" * 100_000, -32700),
        ('{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', -32700),
        ("[]", -32600),
        ('{"jsonrpc": "2.0", "id": 1}', -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []}', -32602),
    ],
)
def test_a_line_that_is_no_request_is_answered_and_survived(line: str, code: int) -> None:
    """The server says what is wrong and goes on."""
    with conversation("todo", "handshake") as talk:
        assert talk.send(line)["error"]["code"] == code
        assert talk.call("list_tasks", {})["structuredContent"] == {"tasks": []}


@pytest.mark.parametrize(
    ("server", "tool", "arguments", "words"),
    [
        ("clock", "now", {"timezone": "../../etc/passwd"}, "no time zone"),
        ("clock", "now", {"zone": "UTC"}, "no parameter 'zone'"),
        ("clock", "date_difference", {"start": "2026-01-01"}, "needs 'end'"),
        ("colors", "hex_to_rgb", {"color": "#12"}, "is not a color"),
        ("colors", "mix_colors", {"first": "red", "second": "blue", "share": 2}, "Expected a value from 0"),
        ("colors", "make_palette", {"color": "red", "count": True}, "Expected: integer"),
        ("todo", "delete_task", {"id": 7}, "There is no task 7."),
        ("todo", "add_task", {"title": ""}, "length of 0"),
        ("todo", "add_task", {"title": "x", "priority": "none"}, "Expected one of: high"),
        ("todo", "add_task", {"title": "x", "due": "tomorrow"}, "isoformat"),
    ],
)
def test_bad_arguments_are_answered_with_what_is_wrong(
    server: str, tool: str, arguments: dict[str, Any], words: str
) -> None:
    """A failure is a result with isError and a sentence; the server goes on."""
    with conversation(server, "modern") as talk:
        result = talk.call(tool, arguments)
        assert result["isError"] is True, result
        assert words in result["content"][0]["text"]
        assert "structuredContent" not in result
        assert "tools" in talk.ask("tools/list")["result"]


VALUES = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["2 ** 64", "2026-01-01", "Europe", "a/b", "#fff", r"(\d)", "\ud800"]),
    st.lists(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5))),
)


def definitions(name: str) -> list[dict[str, Any]]:
    """A server's tools, read without a process of its own."""
    answers = io.BytesIO()
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}
    serve(name, io.BytesIO(json.dumps(request).encode()), answers)
    tools: list[dict[str, Any]] = json.loads(answers.getvalue())["result"]["tools"]
    return tools


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("name", DEMO_NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_arguments_bring_a_server_down(name: str, data: st.DataObject) -> None:
    """Whatever values the parameters get, every call is answered with a result that is valid JSON."""
    requests = [
        {
            "_meta": ENVELOPE,
            "name": tool["name"],
            "arguments": {p: data.draw(VALUES) for p in tool["inputSchema"]["properties"]},
        }
        for tool in definitions(name)
    ]
    lines = [json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}) for params in requests]
    answers = io.BytesIO()
    serve(name, io.BytesIO("\n".join(lines).encode()), answers)
    answered = answers.getvalue().splitlines()
    assert len(answered) == len(requests)
    assert all("result" in json.loads(line, parse_constant=pytest.fail) for line in answered)


def test_a_demo_server_starts_without_the_packages_of_the_gateway() -> None:
    """Nothing outside the standard library is imported, which is what makes the start quick."""
    program = "import sys, smart_mcp_proxy.demo.server; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    foreign = set(loaded.split()) - sys.stdlib_module_names - {"__main__", "smart_mcp_proxy"}
    assert not {name for name in foreign if not name.startswith(("_", "sitecustomize", "usercustomize"))}
    assert "asyncio" not in loaded.split()


def test_an_unknown_server_name_is_a_usage_error() -> None:
    """The message lists the names and the exit status is that of a usage error."""
    command = [sys.executable, "-m", "smart_mcp_proxy.demo.server", "nope"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert "colors" in process.stderr


@pytest.mark.anyio
@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_a_real_client_of_either_era_is_served(mode: Any, version: str) -> None:
    """The SDK's own client agrees on the era's version, validates the list and calls a tool."""
    entry = demo_servers()["clock"]
    transport = StdioTransport(entry["command"], entry["args"], keep_alive=False)
    with anyio.fail_after(10):
        async with Client(transport, mode=mode) as client:
            assert client.protocol_version == version
            assert len(await client.list_tools()) == 7
            result = await client.call_tool("from_unix_time", {"seconds": 0})
            assert result.structured_content["time"] == "1970-01-01T00:00:00+00:00"
