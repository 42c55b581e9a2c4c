"""`mcpproxy ui`: a link that opens the page of a running gateway."""

import json
import os
import pty
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import PROGRAM, Run, environment, served, some_servers


def test_without_a_gateway_it_says_how_to_start_one(run: Run) -> None:
    """The next command is the one that helps."""
    done = run("ui", "--print-url")
    assert (done.status, done.out) == (1, "")
    assert done.next_command == "mcpproxy serve --http"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a gateway, for the tests that leave it as it is."""
    with served(tmp_path_factory.mktemp("ui") / "gateway") as folder:
        yield folder


@pytest.mark.long  # a gateway of its own
def test_the_link_leads_in_once(gateway: Path, run: Run) -> None:
    """It alone is on stdout, so that a script can take it; as JSON with its life."""
    made = run("ui", "--print-url", DATA_DIR=str(gateway))
    assert made.status == 0 and made.out.count("\n") == 1 and "5 minutes" in made.err
    link = made.out.strip()
    with urllib.request.urlopen(link) as reply:
        assert reply.status == 200 and "HttpOnly" in reply.headers["set-cookie"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(link)
    with refused.value as page:
        assert page.code == 403
    other = run("ui", "--json", DATA_DIR=str(gateway)).json
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
def test_the_gateway_of_another_data_directory_is_named(gateway: Path, run: Run) -> None:
    """With the command that opens its page, by this one and by those that would like to have the port."""
    port = re.search(r":(\d+)/", run("ui", "--print-url", DATA_DIR=str(gateway)).out)
    assert port is not None
    command = re.compile(rf"MCPPROXY_DATA_DIR=\S*{gateway.name} \S.* ui")
    for words in (["ui"], ["serve", "--http"]):
        done = run(*words, PORT=port[1])
        assert f"with its data in {gateway}" in done.err and command.fullmatch(done.next_command), done.err
    assert f"with its data in {gateway}" in run("status", PORT=port[1]).err
    assert f"with its data in {gateway}" in run("doctor", PORT=port[1]).out
