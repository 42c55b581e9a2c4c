"""Parts of other packages that a setting names: looked for only where no part of ours has the name."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from smart_mcp_proxy.errors import MissingExtraError

__all__ = ["EMBEDDERS_GROUP", "ENGINES_GROUP", "is_plugin", "load_plugin"]

EMBEDDERS_GROUP: Final = "smart_mcp_proxy.embedders"
"""Entry points that take settings and environment and return an `Embedder`."""
ENGINES_GROUP: Final = "smart_mcp_proxy.engines"
"""Entry points that take nothing and return a `LexicalEngine`."""


def is_plugin(group: str, name: str) -> bool:
    """Whether an installed package offers a part of this name; loads nothing of it."""
    return _find_entry_point(group, name) is not None


def load_plugin(group: str, name: str) -> Callable[..., Any]:
    """The function or class behind an entry point.

    Raises:
        MissingExtraError: No installed package offers it, or it cannot be imported.
    """
    point = _find_entry_point(group, name)
    if point is None:
        raise MissingExtraError(
            f"No installed package offers {name!r}.",
            hint=f"Install the one whose entry point in the group {group} has this name.",
        )
    try:
        part: Callable[..., Any] = point.load()
    except (ImportError, AttributeError) as exc:
        raise MissingExtraError(
            f"{name!r} cannot be loaded from {point.value}: {exc}.", hint="Reinstall the package that offers it."
        ) from exc
    return part


def _find_entry_point(group: str, name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=group, name=name)), None)
