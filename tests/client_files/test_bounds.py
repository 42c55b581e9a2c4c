"""Files of clients are read within bounds, and one that is beyond them stops no other."""

import json
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from growth import assert_growth, calls_of

from smart_mcp_proxy.client_files import KNOWN_CLIENTS, Places, find_servers, read_client_file
from smart_mcp_proxy.client_files.bounds import ReadBounds
from smart_mcp_proxy.client_files.yaml_text import parse_yaml
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers.jsonc import parse_jsonc

GOOSE = next(client for client in KNOWN_CLIENTS if client.name == "goose")
CURSOR = next(client for client in KNOWN_CLIENTS if client.name == "cursor")
SMALL = ReadBounds(
    size_bytes={"json": 2_000, "toml": 2_000, "yaml": 2_000}, values={"json": 40, "yaml": 40}, servers=5, time_s=10
)
ENTRY = {"command": "a", "args": ["b"]}


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A home with two clients: Cursor, which is well, and Goose, whose file the test writes."""
    here = Places({"HOME": str(tmp_path), "PATH": ""}, tmp_path / "project")
    write(here, CURSOR, json.dumps({"mcpServers": {"well": ENTRY}}))
    return here


def write(places: Places, client: Any, text: str) -> Path:
    path = places.user_file(client)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def keys(count: int) -> str:
    return "".join(f"k{number}: 1\n" for number in range(count))


ALIASES = "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: [*b, *b, *b]\n"
BEYOND = {
    "nested aliases": ALIASES,
    "an alias in itself": "extensions: &x\n  one: {cmd: a, type: stdio, more: *x}\n",
    "a list in itself": "a: &a [*a]\n",
    "many keys": keys(50),
    "merged aliases": "a: &a {p: 1, q: 2, r: 3, s: 4, t: 5, u: 6}\n" + "".join(f"m{i}: {{<<: *a}}\n" for i in range(5)),
    "many bytes": "# " + "x" * 2_000,
    "many servers": "extensions: {" + ", ".join(f"s{i}: {{cmd: a}}" for i in range(6)) + "}",
}


@pytest.mark.parametrize("text", BEYOND.values(), ids=BEYOND)
def test_a_file_beyond_a_bound_is_named_and_stops_no_other(places: Places, text: str) -> None:
    """The servers of the other client are found."""
    path = write(places, GOOSE, text)
    found = find_servers(places, {}, SMALL)
    assert [server.name for server in found.servers] == ["well"]
    [problem] = found.problems
    assert problem.startswith(f"{GOOSE.title}: {path} ")


def test_what_is_within_them_is_read_as_before() -> None:
    """Aliases, merged keys and all, each counted where it is used."""
    text = "a: &a {p: 1}\nb: {<<: *a, q: 2}\nc: [*a, *a]\n"
    assert parse_yaml(text, "the file", 24) == {"a": {"p": 1}, "b": {"p": 1, "q": 2}, "c": [{"p": 1}, {"p": 1}]}
    with pytest.raises(ConfigError, match="holds more than 10 values"):
        parse_yaml(text, "the file", 10)
    assert parse_yaml("", "the file", 1) is None


def test_json_is_counted_while_it_is_read() -> None:
    """Objects and members, empty ones, too."""
    for text in (json.dumps({"a": [{}] * 20}), json.dumps(dict.fromkeys(map(str, range(20))))):
        assert parse_jsonc(text.encode(), "the file", 30)
        with pytest.raises(ConfigError, match="the file holds more than 10 objects and members"):
            parse_jsonc(text.encode(), "the file", 10)


def test_after_its_time_no_further_file_is_begun(places: Places) -> None:
    """Each that is left out is named."""
    write(places, GOOSE, "extensions: {one: {cmd: a, type: stdio}}")
    times: Iterator[float] = chain([0.0, 1.0], repeat(11.0))
    found = find_servers(places, {}, SMALL, clock=lambda: next(times))
    assert len(found.servers) == len(found.problems) == 1
    assert "is not read: the files before it took over 10 s. Shorten those." in found.problems[0]


def test_an_entry_that_is_nested_too_deeply_stops_no_other(places: Places) -> None:
    """It is a problem of its file, or cannot be used."""
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    write(places, GOOSE, json.dumps({"extensions": {"deep": {"cmd": "a", "type": "stdio", "args": deep}}}))
    found = find_servers(places, {})
    assert "well" in [server.name for server in found.servers if server.standing == "new"]
    assert found.problems or [server.name for server in found.servers if server.standing == "unusable"] == ["deep"]


@pytest.mark.parametrize(
    "value", ["1", ".inf", "1e400", "[1, {2: 3}]", "{1: 2, null: 3}", "2020-01-01", "!!set {a, b}"]
)
def test_odd_values_and_names_stop_nothing(places: Places, value: str) -> None:
    """Whatever YAML makes of them."""
    keys = ("type", "envs", "headers", "timeout", "args", "cmd", "env_keys")
    entries = "".join(f"  s{at}: {{cmd: a, uri: 'https://a.example', {key}: {value}}}\n" for at, key in enumerate(keys))
    for text in (f"extensions:\n{entries}", f"extensions:\n  ? {value}\n  : {{cmd: a}}\n"):
        write(places, GOOSE, text)
        assert "well" in [server.name for server in find_servers(places, {}).servers]


def test_reading_ends_at_the_bound_however_long_the_file_is(tmp_path: Path) -> None:
    """The work for ten times as many keys is the same."""
    path = tmp_path / "config.yaml"

    def read(count: int) -> int:
        path.write_text(keys(count))
        bounds = ReadBounds(values={"json": 1, "yaml": 100})

        def job() -> None:
            with pytest.raises(ConfigError):
                read_client_file(GOOSE, path, bounds=bounds)

        return calls_of(job)

    assert read(2_000) <= read(200) * 1.5


@pytest.mark.long  # seconds of work
def test_many_keys_cost_as_much_as_there_are() -> None:
    """Also those of which none is repeated."""
    assert_growth(lambda size: parse_yaml(keys(size), "the file", 1_000_000), 1_000, 8_000, at_most=20)
