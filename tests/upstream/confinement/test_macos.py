"""The profile that macOS holds a server to, as text; and what is started with it."""

import sys
from pathlib import Path

import anyio
import pytest

from smart_mcp_proxy.servers import isolate
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.upstream.confinement import sandbox
from smart_mcp_proxy.upstream.confinement.macos import write_profile
from smart_mcp_proxy.upstream.confinement.reach import ServerReach, Shelter
from smart_mcp_proxy.upstream.stdio.stdio import ChildProcess

REACH = ServerReach(
    read=("/usr", '/opt/a "b"'),
    write=("/opt/data",),
    listed=("/opt/list",),
    network=True,
    has_sockets=False,
    has_own_world=False,
    variables={},
    cwd="/opt/data",
    links={},
)


def test_a_profile_allows_the_reach_and_nothing_else() -> None:
    """Files by kind of access, and the network; all else is refused by its second line."""
    lines = write_profile(REACH).splitlines()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    (read,) = (line for line in lines if line.startswith("(allow process-exec file-read* "))
    assert '(subpath "/opt/a \\"b\\"")' in read and '(subpath "/System")' in read and '(subpath "/opt/data")' in read
    (write,) = (line for line in lines if "file-write*" in line)
    assert '(subpath "/opt/data")' in write and '(literal "/dev/null")' in write and "/usr" not in write
    assert '(allow file-read-data (literal "/opt/list"))' in lines
    assert "(allow system-socket)" in lines
    assert all(line.count("(") == line.count(")") for line in lines)


def test_a_closed_network_and_sockets_are_told_apart() -> None:
    """A socket that is named is opened by its path."""
    closed = write_profile(REACH._replace(network=False))
    assert "network" not in closed and "system-socket" not in closed
    sockets = write_profile(REACH._replace(network=False, has_sockets=True))
    assert '(subpath "/opt/data"))' in next(line for line in sockets.splitlines() if "network-outbound" in line)


def test_a_path_that_no_profile_can_name_is_refused() -> None:
    """It could end the text and begin a rule."""
    with pytest.raises(ValueError, match="no profile can name"):
        write_profile(REACH._replace(read=("/opt/a\nb",)))


@pytest.mark.anyio
async def test_where_the_system_is_a_mac_its_program_starts_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the profile in front of the server's command."""
    program = tmp_path / "sandbox-exec"
    program.write_text('#!/bin/sh\necho "$1" "$3" "$4"\n')
    program.chmod(0o700)
    for name, found in (("landlock_version", 0), ("find_bubblewrap", None), ("find_sandbox_exec", str(program))):
        monkeypatch.setattr(sandbox, name, lambda found=found: found)
    written = {"command": sys.executable, "args": ["-V"], "isolation": "sandbox"}
    config = isolate({"s": parse_entry("s", written)[0]}, "auto", {})["s"]
    environ = {"HOME": str(tmp_path), "PATH": "/bin"}
    with anyio.fail_after(30):
        child = await ChildProcess.start(config, environ, print, None, Shelter(tmp_path / "shelter"))
        assert await child.read() == f"-p {sys.executable} -V\n".encode()
        await child.close()
    assert sandbox.find_way() == "sandbox-exec"
