"""Files of other programs: what protects in them protects here, or is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers import ServerConfig, load_configured_servers, load_servers
from smart_mcp_proxy.settings import load_settings

ALL = ("read", "write", "drop")


def server(**keys: Any) -> ServerConfig:
    """The one server of a file in the form of mcpproxy-go: a list of named entries."""
    file = load_servers(json.dumps({"mcpServers": [{"name": "s", "command": "x", **keys}]}))
    assert [problem.message for problem in file.problems] == []
    return file.servers["s"]


@pytest.mark.parametrize(
    ("keys", "used"),
    [
        ({"enabled_tools": ["read"]}, ["read"]),
        ({"enabled_tools": []}, []),
        ({"disabled_tools": ["drop"]}, ["read", "write"]),
        ({"enabled_tools": ["read", "drop"], "disabled_tools": ["drop"]}, ["read"]),
        ({"includeTools": ["read", "write"], "excludeTools": ["write"]}, ["read"]),
        ({"enabled_tools": ["read"], "includeTools": ["write"]}, []),
        ({"enabled_tools": ["*"]}, []),
        ({"disabledTools": ["read"]}, ["write", "drop"]),
        ({}, ["read", "write", "drop"]),
    ],
)
def test_lists_of_tools_are_kept_to_under_any_name(keys: dict[str, Any], used: list[str]) -> None:
    """The same tools are open as where the file comes from; names are names there, not patterns."""
    filter_ = server(**keys).tools
    assert [tool for tool in ALL if filter_.allows(tool)] == used


def test_two_lists_that_could_contradict_are_refused() -> None:
    """Ours and a foreign one: nobody could say which was meant."""
    file = load_servers(json.dumps({"mcpServers": {"s": {"command": "x", "tools": ["a"], "enabled_tools": ["b"]}}}))
    assert (file.usable, len(file.problems)) == ({}, 1)
    assert "says twice which tools are used" in file.problems[0].message


OFF: tuple[dict[str, Any], ...] = (
    {"isActive": False},
    {"active": False},
    {"isEnabled": False},
    {"enabled": False},
    {"autoStart": False},
    {"status": "INACTIVE"},
    {"Disabled": True},
    {"is_active": False},
    {"auto_start": "false"},
    {"isDisabled": True},
    {"status": "disabled"},
    {"active": 0},
    {"enabled": True, "isActive": False},
)


@pytest.mark.parametrize("off", OFF, ids=str)
def test_a_server_that_is_off_elsewhere_is_off_here(off: dict[str, Any]) -> None:
    """By the key of whichever program, and it is no unknown key."""
    assert server(**off).disabled


@pytest.mark.parametrize(
    "on",
    [
        {"isActive": True},
        {"active": True, "enabled": True},
        {"autoStart": True},
        {"status": "ACTIVE"},
        {"status": "error"},
        {"Disabled": False},
        {"active": None},
    ],
    ids=str,
)
def test_a_server_that_is_on_elsewhere_is_on_here(on: dict[str, Any]) -> None:
    """The same keys with another value."""
    assert not server(**on).disabled


@pytest.mark.parametrize("key", ["sandboxEnabled", "sandbox"])
def test_a_server_that_was_to_be_shut_in_is_not_run_free(key: str) -> None:
    """VS Code's sandbox; switched off it says nothing."""
    file = load_servers(json.dumps({"servers": {"s": {"command": "x", key: {"a": 1} if key == "sandbox" else True}}}))
    assert "asks for a sandbox" in file.problems[0].message
    assert list(load_servers(json.dumps({"servers": {"s": {"command": "x", key: False}}})).servers) == ["s"]


def test_spellings_of_mcpproxy_go_are_read() -> None:
    """Its transport and folder; `auto` lets the address decide."""
    read = server(working_dir="/w", protocol="stdio", enabled=True, created="2026-01-01T00:00:00Z")
    assert (read.cwd, read.transport, read.disabled) == ("/w", "stdio", False)
    named = {"name": "u", "url": "https://h.example/x", "protocol": "streamable-http"}
    auto = {"name": "a", "url": "https://h.example/sse", "protocol": "auto"}
    file = load_servers(json.dumps({"mcpServers": [named, auto]}))
    assert {name: one.transport for name, one in file.servers.items()} == {"u": "http", "a": "sse"}


@pytest.mark.parametrize(
    ("key", "value", "variable", "wanted"),
    [
        ("read_only_mode", True, "MCPPROXY_READ_ONLY", "true"),
        ("disable_management", True, "MCPPROXY_MANAGE", "false"),
        ("allow_server_add", False, "MCPPROXY_ALLOW_SERVER_ADD", "false"),
        ("allow_server_remove", False, "MCPPROXY_ALLOW_SERVER_REMOVE", "false"),
    ],
)
def test_a_file_that_restricts_is_refused_until_the_settings_restrict_as_much(
    tmp_path: Path, key: str, value: bool, variable: str, wanted: str
) -> None:
    """The key may stay: both programs read the same path. Its other value asks for nothing."""
    (tmp_path / "mcp_config.json").write_text(json.dumps({"mcpServers": {"s": {"command": "x"}}, key: value}))
    opened = {"MCPPROXY_DATA_DIR": str(tmp_path), "MCPPROXY_MANAGE": "true"}
    with pytest.raises(ConfigError, match=f"'{key}': {str(value).lower()}, a setting of mcpproxy-go") as caught:
        load_configured_servers(load_settings(opened), tmp_path)
    assert f"{variable}={wanted}" in caught.value.hint
    file = load_configured_servers(load_settings(opened | {variable: wanted}), tmp_path)
    assert list(file.servers) == ["s"]
    (tmp_path / "mcp_config.json").write_text(json.dumps({"mcpServers": {"s": {"command": "x"}}, key: not value}))
    assert list(load_configured_servers(load_settings(opened), tmp_path).servers) == ["s"]
