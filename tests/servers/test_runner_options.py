"""Options in front of a package, and which of them a person is told of."""

import pytest

from smart_mcp_proxy.servers.runner_options import find_unlisted


@pytest.mark.parametrize(
    ("command", "args", "told"),
    [
        ("npx", ["-y", "pkg", "--registry=x"], []),
        ("npx", ["--registry=x", "pkg"], ["--registry=x"]),
        ("docker", ["run", "--rm", "-i", "-e", "A=1", "img"], []),
        ("docker", ["run", "--env=A=1", "--privileged", "img"], ["--privileged"]),
        ("docker", ["run", "-e", "A", "--privileged", "img"], ["--privileged"]),
        ("podman", ["container", "run", "--privileged", "img"], ["--privileged"]),
        ("docker", ["run", "-v", "/:/h", "--privileged", "img", "-x"], ["-v", "--privileged"]),
        ("docker", ["run", "--mount", "type=bind,src=/,dst=/h", "--pid", "host", "img"], ["--mount", "--pid"]),
        ("nerdctl", ["run", "-it", "--net=host", "img", "--verbose"], ["-it", "--net=host"]),
        ("docker", ["run", "-v", "/:/h"], ["-v"]),
        ("docker", ["run", "-v"], ["-v"]),
        ("uvx", ["--from", "git+https://a.example", "--index", "https://b.example", "x", "-v"], ["--from", "--index"]),
        ("npx", ["--no-install", "pkg", "--port"], ["--no-install"]),
        ("node", ["--inspect", "server.js"], []),
    ],
)
def test_options_that_are_not_listed_are_told(command: str, args: list[str], told: list[str]) -> None:
    """One word may not stand as the value of the one before it; what stands behind the package is its own."""
    assert list(find_unlisted(command, args)) == told
