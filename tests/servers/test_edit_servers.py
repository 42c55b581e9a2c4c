"""Who may change what about the servers."""

import json
from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.errors import ConflictError, ProxyError, RefusedError, RequestError, ServerNotFoundError
from smart_mcp_proxy.servers import Author, ServerEdits
from smart_mcp_proxy.settings import Settings

OTHERS: tuple[Author, ...] = ("agent", "web")


def edits_of(folder: Path, servers: dict[str, Any] | None = None, **settings: Any) -> ServerEdits:
    (folder / "mcp_config.json").write_text(json.dumps({"mcpServers": servers or {}}))
    return ServerEdits(Settings(data_dir=folder / "data", **settings), folder)


def stored(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "mcp_config.json").read_text())["mcpServers"]
    return found


@pytest.mark.parametrize("by", OTHERS)
def test_what_others_add_waits_for_the_user(tmp_path: Path, by: Author) -> None:
    """Whatever the entry says about itself."""
    done = edits_of(tmp_path).add("new", {"command": "true", "args": ["-x"]}, by)
    assert done.is_quarantined and done.changed == ("allow", "args", "command", "quarantined")
    assert stored(tmp_path) == {"new": {"command": "true", "args": ["-x"], "quarantined": True, "allow": {}}}


def test_paths_that_others_name_are_not_open(tmp_path: Path) -> None:
    """An agent that leads a user's server elsewhere proposes its paths as well; other changes close nothing."""
    edits = edits_of(tmp_path)
    edits.add("mine", {"command": "true", "args": ["/home/u"]}, "operator")
    edits.patch("mine", {"timeout": 5000}, "agent")
    assert "allow" not in stored(tmp_path)["mine"]
    edits.patch("mine", {"args": ["/"]}, "agent")
    assert stored(tmp_path)["mine"]["allow"] == {}
    inner = {"command": "true", "isolation": {"mode": "sandbox", "allow": {"read": ["/a"]}}}
    assert edits.add("other", inner, "agent").is_quarantined
    edits.patch("other", {"args": ["/"]}, "agent")
    assert "allow" not in stored(tmp_path)["other"]  # beside the one inside it would be refused


def test_what_the_user_adds_may_run(tmp_path: Path) -> None:
    """The command line is the user's own hand."""
    assert not edits_of(tmp_path).add("new", {"command": "true"}, "operator").is_quarantined
    assert stored(tmp_path) == {"new": {"command": "true"}}


@pytest.mark.parametrize("by", OTHERS)
@pytest.mark.parametrize(
    "patch",
    [
        {"command": "evil"},
        {"args": ["evil"]},
        {"args": None},
        {"env": {"LD_PRELOAD": "evil"}},
        {"env": None},
        {"cwd": "/tmp"},
        {"oauth": {"client_id": "evil"}},
        {"tools": None},
        {"limits": {"calls_per_s": 1}},
        {"never-heard-of": 1},
    ],
    ids=str,
)
def test_what_others_redirect_waits_for_the_user(tmp_path: Path, by: Author, patch: dict[str, Any]) -> None:
    """What runs, with what, and what is kept from agents; also with a key that only a later version knows."""
    entry = {"command": "x", "args": ["a"], "env": {"A": "1"}, "tools": ["a*"]}
    assert edits_of(tmp_path, {"s": entry}).patch("s", patch, by).is_quarantined
    assert stored(tmp_path)["s"]["quarantined"] is True


@pytest.mark.parametrize("by", OTHERS)
@pytest.mark.parametrize("key", ["url", "headers", "type"])
def test_an_address_that_others_change_waits_for_the_user(tmp_path: Path, by: Author, key: str) -> None:
    """A stored credential would go to the new one."""
    entry = {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer x"}}
    patch = {"url": "https://evil.example", "headers": {"X": "y"}, "type": "sse"}
    assert edits_of(tmp_path, {"s": entry}).patch("s", {key: patch[key]}, by).is_quarantined


@pytest.mark.parametrize("patch", [{"disabled": True}, {"enabled": True}, {"timeout": 5000}, {"pin": ["a"]}], ids=str)
def test_harmless_changes_by_an_agent_leave_a_server_running(tmp_path: Path, patch: dict[str, Any]) -> None:
    """Seed 3's own example: only what is named changes, everything else is preserved."""
    entry = {"command": "x", "env": {"A": "1"}}
    assert not edits_of(tmp_path, {"s": entry}).patch("s", patch, "agent").is_quarantined
    stays = {"disabled": "by agent"} if "disabled" in patch else patch
    assert stored(tmp_path) == {"s": entry | stays}


@pytest.mark.parametrize("off", [{"disabled": True}, {"enabled": False}, {"disabled": True, "enabled": False}], ids=str)
@pytest.mark.parametrize("way", ["switch", "patch", "replace"])
def test_a_server_that_an_agent_enables_waits_for_the_user(tmp_path: Path, off: dict[str, Any], way: str) -> None:
    """Its user had switched it off, and enabling starts it; the user's own word and the operator's token do."""

    def enabled(by: Author) -> bool:
        edits = edits_of(tmp_path, {"s": {"command": "x"} | off})
        if way == "switch":
            return edits.switch("s", by, is_enabled=True).is_quarantined
        if way == "patch":
            return edits.patch("s", {"disabled": False, "enabled": True}, by).is_quarantined
        return edits.replace("s", {"command": "x"}, by).is_quarantined

    assert enabled("agent") and stored(tmp_path)["s"]["quarantined"] is True
    assert not enabled("web") and not enabled("operator")


@pytest.mark.parametrize(
    "off",
    [{"isActive": False}, {"active": False, "enabled": False}, {"status": "INACTIVE"}, {"Disabled": True}],
    ids=str,
)
@pytest.mark.parametrize("way", ["switch", "patch"])
def test_enabling_takes_out_the_key_of_another_program(tmp_path: Path, off: dict[str, Any], way: str) -> None:
    """Or the server would stay off; an agent's word does not start what the user had switched off."""

    def enable(by: Author) -> bool:
        edits = edits_of(tmp_path, {"s": {"command": "x"} | off})
        if way == "switch":
            return edits.switch("s", by, is_enabled=True).is_quarantined
        return edits.patch("s", {"disabled": False, "enabled": None}, by).is_quarantined

    on = {"command": "x"} if way == "switch" else {"command": "x", "disabled": False}
    for by in ("operator", "web"):
        assert not enable(by) and stored(tmp_path) == {"s": on}
    assert enable("agent") and stored(tmp_path) == {"s": on | {"quarantined": True}}


def test_an_import_keeps_a_server_off(tmp_path: Path) -> None:
    """In the words in which it came."""
    edits = edits_of(tmp_path)
    edits.import_text('{"mcpServers": {"a": {"command": "x", "isActive": false}}}', "operator")
    assert edits.load().servers["a"].disabled


def test_an_agent_disables_a_server_freely(tmp_path: Path) -> None:
    """That starts nothing."""
    edits = edits_of(tmp_path, {"s": {"command": "x"}})
    assert not edits.switch("s", "agent", is_enabled=False).is_quarantined
    assert stored(tmp_path) == {"s": {"command": "x", "disabled": "by agent"}}


@pytest.mark.parametrize("way", ["switch", "patch", "replace"])
def test_what_an_agent_disabled_an_agent_may_enable(tmp_path: Path, way: str) -> None:
    """The entry is as its user left it then: nothing of it waits."""
    edits = edits_of(tmp_path, {"s": {"command": "x"}})
    off: dict[str, Any] = {"disabled": True}
    if way == "switch":
        edits.switch("s", "agent", is_enabled=False)
        done = edits.switch("s", "agent", is_enabled=True)
    elif way == "patch":
        edits.patch("s", off, "agent")
        done = edits.patch("s", {"disabled": None, "enabled": None}, "agent")
    else:
        edits.replace("s", {"command": "x"} | off, "agent")
        done = edits.replace("s", {"command": "x"}, "agent")
    assert not done.is_quarantined and stored(tmp_path) == {"s": {"command": "x"}}


@pytest.mark.parametrize("by", ["operator", "web"])
@pytest.mark.parametrize("is_off_before", [False, True])
def test_what_the_user_disables_as_well_waits(tmp_path: Path, by: Author, is_off_before: bool) -> None:
    """Before the agent did, or after it: the user's word is the one that counts."""
    edits = edits_of(tmp_path, {"s": {"command": "x"}})
    for author in (by, "agent") if is_off_before else ("agent", by):
        edits.switch("s", author, is_enabled=False)  # type: ignore[arg-type]
    assert stored(tmp_path) == {"s": {"command": "x", "disabled": True}}
    assert edits.switch("s", "agent", is_enabled=True).is_quarantined


@pytest.mark.parametrize("off", [{"disabled": True}, {"enabled": False}, {"disabled": True, "enabled": False}], ids=str)
def test_an_agent_cannot_pass_off_the_users_switch_as_its_own(tmp_path: Path, off: dict[str, Any]) -> None:
    """By writing the mark itself, in whichever way, in one step or in several."""
    edits = edits_of(tmp_path, {"s": {"command": "x"} | off})
    edits.patch("s", {"disabled": "by agent"}, "agent")
    edits.replace("s", {"command": "x", "disabled": "by agent", "enabled": off.get("enabled", True)}, "agent")
    assert edits.switch("s", "agent", is_enabled=True).is_quarantined


def test_a_changed_command_waits_whoever_disabled_the_server(tmp_path: Path) -> None:
    """What an agent may enable again is what its user had put there."""
    edits = edits_of(tmp_path, {"s": {"command": "x"}})
    edits.switch("s", "agent", is_enabled=False)
    assert edits.patch("s", {"command": "y"}, "agent").is_quarantined


@pytest.mark.parametrize("by", OTHERS)
@pytest.mark.parametrize(
    "change",
    [
        {"quarantined": False},
        {"quarantined": None},
        {"trust": "trusted"},
        {"input_requests": True},
        {"connection": "per_client"},
    ],
    ids=str,
)
def test_others_cannot_say_that_a_server_is_trusted(tmp_path: Path, by: Author, change: dict[str, Any]) -> None:
    """Not by a patch, not by another entry, not when they add it, not by adding it anew."""
    entry = {"command": "x", "quarantined": True}
    edits = edits_of(tmp_path, {"s": entry})
    with pytest.raises(RefusedError):
        edits.patch("s", change, by)
    whole = {"command": "x"} | {key: value for key, value in change.items() if value is not None}
    if len(whole) > 1:
        with pytest.raises(RefusedError):
            edits.replace("s", whole, by)
        with pytest.raises(RefusedError):
            edits.add("t", whole | {"trust": "trusted"}, by)
    else:
        assert edits.replace("s", whole, by).is_quarantined
    assert stored(tmp_path) == {"s": entry}
    edits.remove("s", by)
    assert edits.add("s", {"command": "x"}, by).is_quarantined


def test_the_user_lifts_a_quarantine_and_an_agent_does_not(tmp_path: Path) -> None:
    """By the command line, or with the operator's token."""
    edits = edits_of(tmp_path, {"s": {"command": "x", "quarantined": True}})
    with pytest.raises(RefusedError, match="s") as caught:
        edits.approve_server("s", "agent")
    assert "mcpproxy server approve s" in caught.value.hint
    assert edits.approve_server("s", "web").changed == ("quarantined",)
    assert stored(tmp_path) == {"s": {"command": "x"}}


def test_an_agent_cannot_turn_an_address_into_a_program(tmp_path: Path) -> None:
    """B55: nor the other way. Source: docs/design/faults.md#use-of-the-gateways-tools"""
    edits = edits_of(tmp_path, {"u": {"url": "http://localhost/mcp"}, "c": {"command": "x"}})
    for name, patch in (("u", {"url": None, "command": "x"}), ("c", {"command": None, "url": "http://localhost/"})):
        with pytest.raises(RefusedError, match="cannot be turned"):
            edits.patch(name, patch, "agent")
    assert not edits.patch("u", {"url": None, "command": "x"}, "operator").is_quarantined


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "..",
        "a/../b",
        "a:b",
        "x" * 300,
        "a__b",
        "\x1b[2J",
        "git\u200bhub",
        "MCPProxy",
        "profiles",
        "mcpServers",
        "Servers",
        "-x",
        "a\nb",
        "/etc",
    ],
)
@pytest.mark.parametrize("by", ["agent", "operator"])
def test_names_that_confuse_are_refused(tmp_path: Path, name: str, by: Author) -> None:
    """B53. Source: docs/design/faults.md#use-of-the-gateways-tools"""
    with pytest.raises(RequestError):
        edits_of(tmp_path).add(name, {"command": "true"}, by)
    assert stored(tmp_path) == {}


@pytest.mark.parametrize("name", ["git-hub", "GIT-HUB", "git_hub", "git.hub", "git hub"])
def test_a_name_that_is_taken_or_looks_like_it_is_a_conflict(tmp_path: Path, name: str) -> None:
    """A reader would take one for the other."""
    with pytest.raises(ConflictError) as caught:
        edits_of(tmp_path, {"git-hub": {"command": "x"}}).add(name, {"command": "true"}, "agent")
    assert caught.value.error_code == "server_exists"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"command": "x", "url": "http://localhost"}, "both 'command' and 'url'"),
        ({}, "neither 'command' nor 'url'"),
        ({"url": "localhost:80"}, "not an http or https"),
        ({"url": "file:///etc/passwd"}, "not an http or https"),
        ({"url": "https://user:hunter2@example.com"}, "user name or password"),
        ({"command": "x", "isolation": {"images": "node"}}, "isolation"),
        ({"command": "x", "args": "a"}, "'args'"),
        ({"command": "x\0"}, "NUL"),
        ({"command": "x", "env": {"A": "***"}}, "mask"),
        ({"command": "x", "type": "carrier-pigeon"}, "type"),
    ],
)
def test_entries_that_cannot_be_used_are_refused(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    """B54: with the words of a start, and no secret in them.

    Source: docs/design/faults.md#use-of-the-gateways-tools
    """
    with pytest.raises(RequestError, match=message) as caught:
        edits_of(tmp_path).add("s", entry, "agent")
    assert "hunter2" not in str(caught.value)
    assert stored(tmp_path) == {}


def test_a_mask_in_a_patch_keeps_what_is_stored(tmp_path: Path) -> None:
    """Whoever edits what was shown to him destroys nothing."""
    edits = edits_of(tmp_path, {"s": {"command": "x", "env": {"TOKEN": "hunter2", "B": "1"}}})
    done = edits.patch("s", {"env": {"TOKEN": "***", "B": "2"}}, "operator")
    assert stored(tmp_path)["s"]["env"] == {"TOKEN": "hunter2", "B": "2"}
    assert done.changed == ("env.B",)
    assert "hunter2" not in repr(done)


@pytest.mark.parametrize(
    ("settings", "by", "refused"),
    [
        ({"read_only": True}, "agent", {"add", "remove", "patch", "import", "switch"}),
        ({"read_only": True}, "operator", {"add", "remove", "patch", "import", "switch", "approve"}),
        ({"allow_server_add": False}, "agent", {"add", "import"}),
        ({"allow_server_add": False}, "operator", set()),
        ({"allow_server_remove": False}, "agent", {"remove"}),
        ({"allow_server_remove": False}, "web", set()),
    ],
)
def test_settings_forbid(tmp_path: Path, settings: dict[str, Any], by: Author, refused: set[str]) -> None:
    """Read-only is for everybody, the others for agents."""
    operations = {
        "switch": lambda edits: edits.switch("s", by, is_enabled=False),
        "patch": lambda edits: edits.patch("s", {"timeout": 5000}, by),
        "approve": lambda edits: edits.approve_server("s", by),
        "add": lambda edits: edits.add("t", {"command": "x"}, by),
        "import": lambda edits: edits.import_text('{"i": {"command": "x"}}', by),
        "remove": lambda edits: edits.remove("s", by),
    }
    edits = edits_of(tmp_path, {"s": {"command": "x"}}, **settings)
    found = set()
    for name, operation in operations.items():
        try:
            operation(edits)
        except RefusedError as error:
            found.add(name)
            assert "MCPPROXY_" in error.message or name == "approve"
    assert found == (refused | {"approve"} if by == "agent" else refused)


def test_an_unknown_server_is_named_with_those_that_are_close(tmp_path: Path) -> None:
    """Whatever was to be done with it."""
    edits = edits_of(tmp_path, {"github": {"command": "x"}})
    for operation in (
        lambda: edits.patch("githb", {}, "agent"),
        lambda: edits.remove("githb", "agent"),
        lambda: edits.switch("githb", "agent", is_enabled=True),
    ):
        with pytest.raises(ServerNotFoundError) as caught:
            operation()
        assert "github" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"one": {"command": "a"}, "two": {"url": "http://localhost/mcp"}}}',
        '{"servers": {"one": {"type": "stdio", "command": "a"}, "two": {"type": "http", "url": "http://localhost/m"}}}',
        '{"mcp": {"servers": {"one": {"command": "a"}, "two": {"url": "http://localhost/mcp"}}}}',
        '[{"name": "one", "command": "a"}, {"name": "two", "url": "http://localhost/mcp"}]',
        '{"one": {"command": "a"}, "two": {"url": "http://localhost/mcp"}}',
        '"one": {"command": "a"}, // pasted\n"two": {"httpUrl": "http://localhost/mcp"},',
    ],
)
def test_servers_are_imported_from_any_client(tmp_path: Path, text: str) -> None:
    """Cursor, Claude, VS Code, lists, bare entries, and a part that was pasted."""
    done = edits_of(tmp_path).import_text(text, "web")
    assert done.added == ("one", "two") and done.is_quarantined
    assert all(entry["quarantined"] is True for entry in stored(tmp_path).values())


def test_an_import_takes_what_it_can_and_says_why_not_the_rest(tmp_path: Path) -> None:
    """Servers that are there stay as they are."""
    edits = edits_of(tmp_path, {"here": {"command": "mine"}})
    text = json.dumps({"here": {"command": "evil"}, "bad:name": {"command": "x"}, "both": {"command": "x", "url": "y"}})
    done = edits.import_text(text, "operator")
    assert done.added == () and sorted(done.skipped) == ["bad:name", "both", "here"]
    assert stored(tmp_path) == {"here": {"command": "mine"}}
    for nothing in ("", "{}", "null", "[]", "not json", '{"a": 1}'):
        with pytest.raises(ProxyError):
            edits.import_text(nothing, "operator")
