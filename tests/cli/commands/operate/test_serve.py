"""`mcpproxy serve` as a process: what it says, what it serves, and how it ends."""

import json
import os
import pty
import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cli_runs import PROGRAM, TIMEOUT_S, Run, environment, run_process, some_servers

from smart_mcp_proxy.desktop.places import sockets_folder

# Marked long: each starts the command as a process.
pytestmark = pytest.mark.long

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
CALL = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "retrieve_tools", "arguments": {"query": "add a task"}},
}


@contextmanager
def process(*words: str, cwd: Path, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until it is stopped."""
    with subprocess.Popen(
        [*PROGRAM, *words],
        cwd=cwd,
        env=environment(cwd / "data", **settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def read_until(stream: Any, pattern: str) -> str:
    """What the stream says up to the line that matches; the process's end is an error."""
    said = ""
    for line in stream:
        said += line
        if re.search(pattern, line):
            return said
    raise AssertionError(f"ended without {pattern!r}:\n{said}")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a server file."""
    (tmp_path / "mcp_config.json").write_text(json.dumps(some_servers("todo")))
    return tmp_path


def test_http_says_what_it_has_and_ends_well_on_sigterm(project: Path) -> None:
    """Servers, a sample search, snippets and health address on stderr; nothing on stdout; 0 after SIGTERM."""
    with process("serve", "--http", "--port", "0", cwd=project) as gateway:
        said = read_until(gateway.stderr, "Ctrl-C")
        url = re.search(r"MCP +(http://127\.0\.0\.1:\d+/mcp)", said)
        assert url is not None
        assert re.search(r"todo +stdio +ready +7", said)
        assert re.search(r'A search for ".+" finds \d tool', said)
        assert "estimate" in said
        assert f'{{"mcpServers": {{"mcpproxy": {{"url": "{url[1]}"}}}}}}' in said
        assert f"claude mcp add -t http mcpproxy {url[1]}" in said
        assert f'{{"mcpServers": {{"mcpproxy": {{"type": "http", "url": "{url[1]}"}}}}}}' in said
        assert httpx2.get(url[1].replace("/mcp", "/healthz")).json() == {"status": "ok"}
        gateway.send_signal(signal.SIGTERM)
        out, _ = gateway.communicate(timeout=TIMEOUT_S)
        assert (gateway.returncode, out) == (0, "")
    assert list(Path(sockets_folder(str(project / "data"))).glob("*.sock")) == []


@pytest.mark.long  # starts and ends processes, seconds of it
def test_http_answers_before_its_servers_do(tmp_path: Path) -> None:
    """A server that never answers holds nothing up; Ctrl-C ends it all with 130."""
    silent = {"command": "sleep", "args": ["1000"]}
    (tmp_path / "mcp_config.json").write_text(json.dumps({"mcpServers": {"silent": silent}}))
    with process("serve", "--sse", "--port", "0", cwd=tmp_path) as gateway:
        url = read_until(gateway.stderr, "Listening on ").split()[-1]
        assert url.endswith("/sse")
        assert httpx2.get(url.replace("/sse", "/healthz")).status_code == 200
        gateway.send_signal(signal.SIGINT)
        _, err = gateway.communicate(timeout=TIMEOUT_S)
        assert gateway.returncode == 130
        assert "Traceback" not in err


@pytest.mark.long  # a whole start; the report for people stays quick
def test_http_json_is_one_report(project: Path) -> None:
    """Address, health and servers as one object; a token is needed, and never shown."""
    with process("serve", "--http", "--port", "0", "--json", cwd=project, AUTH_TOKEN="very-secret") as gateway:
        assert gateway.stdout is not None
        line = gateway.stdout.readline()
        report = json.loads(line)
        assert report["servers"][0]["state"] == "ready"
        assert report["sample"]["tokens"]["is_estimate"] is True
        assert httpx2.get(report["health"]).status_code == 200
        assert httpx2.post(report["url"], json=INITIALIZE).status_code == 401
        gateway.terminate()
        rest, err = gateway.communicate(timeout=TIMEOUT_S)
        assert rest == ""
        assert "very-secret" not in line + err


def test_stdio_speaks_only_protocol_on_stdout(project: Path) -> None:
    """Every line is a JSON-RPC message; warnings are on stderr; the end of stdin is the end, with 0."""
    (project / "mcp_config.json").write_text(json.dumps({"mcpServers": {"gone": {"command": "no-such-program"}}}))
    with process(cwd=project, TOPK="3") as gateway:
        assert gateway.stdin is not None and gateway.stdout is not None
        for message in (INITIALIZE, INITIALIZED, CALL):
            gateway.stdin.write(json.dumps(message) + "\n")
        gateway.stdin.flush()
        answers = [json.loads(gateway.stdout.readline()) for _ in range(2)]
        out, err = gateway.communicate(timeout=TIMEOUT_S)
    assert gateway.returncode == 0
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["structuredContent"]["query"] == "add a task"
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
    assert "Did you mean MCPPROXY_TOP_K?" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_stdio_ends_well_on_a_signal(project: Path, number: signal.Signals, status: int) -> None:
    """Also while the client waits."""
    with process("serve", cwd=project) as gateway:
        assert gateway.stdin is not None and gateway.stdout is not None
        gateway.stdin.write(json.dumps(INITIALIZE) + "\n")
        gateway.stdin.flush()
        assert json.loads(gateway.stdout.readline())["id"] == 1
        gateway.send_signal(number)
        assert gateway.wait(TIMEOUT_S) == status
        assert gateway.stderr is not None
        assert "Traceback" not in gateway.stderr.read()


def test_check_reports_and_ends(project: Path, run: Run) -> None:
    """0 if every server can be used, 1 if one fails or its entry is broken, 2 if the file is broken; 1 for none."""
    good = run("serve", "--check", "--json")
    assert (good.status, good.json["ok"], good.json["tools"]) == (0, True, 7)
    people = run("serve", "--check")
    assert re.search(r"todo +stdio +ready +7", people.out)
    broken = some_servers("todo")
    broken["mcpServers"]["gone"] = {"command": "no-such-program"}
    (project / "servers.json").write_text(json.dumps(broken))
    done = run("serve", "--check", "--config", "servers.json", "--json")
    assert (done.status, done.json["ok"]) == (1, False)
    broken["mcpServers"]["gone"] = {"args": 1}
    (project / "servers.json").write_text(json.dumps(broken))
    done = run("serve", "--check", "--config", "servers.json", "--json")
    assert (done.status, done.json["problems"][0]["server"]) == (1, "gone")
    (project / "servers.json").write_text("{")
    assert run("serve", "--check", "--config", "servers.json").status == 2
    (project / "servers.json").write_text("{}")
    assert run("serve", "--check", "--config", "servers.json").status == 1


def test_what_keeps_it_from_serving_is_2(project: Path, run: Run) -> None:
    """A taken port, a missing file or server, a data directory that is a file."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--http", "--port", port)
    assert (done.status, done.out) == (2, "")
    assert port in done.err
    assert "MCPPROXY_PORT" in done.err
    assert run("serve", "--config", "nope.json").status == 2
    done = run("serve", "--passthrough", "tood")
    assert done.status == 2
    assert "'tood' is not configured" in done.err
    assert "Known: todo" in done.err
    (project / "data").write_text("")
    done = run("serve", "--http", "--port", "0")
    assert done.status == 2
    assert str(project / "data") in done.err


@pytest.mark.long  # starts the bundled servers; tests/cli/test_demo_servers.py calls them all
def test_the_demo_can_be_served(tmp_path: Path) -> None:
    """The bundled servers over HTTP, and the temporary folder goes with the process."""
    with process("demo", "--serve", cwd=tmp_path, PORT="0") as gateway:
        said = read_until(gateway.stderr, "Ctrl-C")
        assert re.search(r"colors +stdio +ready", said)
        gateway.terminate()
        assert gateway.wait(TIMEOUT_S) == 0
    assert not (tmp_path / "data").exists()


@pytest.mark.long  # starts and ends processes, seconds of it
def test_a_terminal_sees_progress_and_a_pipe_does_not(project: Path, run: Run) -> None:
    """Bars on a terminal, which NO_COLOR leaves without color."""
    reader, writer = pty.openpty()
    command = [*PROGRAM, "server", "list"]
    variables = environment(project / "data") | {"TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(command, cwd=project, env=variables, stdout=subprocess.PIPE, stderr=writer) as shown:
        os.close(writer)
        said = b""
        try:
            while part := os.read(reader, 4096):
                said += part
        except OSError:  # how Linux says that the other side is closed
            pass
        os.close(reader)
        assert shown.stdout is not None
        assert b"todo" in shown.stdout.read()
    assert b"Connecting" in said
    assert b"\x1b[3" not in said
    assert "Connecting" not in run("server", "list").err


@pytest.mark.long  # starts and ends processes, seconds of it
@pytest.mark.parametrize("words", [("serve", "--http", "--port", "0"), ("serve",)])
def test_a_terminal_sees_how_far_embedding_is(project: Path, words: tuple[str, ...]) -> None:
    """A bar on stderr as long as something is missing, here an answer of the service; stdout stays the protocol's."""
    reader, writer = pty.openpty()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        service = {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/v1"}
        variables = environment(project / "data", EMBEDDER="OPENAI") | {"TERM": "xterm"} | service
        gateway = subprocess.Popen(
            [*PROGRAM, *words], cwd=project, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writer
        )
        os.close(writer)
        with gateway:
            try:
                said = b""
                while b"Opening the embedding model" not in said:
                    said += os.read(reader, 4096)
                gateway.terminate()
                while True:  # what is not read would hold it up
                    try:
                        os.read(reader, 4096)
                    except OSError:  # how Linux says that the other side is closed
                        break
                assert gateway.wait(TIMEOUT_S) == 0
                assert gateway.stdout is not None
                assert gateway.stdout.read() == b""
            finally:
                gateway.kill()
                os.close(reader)


@pytest.mark.long  # starts and ends processes, seconds of it
def test_doctor_says_how_many_tools_are_embedded(project: Path, run: Run) -> None:
    """Of a gateway that runs."""
    with process("serve", "--http", "--port", "0", cwd=project, EMBEDDER="HYBRID") as gateway:
        read_until(gateway.stderr, "Ctrl-C stops it")
        for _ in range(60):
            done = run("doctor")
            found = re.search(r"(\d+) of (\d+) tools embedded", done.out)
            if found and found[1] == found[2] != "0":
                break
        else:
            raise AssertionError(done.out)
        gateway.terminate()
        assert gateway.wait(TIMEOUT_S) == 0


@pytest.mark.long  # a whole start; tests/catalog refuses it in this process
def test_a_catalog_of_a_newer_program_is_refused(project: Path) -> None:
    """F45: status 2, one sentence with file, version and the way out, and no traceback; the file stays as it is."""
    file = project / "data" / "proxy.db"
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as newer:
        newer.executescript("CREATE TABLE tools (definition BLOB); PRAGMA user_version = 99;")
    before = file.read_bytes()
    done = run_process("serve", cwd=project, env=environment(project / "data"))
    assert (done.status, done.out) == (2, "")
    assert f"Catalog '{file}' has schema version 99; this program knows versions up to" in done.err
    assert "Upgrade smart-mcp-proxy" in done.err
    assert "Traceback" not in done.err
    assert file.read_bytes() == before
