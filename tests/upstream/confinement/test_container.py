"""How a server's container is made and ended, by an engine that starts plain processes and notes what it is told."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.io.watchdog import Watchdog
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.upstream.confinement import container
from smart_mcp_proxy.upstream.confinement.container import ContainerEngine, compose, find_engine
from smart_mcp_proxy.upstream.confinement.reach import Shelter, choose_private_folder, plan_reach
from smart_mcp_proxy.upstream.stdio.stdio import ChildProcess

pytestmark = pytest.mark.anyio

LIMIT_S = 30
ENGINE = f"""#!{sys.executable} -IS
import json, os, signal, subprocess, sys
folder = os.path.dirname(__file__)
kind, *words = sys.argv[1:]
if kind == "info":
    print("linux")
elif kind == "rm":
    os.kill(int(open(folder + "/" + words[-1]).read()), signal.SIGKILL)
else:
    given = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    with open(folder + "/told", "w") as file:
        json.dump([words, dict(os.environ)], file)
    server = subprocess.Popen([sys.executable, "-ISc", "import signal; signal.pause()"], start_new_session=True)
    with open(folder + "/" + given["name"], "w") as file:
        print(server.pid, file=file)
    print(server.pid, flush=True)
    server.wait()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a project, keys and an engine."""
    for folder in (".ssh", "project", "bin"):
        (tmp_path / folder).mkdir()
    (tmp_path / "project" / "server.py").write_text("")
    (tmp_path / "bin" / "podman").write_text(ENGINE)
    (tmp_path / "bin" / "podman").chmod(0o755)
    return tmp_path


def composed(home: Path, *, environ: dict[str, str] | None = None, **entry: Any) -> tuple[list[str], dict[str, str]]:
    """The words after the engine's program, and its variables."""
    config, _ = parse_entry("s", {"command": "npx", "args": ["-y", "pkg"], "isolation": "container"} | entry)
    variables = {"HOME": str(home), "PATH": "/usr/bin", "LANG": "C"} | config.env
    folder = choose_private_folder(Shelter(home / "data" / "sandbox", (home / "data",)), "s")
    folder.path.mkdir(parents=True, exist_ok=True)
    reach = plan_reach(config, variables, folder)
    made = compose(ContainerEngine("podman", ("--user=7:8",)), config, reach, {"PATH": "/bin"} | (environ or {}))
    assert made.removal == ("podman", "rm", "--force", made.command[5].removeprefix("--name="))
    return list(made.command[1:]), dict(made.variables)


def test_a_container_holds_its_server_without_rights(home: Path) -> None:
    """As its user, in an image that fits its command, with its own folder alone."""
    words, _ = composed(home)
    private = choose_private_folder(Shelter(home / "data" / "sandbox"), "s").path
    for word in ("run", "--rm", "--interactive", "--user=7:8", "--cap-drop=ALL", "--read-only", "--tmpfs=/tmp"):
        assert word in words
    assert "--security-opt=no-new-privileges" in words and "--network=none" not in words
    assert [word for word in words if "mount" in word] == [f"--mount=type=bind,source={private},target={private}"]
    assert (f"--env=HOME={private}" in words, f"--workdir={private}" in words) == (True, True)
    assert words[-4:] == ["--entrypoint=npx", container.IMAGES["npx"], "-y", "pkg"]
    assert "--network=none" in composed(home, allow={"network": False})[0]


def test_values_of_variables_stand_in_no_list_of_processes(home: Path) -> None:
    """Names alone are told; variables of the host's own programs are not handed on."""
    words, variables = composed(home, env={"API_KEY": "hidden-value"}, environ={"DOCKER_HOST": "unix:///x"})
    assert [word for word in words if word.startswith("--env=") and "HOME" not in word and "TMPDIR" not in word] == [
        "--env=LANG",
        "--env=API_KEY",
    ]
    assert "hidden-value" not in str(words)
    assert (variables["API_KEY"], variables["DOCKER_HOST"], variables["PATH"]) == ("hidden-value", "unix:///x", "/bin")


def test_what_an_entry_names_is_mounted_at_its_place(home: Path) -> None:
    """A script with its project read-only, folders as `allow` has them; no programs of the host."""
    words, _ = composed(
        home, command="/usr/bin/python3", args=[f"{home}/project/server.py"], allow={"write": [str(home / "bin")]}
    )
    mounts = [word for word in words if word.startswith("--mount") and "/sandbox/" not in word]
    assert mounts == [
        f"--mount=type=bind,source={home}/bin,target={home}/bin",
        f"--mount=type=bind,source={home}/project,target={home}/project,readonly",
    ]
    assert "--entrypoint=python3" in words


def test_an_image_can_be_named(home: Path) -> None:
    """As mcpproxy-go has it; for a command that we know no image for it has to be."""
    words, _ = composed(home, command="/app/serve", args=[], isolation={"enabled": True, "image": "node:20"})
    assert words[-2:] == ["--entrypoint=/app/serve", "node:20"]
    with pytest.raises(UpstreamError, match="no image is known for '/app/serve'"):
        composed(home, command="/app/serve")


@pytest.mark.parametrize("name", ["DOCKER_HOST", "LD_PRELOAD", "CONTAINER_HOST", "PATH", "MY*"])
def test_an_entry_does_not_steer_the_engine(home: Path, name: str) -> None:
    """It would run, outside of every container, what the entry says."""
    with pytest.raises(UpstreamError, match="would steer the engine"):
        composed(home, env={name: "x"})


def test_a_path_that_engines_would_take_for_options_is_refused(home: Path) -> None:
    """They are given as lists with commas."""
    (home / "a,readonly").mkdir()
    with pytest.raises(UpstreamError, match="take no path"):
        composed(home, allow={"read": [str(home / "a,readonly")]})


def test_without_an_engine_the_error_says_why(tmp_path: Path) -> None:
    """Of each."""
    with pytest.raises(LookupError, match="docker is not installed; podman is not installed"):
        find_engine(str(tmp_path))
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'Cannot connect to its service' >&2; exit 1\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(LookupError, match="docker says: Cannot connect to its service; podman is not"):
        find_engine(str(tmp_path))


@asynccontextmanager
async def started(home: Path, watchdog: Watchdog | None = None) -> AsyncIterator[tuple[ChildProcess, int]]:
    """A server in a container, and the process inside."""
    config, _ = parse_entry("s", {"command": "npx", "isolation": "container", "env": {"API_KEY": "hidden-value"}})
    environ = {"HOME": str(home), "PATH": f"{home}/bin"}
    with anyio.fail_after(LIMIT_S):
        child = await ChildProcess.start(config, environ, print, watchdog, Shelter(home / "data"))
        try:
            yield child, int(await child.read())
        finally:
            await child.close()


async def test_a_container_ends_with_its_server(home: Path) -> None:
    """Also where the engine's command cannot end it any more: it is removed by its name, and no other is touched."""
    async with started(home) as (_, inside):
        words, variables = json.loads((home / "bin" / "told").read_text())
        assert ("--env=API_KEY" in words, variables["API_KEY"]) == (True, "hidden-value")
        other = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    with anyio.fail_after(LIMIT_S):
        await until_gone(inside)
    assert os.waitpid(other, os.WNOHANG) == (0, 0)
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)


async def test_a_container_ends_with_a_killed_gateway(home: Path) -> None:
    """The watchdog removes it."""
    async with Watchdog() as watchdog, started(home, watchdog) as (_, inside):
        await watchdog.__aexit__()  # as the pipe closes with the gateway
        await until_gone(inside)


async def until_gone(pid: int) -> None:
    """Wait for the end of a process that is no child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
