"""Hints on what a sandbox refused, from the words of real programs."""

from pathlib import Path

import pytest

from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.servers.config import Allowance, Isolation
from smart_mcp_proxy.upstream.confinement.refusals import find_refusals, hint_refusal, suggest_allowance


def server(isolation: Isolation) -> ServerConfig:
    """A server that is held so."""
    return ServerConfig(name="my notes", transport="stdio", command="x", isolation=isolation)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a folder of notes and a file."""
    for name in (".config", ".kube", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / ".kube" / "config").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("line", "first", "option"),
    [
        ("Error: EACCES: permission denied, open '{home}/notes/a.db'", "", "--write {home}/notes"),
        ("Error: EACCES: permission denied, mkdir '{home}/notes/x'", "", "--write {home}/notes"),
        ("Error: EACCES: permission denied, mkdir '{home}/x'", "mkdir {home}/x && ", "--write {home}/x"),
        (
            "PermissionError: [Errno 13] Permission denied: '{home}/a.db'",
            "touch {home}/a.db && ",
            "--write {home}/a.db",
        ),
        ("sh: 1: cannot create {home}/a/log: Permission denied", "mkdir -p {home}/a && ", "--write {home}/a"),
        ("open {home}/.config/log: permission denied", "touch {home}/.config/log && ", "--write {home}/.config/log"),
        (
            "EACCES: permission denied, open '{home}/.config/app/log.txt'",
            "mkdir -p {home}/.config/app && ",
            "--write {home}/.config/app",
        ),
        (
            'cause: Permission denied (os error 13) at path "{home}/notes/.tmpX" while writing',
            "",
            "--write {home}/notes",
        ),
        ("open {home}/.kube/config: permission denied", "", "--read {home}/.kube/config"),
        ("Permission denied: '/etc/acme.log'", "touch /etc/acme.log && ", "--write /etc/acme.log"),
        ("Permission denied: '/tmp/acme.log'", "touch /tmp/acme.log && ", "--write /tmp/acme.log"),
        ("ls: cannot open directory '/root': Permission denied", "", "--read /root"),
    ],
)
def test_a_refused_path_is_named_with_the_command_that_allows_it(
    home: Path, line: str, first: str, option: str
) -> None:
    """The last refusal counts; what is to be made is allowed by its folder, or made first where that is everybody's."""
    said, option = line.format(home=home), option.format(home=home)
    hint = hint_refusal(server(Isolation("sandbox")), ["EACCES: open '/other'", said, "bye"])
    assert hint.endswith(f": {first.format(home=home)}mcpproxy server allow 'my notes' {option}")


def test_what_no_server_may_reach_is_named_without_a_command(home: Path) -> None:
    """`mcpproxy server allow` refuses it."""
    said, guarded = f"open {home}/data/operator.token: permission denied", (home / "data",)
    assert hint_refusal(server(Isolation("sandbox")), [said], "", guarded).endswith(": no server may reach that")
    assert suggest_allowance("s", find_refusals([said])[0], guarded) == ""


@pytest.mark.parametrize(
    "line",
    [
        "terminate called after throwing an instance of 'duckdb::InternalException'",
        "Fatal error: Error: EACCES: permission denied, uv_resident_set_memory",
        "PermissionError: [Errno 13] Permission denied: '/proc/self/status'",
        "Failed to create CoreCLR, HRESULT: 0x8007000E",
    ],
)
def test_figures_of_its_own_process_are_named(line: str) -> None:
    """A path of one process would mean another one at the next start."""
    assert hint_refusal(server(Isolation("sandbox")), [line]).endswith("allow 'my notes' --read /proc")
    assert hint_refusal(server(Isolation("none")), [line]) == ""


@pytest.mark.parametrize(
    ("said", "frame"),
    [
        ("Error: the worker has exited", "    at ThreadStream.write (/app/index.js:276:19)"),
        ("Error: _flushSync took too long (10s)", "    at flushSync (/app/node_modules/thread-stream/index.js:523:12)"),
    ],
)
def test_the_end_of_a_thread_that_writes_the_log_may_be_the_sandboxs_doing(said: str, frame: str) -> None:
    """Pino names no file; a server that logs beside its own program ends so at each start."""
    lines = ["node:events:502", said, frame]
    hint = hint_refusal(server(Isolation("sandbox")), lines)
    assert hint == " It runs in a sandbox, which may be why: mcpproxy server allow 'my notes' --help"
    assert hint_refusal(server(Isolation("none")), lines) == ""


def test_an_abort_without_a_word_is_taken_for_one_over_these_figures() -> None:
    """As DuckDB ends in programs written in Rust; who says why it aborts is believed."""
    hint = hint_refusal(server(Isolation("sandbox")), [], "Server 'my notes' ended with signal 6.")
    assert hint.endswith("allow 'my notes' --read /proc")
    spoken = "Server 'my notes' ended with signal 6. It wrote: no such table"
    assert hint_refusal(server(Isolation("sandbox")), ["no such table"], spoken) == ""


def test_a_place_that_may_be_read_already_is_to_be_written() -> None:
    """Where the line does not tell what was refused."""
    line = "PermissionError: [Errno 13] Permission denied: '/etc/hostname'"
    assert hint_refusal(server(Isolation("sandbox")), [line]).endswith("--read /etc/hostname")
    held = server(Isolation("sandbox", allow=Allowance(read=("/etc/hostname",))))
    assert hint_refusal(held, [line]).endswith("--write /etc/hostname")


@pytest.mark.parametrize(
    "line",
    [
        "no podman implementation available: api (not available), cli (not available)",
        "docker.errors.DockerException: Error while fetching server API version: ('Connection aborted.', "
        "PermissionError(13, 'Permission denied'))",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    ],
)
def test_an_engine_of_containers_is_for_servers_outside_the_sandbox(line: str) -> None:
    """Which only a person says."""
    hint = hint_refusal(server(Isolation("sandbox")), [line])
    assert hint.endswith("mcpproxy server patch 'my notes' isolation=none")
    assert hint_refusal(server(Isolation("none")), [line]) == ""


def test_who_is_not_confined_gets_no_such_hint() -> None:
    """The refusal was the system's own."""
    assert hint_refusal(server(Isolation("none")), ["EACCES: permission denied, open '/x'"]) == ""
    assert hint_refusal(server(Isolation("sandbox")), ["Error: no API key"]) == ""


def test_a_closed_network_is_named() -> None:
    """Programs say that in many words."""
    closed = server(Isolation("sandbox", allow=Allowance(network=False)))
    assert hint_refusal(closed, ["getaddrinfo EAI_AGAIN example.test"]).endswith("--network on")
    assert hint_refusal(server(Isolation("sandbox")), ["getaddrinfo EAI_AGAIN example.test"]) == ""


def test_a_refusal_without_a_path_is_a_guess() -> None:
    """And says so."""
    assert "may be why" in hint_refusal(server(Isolation("sandbox")), ["Operation not permitted"])
