"""The groups of tests that are handed to a process together, and their order."""

from pathlib import Path

__all__ = ["DOORS", "group_of"]

DOORS = "interaction"
"""The folder of the tests that open gateways which serve many of them."""


def group_of(path: Path, *, is_shared: bool) -> tuple[int, str]:
    """When the tests of a file have their turn, the lowest first, and the group that it belongs to."""
    if path.parts[0] != DOORS:
        return 0, path.parent.as_posix()
    return (1, DOORS) if is_shared else (2, path.as_posix())
