"""How an entry says what its server's process may reach, and what holds where it says nothing."""

from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.servers import (
    ServerConfig,
    describe_isolation,
    explain_isolation,
    identify_program,
    isolate,
    list_guarded_places,
    warnings_about,
)
from smart_mcp_proxy.servers.config import Allowance, Isolation
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.settings import Settings

RUN = ["run", "-i", "image"]
"""The words by which an engine makes a container."""


def server(**entry: Any) -> ServerConfig:
    """The server of an entry."""
    return parse_entry("s", {"command": "npx", "args": ["-y", "pkg"]} | entry)[0]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, Isolation()),
        ({"isolation": "none"}, Isolation("none")),
        ({"isolation": "Sandbox"}, Isolation("sandbox")),
        ({"isolation": {"enabled": False}}, Isolation()),
        ({"isolation": {"enabled": True}}, Isolation("container")),
        ({"isolation": {"image": "node:22"}}, Isolation("container", "node:22")),
        ({"isolation": {"mode": "sandbox"}}, Isolation("sandbox")),
        (
            {"isolation": {"image": "node:22", "network_mode": "none"}},
            Isolation("container", "node:22", Allowance(network=False)),
        ),
        ({"allow": {"read": ["~/a"], "write": ["/b"]}}, Isolation(allow=Allowance(("~/a",), ("/b",)))),
        ({"isolation": {"enabled": False, "allow": {"network": False}}}, Isolation(allow=Allowance(network=False))),
    ],
)
def test_an_entry_says_how_its_server_is_held(entry: dict[str, Any], expected: Isolation) -> None:
    """In one word, or in mcpproxy-go's object."""
    assert server(**entry).isolation == expected


@pytest.mark.parametrize(
    ("entry", "default", "known", "mode"),
    [
        ({}, "auto", {}, "sandbox"),
        ({}, "auto", {"s": ""}, "none"),
        ({}, "auto", {"s": "another program"}, "sandbox"),
        ({}, "none", {}, "none"),
        ({}, "sandbox", {"s": ""}, "sandbox"),
        ({}, "container", {}, "container"),
        ({"isolation": "none"}, "sandbox", {}, "none"),
        ({"isolation": "sandbox"}, "none", {"s": ""}, "sandbox"),
        ({"command": "/usr/bin/docker", "args": RUN}, "sandbox", {}, "none"),
        ({"command": "docker", "args": ["container", *RUN]}, "sandbox", {}, "none"),
        ({"command": "/home/x/docker", "args": RUN}, "sandbox", {}, "sandbox"),
        ({"command": "docker", "args": RUN, "env": {"PATH": "/home/x"}}, "sandbox", {}, "sandbox"),
        ({"command": "podman", "args": ["unshare", "python3", "srv.py"]}, "auto", {}, "sandbox"),
        ({"command": "docker", "args": ["mcp", "gateway", "run"]}, "sandbox", {}, "sandbox"),
        ({"command": "podman", "args": ["--runtime=/home/x/y", *RUN]}, "container", {}, "container"),
        ({"command": None, "args": None, "url": "http://localhost/mcp"}, "sandbox", {}, "none"),
    ],
)
def test_the_default_holds_where_an_entry_says_nothing(
    entry: dict[str, Any], default: Any, known: dict[str, str], mode: str
) -> None:
    """What ran before there was a sandbox goes on as it did, as long as it is the same program."""
    held = isolate({"s": server(**entry)}, default, known)["s"].isolation
    assert held.mode == mode


def test_another_program_under_a_known_name_is_a_new_server() -> None:
    """So an entry that is led elsewhere does not keep the rights of the one before it."""
    before, after = server(), server(args=["-y", "other"])
    known = {"s": identify_program(before)}
    assert isolate({"s": before}, "auto", known)["s"].isolation.mode == "none"
    assert isolate({"s": after}, "auto", known)["s"].isolation.mode == "sandbox"


def test_how_a_server_is_held_is_one_word() -> None:
    """A command that starts a container is one."""
    shown = isolate(
        {
            "a": server(),
            "b": server(isolation="none"),
            "c": server(command="podman", args=RUN),
            "d": parse_entry("d", {"url": "http://localhost/mcp"})[0],
            "e": server(command="podman", args=["unshare", "x"], isolation="none"),
        },
        "auto",
        {},
    )
    assert [describe_isolation(config) for config in shown.values()] == ["sandbox", "none", "container", "", "none"]


@pytest.mark.parametrize(
    ("entry", "warning"),
    [
        ({"args": ["/home/u"], "allow": {}}, "args[0] names /home/u: it is not open to the server"),
        ({"env": {"DB": "/home/u/x.db"}, "allow": {}}, "env.DB names /home/u/x.db: it is not open"),
        (
            {"allow": {"write": ["~/notes"]}},
            "allow.write names ~/notes: once you approve, the server may read and change",
        ),
        ({"isolation": "none"}, "it would run with your rights"),
        ({"isolation": {"mode": "none"}}, "it would run with your rights"),
        ({"isolation": {"image": "x/y"}}, "container of that image"),
        ({"isolation": {"mode": "sandbox", "allow": {"read": ["~/.ssh"]}}}, "allow.read names ~/.ssh"),
        ({"isolation": {"allow": {}}, "args": ["/home/u"]}, "args[0] names /home/u: it is not open"),
        ({"command": "podman", "args": ["unshare", "/home/u"], "allow": {}}, "args[1] names /home/u: it is not open"),
        (
            {"allow": {"network": ["a.example", "b.example"]}},
            "allow.network names a.example, b.example: once you approve",
        ),
        ({"allow": {"network": True}}, "allow.network names all hosts: once you approve, the server may open"),
        ({"env": {"CONTAINERS_CONF": "x"}}, "The variable CONTAINERS_CONF can make the program load"),
    ],
)
def test_a_reviewer_reads_what_a_waiting_server_would_reach(entry: dict[str, Any], warning: str) -> None:
    """Paths that somebody else has named are only proposed; what would be open is named."""
    waiting = {"command": "x", "quarantined": True} | entry
    assert any(warning in each for each in warnings_about(waiting))
    assert warnings_about({"command": "x"} | entry) == []


def test_what_an_engine_mounts_is_not_said_to_be_closed() -> None:
    """Its options open it, of which the reviewer is told."""
    args = ["run", "-v", "/:/h", "--privileged", "image", "/srv/x.py"]
    found = warnings_about({"command": "docker", "args": args, "allow": {"network": False}, "quarantined": True})
    assert [each.partition(" of ")[0] for each in found] == ["The option '-v'", "The option '--privileged'"]
    assert found == warnings_about({"command": "docker", "args": args, "allow": {}, "quarantined": True})


def test_a_reviewer_reads_which_project_the_servers_script_opens(tmp_path: Path) -> None:
    """The first script alone is the program's own; what is in its project is not said to be closed."""
    own, other = (tmp_path / name / "src" / "tool.py" for name in ("own", "other"))
    for script in (own, other):
        script.parent.mkdir(parents=True)
        script.touch()
        (script.parents[1] / "pyproject.toml").touch()
    args = ["-u", str(own), str(other), f"--data={own.parents[1]}/plans.txt"]
    waiting: dict[str, Any] = {"command": "python", "args": args, "allow": {}, "quarantined": True}
    assert warnings_about(waiting) == [
        f"{own} is the program's own script: the server reads {own.parents[1]}, with all that is in it.",
        f"args[2] names {other}: it is not open to the server; to let it, say mcpproxy server allow.",
    ]
    by_cwd = waiting | {"args": ["tool.py"], "cwd": str(own.parent)}
    assert warnings_about(by_cwd) == [
        f"tool.py is the program's own script: the server reads {own.parents[1]}, with all that is in it."
    ]
    told = warnings_about(waiting | {"args": ["${HOME}/a/tool.py", str(own.parent)]})
    assert [each for each in told if "own script" in each or "is not open" in each] == [
        "${HOME}/a/tool.py is the program's own script, once it is there: the server reads the project around it, "
        "with all that is in it."
    ]
    assert "own script, once" in warnings_about(waiting | {"args": ["a\0b.py"]})[0]


def test_files_that_hold_secrets_of_the_gateway_are_guarded(tmp_path: Path) -> None:
    """With the data directory and the server file, wherever they lie."""
    token, file = tmp_path / "token", tmp_path / "mcp_config.json"
    file.write_text("{}")
    settings = Settings(data_dir=tmp_path / "data", operator_token_file=token)
    assert set(list_guarded_places(settings, tmp_path)) == {tmp_path / "data", file, token}


def test_how_a_server_is_held_is_said_in_words() -> None:
    """What it may reach of its user's, or that it can approve itself; nothing of a remote one."""
    reach = {"read": ["/a"], "write": ["/b", "/c"], "network": False}
    expected = (
        "It runs in a sandbox. Of your files it may change /b, /c and read /a; it may not open network connections. "
        "It reads its own program with the project and runtimes around it."
    )
    assert explain_isolation("sandbox", reach) == expected
    projects = {**reach, "projects": ["/p", "/q"]}
    assert "It reads its own program with /p, /q and runtimes around it." in explain_isolation("sandbox", projects)
    nothing = {"read": [], "write": [], "network": True}
    assert "it may reach none; it may open network" in explain_isolation("container", nothing)
    assert explain_isolation("container", None) == "It runs in a container."
    assert explain_isolation("container", None, {"command": "docker", "args": RUN}) == "It runs in a container."
    opening = {"command": "nerdctl", "args": ["run", "--privileged", "image"]}
    assert explain_isolation("container", None, opening) == (
        "It runs in a container, and can reach what its options open."
    )
    assert "can approve itself" in explain_isolation("none", reach)
    assert explain_isolation("", None) == ""
