"""`mcpproxy ui`: a link that opens the page of a running gateway."""

import json
import os
import pty
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cli_runs import PROGRAM, Run, environment, run_process, served, some_servers


def test_without_a_gateway_it_says_how_to_start_one(run: Run) -> None:
    """The next command is the one that helps."""
    done = run("ui", "--print-url")
    assert (done.status, done.out) == (1, "")
    assert done.next_command == "mcpproxy serve --http"


@pytest.mark.long  # a gateway and a process for each link
def test_the_link_leads_in_once(tmp_path: Path) -> None:
    """It alone is on stdout, so that a script can take it; as JSON with its life."""
    with served(tmp_path / "home") as folder:
        env = environment(folder)
        made = run_process("ui", "--print-url", cwd=folder, env=env)
        assert made.status == 0 and made.out.count("\n") == 1 and "5 minutes" in made.err
        link = made.out.strip()
        with urllib.request.urlopen(link) as reply:
            assert reply.status == 200 and "HttpOnly" in reply.headers["set-cookie"]
        try:
            urllib.request.urlopen(link)
        except urllib.error.HTTPError as refused:
            assert refused.code == 403
        else:
            raise AssertionError("it worked twice")
        other = run_process("ui", "--json", cwd=folder, env=env).json
        assert other["expires_in_s"] == 300 and other["url"] != link


def read_banner(folder: Path, stderr: int, said: int) -> tuple[str, subprocess.Popen[bytes]]:
    """What a gateway over HTTP tells people at its start, and its process."""
    (folder / "mcp_config.json").write_text(json.dumps(some_servers("todo")))
    env = environment(folder / "data", LOG_FILE=str(folder / "log"), LOG_LEVEL="DEBUG") | {"TERM": "dumb"}
    words = [*PROGRAM, "serve", "--http", "--port", "0"]
    process = subprocess.Popen(words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
    os.close(stderr)
    text = b""
    while b"Ctrl-C stops it" not in text:
        text += os.read(said, 65_536)
    return text.decode(), process


@pytest.mark.long  # starts a gateway
@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
def test_at_the_start_a_person_gets_the_link_itself(tmp_path: Path, is_terminal: bool) -> None:
    """On a terminal alone, and in no log; the command for a later one works as it is printed."""
    said, stderr = pty.openpty() if is_terminal else os.pipe()
    text, process = read_banner(tmp_path, stderr, said)
    try:
        link = re.search(r"http://\S+/ui/enter/(\S+)", text)
        assert (link is not None) == is_terminal
        if link is not None:
            with urllib.request.urlopen(link[0]) as reply:
                assert reply.status == 200
            assert link[1] not in (tmp_path / "log").read_text()
        command = re.search(r"(?:Later: |Page +)(MCPPROXY_DATA_DIR=.* ui)", text)
        assert command is not None
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        words = ["sh", "-c", f"{command[1]} --print-url"]
        again = subprocess.run(words, cwd="/", env=env, check=True, capture_output=True)
        assert b"/ui/enter/" in again.stdout
    finally:
        process.terminate()
        assert process.wait(20) == 0
        os.close(said)


@pytest.mark.long  # starts a gateway
def test_the_gateway_of_another_data_directory_is_named(tmp_path: Path) -> None:
    """With the command that opens its page, by this one and by those that would like to have the port."""
    with served(tmp_path / "home") as folder:
        link = run_process("ui", "--print-url", cwd=folder, env=environment(folder)).out
        port = re.search(r":(\d+)/", link)
        assert port is not None
        env = environment(tmp_path / "other", PORT=port[1])
        command = re.compile(rf"MCPPROXY_DATA_DIR=\S*{folder.name} \S.* ui")
        for words in (["ui"], ["serve", "--http"]):
            done = run_process(*words, cwd=tmp_path, env=env)
            assert f"with its data in {folder}" in done.err and command.fullmatch(done.next_command), done.err
        assert f"with its data in {folder}" in run_process("status", cwd=tmp_path, env=env).err
        assert f"with its data in {folder}" in run_process("doctor", cwd=tmp_path, env=env).out
