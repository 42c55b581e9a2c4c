"""How programs say that a sandbox refused them something."""

from pathlib import Path

import pytest

from smart_mcp_proxy.upstream.confinement.refusals import SandboxRefusal, find_refusals


@pytest.mark.parametrize(
    ("line", "path", "access"),
    [
        ("Error: EACCES: permission denied, open '{file}'", "{file}", "read"),
        ("Error: EACCES: permission denied, mkdir '{file}'", "{file}", "write"),
        ("PermissionError: [Errno 13] Permission denied: '{file}'", "{file}", "read"),
        ("PermissionError: [Errno 13] Permission denied: '{file}.new'", "{file}.new", "write"),
        ("cat: {file}: Permission denied", "{file}", "read"),
        ("touch: cannot touch '{file}': Read-only file system", "{file}", "write"),
        ("socket: Operation not permitted", "", "read"),
    ],
)
def test_a_refusal_names_the_path_and_the_access(tmp_path: Path, line: str, path: str, access: str) -> None:
    """As node, Python and shells word it; what is not there yet was to be made."""
    (file := tmp_path / "file").touch()
    said = line.format(file=file)
    assert find_refusals(["ready", said]) == [SandboxRefusal(said, path.format(file=file), access)]


def test_a_path_is_told_once() -> None:
    """However often it is tried; other failures are none of it."""
    said = ["open /etc/shadow: permission denied", "again: permission denied '/etc/shadow'", "/etc/x: No such file"]
    assert [each.line for each in find_refusals(said)] == said[:1]
