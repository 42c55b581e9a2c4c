"""Whether what is called like us is us."""

from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from smart_mcp_proxy.cli.commands.machine.other_programs import older_package, other_programs

OURS = "#!/x/bin/python\nimport sys\nfrom smart_mcp_proxy.cli import main\nsys.exit(main())\n"


@pytest.mark.parametrize(
    ("content", "is_other"),
    [
        (OURS, False),
        (OURS.replace("smart_mcp_proxy.cli", "mcpproxy.server"), True),
        ("#!/bin/sh\nexec pyenv exec mcpproxy\n", False),
        ("\x7fELF and so on", True),
    ],
)
def test_a_program_of_our_name_is_looked_into(tmp_path: Path, content: str, is_other: bool) -> None:
    """A script of this package, of another one, of a shell, and a binary."""
    program = tmp_path / "mcpproxy"
    program.write_text(content)
    program.chmod(0o755)
    assert other_programs({"PATH": str(tmp_path)}) == ([str(program)] if is_other else [])
    assert other_programs({"PATH": str(tmp_path / "nothing")}) == []


class Installed:
    """What importlib knows of an installed package."""

    def __init__(self, version: str, *files: str) -> None:
        self.version = version
        self.files = [PurePosixPath(file) for file in files]


def test_the_older_package_is_told_from_ours_by_its_files() -> None:
    """Ours may be installed as a wheel, as an editable one of an earlier version, or not at all."""

    def find(*installed: Any) -> str:
        def distribution(_: str) -> Distribution:
            if not installed:
                raise PackageNotFoundError
            return installed[0]

        return older_package(distribution)

    assert find(Installed("0.3.1", "mcpproxy/__init__.py", "mcpproxy/server.py")) == "0.3.1"
    assert find(Installed("1.0.0", "smart_mcp_proxy/__init__.py")) == ""
    assert find(Installed("0.1.0", "_editable_impl_smart_mcp_proxy.pth")) == ""
    assert find() == ""
