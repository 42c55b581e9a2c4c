"""Ctrl-C at each question of a command: the end at once, status 130, and nothing done that was asked about."""

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_runs import PROGRAM, TIMEOUT_S, environment

CTRL_C = b"\x03"
Steps = Sequence[tuple[bytes, bytes]]
QUESTIONS: dict[str, tuple[list[str], Steps]] = {
    "init": (["init"], [(b"Take over which", CTRL_C)]),
    "init-files": (["init"], [(b"Take over which", b"svc\n"), (b"stay variables", CTRL_C)]),
    "init-value": (["init"], [(b"Take over which", b"svc\n"), (b"stay variables", b"y\n"), (b"not now", CTRL_C)]),
    "approve-reseal": (["approve", "--reseal"], [(b"[y/N]", CTRL_C)]),
    "server-approve": (["server", "approve", "mine"], [(b"[y/N]", CTRL_C)]),
    "server-isolate": (["server", "isolate", "free"], [(b"[y/N]", CTRL_C)]),
}


def answer(words: list[str], steps: Steps, folder: Path) -> tuple[int, str]:
    """The status of a command whose questions a person at a terminal answers so, and what it said."""
    ours, theirs = pty.openpty()
    env = environment(folder / "data", ISOLATION="sandbox") | {"HOME": str(folder), "TERM": "dumb"}
    # A keyring that cannot be asked, whatever this machine has.
    env |= {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    process = subprocess.Popen([*PROGRAM, *words], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    waiting = list(steps)
    try:
        while select.select([ours], [], [], TIMEOUT_S)[0] and (chunk := os.read(ours, 65_536)):
            said += chunk
            if waiting and waiting[0][0] in said:
                typed = waiting.pop(0)[1]
                # This terminal has no process group to which it would send the signal.
                process.send_signal(signal.SIGINT) if typed == CTRL_C else os.write(ours, typed)
    except OSError:  # nobody has the other end any more
        pass
    try:
        return process.wait(TIMEOUT_S), said.decode()
    finally:
        process.kill()
        os.close(ours)


@pytest.mark.long  # a process each
@pytest.mark.parametrize(("words", "steps"), QUESTIONS.values(), ids=QUESTIONS)
def test_ctrl_c_ends_a_question_at_once(tmp_path: Path, words: list[str], steps: Steps) -> None:
    """No answer is waited for, and no file is other than it was."""
    servers = {"mine": {"command": "true", "quarantined": True}, "free": {"command": "true", "isolation": "none"}}
    (tmp_path / "data").mkdir()
    file = tmp_path / "data/mcp_config.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    clients = tmp_path / ".config/Code/User/mcp.json"
    clients.parent.mkdir(parents=True)
    inputs = [{"id": "key", "type": "promptString", "description": "Key", "password": True}]
    clients.write_text(
        json.dumps({"inputs": inputs, "servers": {"svc": {"command": "x", "env": {"K": "${input:key}"}}}})
    )
    before = file.read_text()
    status, said = answer(words, steps, tmp_path)
    assert (status, "Traceback" in said) == (130, False), said
    assert file.read_text() == before and not (tmp_path / "data/secrets").exists()
