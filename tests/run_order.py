"""The order in which the tests of a run have their turn."""

from pathlib import Path

__all__ = ["INTERACTION", "turn_of"]

INTERACTION = "interaction"
"""The folder of the tests that open gateways which serve many of them."""


def turn_of(path: Path, *, is_shared: bool) -> int:
    """When the tests of a file have their turn, the lowest first: those of tests/interaction last."""
    if path.parts[0] != INTERACTION:
        return 0
    return 1 if is_shared else 2
