"""The order in which the tests of a run have their turn."""

from pathlib import Path

__all__ = ["DOORS", "turn_of"]

DOORS = "interaction"
"""The folder of the tests that open gateways which serve many of them."""


def turn_of(path: Path, *, is_shared: bool) -> int:
    """When the tests of a file have their turn, the lowest first: the doors last, those of shared ones together."""
    if path.parts[0] != DOORS:
        return 0
    return 1 if is_shared else 2
