"""Every known client: our entry in its file, its servers in ours, and the rest of the file as it was."""

import json
from pathlib import Path
from typing import Any

import pytest
from client_samples import GOLDEN, HTTP, SECRET, STDIO, before, connected, taken_over

from smart_mcp_proxy.client_files import (
    KNOWN_CLIENTS,
    OUR_NAME,
    Door,
    KnownClient,
    Places,
    build_masked_diff,
    find_servers,
    our_entry,
)
from smart_mcp_proxy.client_files.texts import edit, parse, read_section
from smart_mcp_proxy.errors import RequestError

every_client = pytest.mark.parametrize("client", KNOWN_CLIENTS, ids=lambda client: client.name)


@every_client
@pytest.mark.parametrize(("kind", "door"), [("stdio", STDIO), ("http", HTTP)])
def test_our_entry_is_written_in_the_words_of_the_client(client: KnownClient, kind: str, door: Door) -> None:
    """The file is the golden one; a second time changes nothing; taking the entry out leaves the file as it was."""
    text = connected(client, door)
    assert text == (GOLDEN / client.name / f"{kind}{before(client).suffix}").read_text("utf-8")
    entry = {OUR_NAME: our_entry(client, door)}
    assert edit(text, client.text_format, client.section, entry, "the file") == text
    gone = edit(text, client.text_format, client.section, {OUR_NAME: None}, "the file")
    original = before(client).read_text("utf-8")
    assert parse(gone, client.text_format, "x") == parse(original, client.text_format, "x")
    assert gone == original


@every_client
def test_the_servers_of_a_client_are_taken_over(client: KnownClient, tmp_path: Path) -> None:
    """With what each needs and what is lost, as the golden file says."""
    assert taken_over(client, tmp_path) == json.loads((GOLDEN / client.name / "servers.json").read_text("utf-8"))


@every_client
def test_a_diff_shows_our_entry_and_no_value_of_others(client: KnownClient) -> None:
    """Also where an entry with a secret stands on a line that changes, or is taken out."""
    text = before(client).read_text("utf-8")
    document = parse(text, client.text_format, "x")
    names = dict.fromkeys(read_section(document, client.section, "x"))
    entry = our_entry(client, STDIO)
    after = edit(text, client.text_format, client.section, {**names, OUR_NAME: entry}, "x")
    shown = build_masked_diff(text, after, (document, parse(after, client.text_format, "x")), {OUR_NAME: entry}, "f")
    assert "/opt/bin/mcpproxy" in shown
    for hidden in (SECRET, "s3cret", "example", "Bearer", "a comment", "npx"):
        assert hidden not in shown


def test_places_are_those_of_the_platform(tmp_path: Path) -> None:
    """macOS has folders of its own, and variables move some files."""
    known = {client.name: client for client in KNOWN_CLIENTS}
    mac = Places({"HOME": "/Users/u"}, tmp_path, "darwin")
    linux = Places({"HOME": "/home/u", "XDG_CONFIG_HOME": "/cfg", "CODEX_HOME": "/cx"}, tmp_path, "linux")
    assert mac.user_file(known["vscode"]) == Path("/Users/u/Library/Application Support/Code/User/mcp.json")
    assert mac.user_file(known["cursor"]) == Path("/Users/u/.cursor/mcp.json")
    assert linux.user_file(known["zed"]) == Path("/cfg/zed/settings.json")
    assert linux.user_file(known["codex"]) == Path("/cx/config.toml")
    assert linux.project_file(known["vscode"]) == tmp_path / ".vscode/mcp.json"
    assert linux.project_file(known["goose"]) is None


@every_client
def test_a_token_is_referred_to_and_never_written(client: KnownClient) -> None:
    """Or refused where the client fills nothing in."""
    door = Door(("mcpproxy",), url="http://127.0.0.1:8000/mcp", has_token=True)
    try:
        entry = our_entry(client, door)
    except RequestError as error:
        assert "--stdio" in error.hint
        assert not client.variable or not client.url_key
    else:
        assert "MCPPROXY_AUTH_TOKEN" in json.dumps(entry)


def test_what_a_server_needs_and_loses_is_said_without_values(tmp_path: Path) -> None:
    """Also where a secret stands in a command, or in a reference that nobody understands."""
    file = tmp_path / ".cursor/mcp.json"
    file.parent.mkdir()
    entry = {"command": f"KEY={SECRET} run", "args": [f"${{X-{SECRET}}}", f"${{Y:-{SECRET}}}"], "more": SECRET}
    file.write_text(json.dumps({"mcpServers": {"a": entry}}))
    places = Places({"HOME": str(tmp_path), "PATH": ""}, tmp_path / "project", "linux")
    (server,) = find_servers(places, {}).servers
    assert server.needs == ("the program of its command",)
    assert server.translated.lost == ("${X...} stays as it is written", "'more'")
    assert SECRET not in server.remark


@pytest.mark.parametrize("off", [{"isActive": False}, {"disabled": True}, {"status": "INACTIVE"}], ids=str)
def test_what_a_client_has_switched_off_is_taken_over_as_disabled(tmp_path: Path, off: dict[str, Any]) -> None:
    """Under our own key, and nothing of it is lost."""
    file = tmp_path / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "true"} | off}}))
    (server,) = find_servers(Places({"HOME": str(tmp_path), "PATH": ""}, tmp_path / "project", "linux"), {}).servers
    assert server.translated.entry == {"command": "true", "disabled": True}
    assert server.translated.lost == ()
