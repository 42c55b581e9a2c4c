"""The syntax trees of the package, which several tests of its source look through."""

import ast
import gc
from collections.abc import Iterable
from functools import cache
from pathlib import Path

__all__ = ["PACKAGE", "list_nodes", "package_trees", "parsed"]

PACKAGE = Path(__file__).parent.parent / "smart_mcp_proxy"


@cache
def package_trees() -> dict[str, ast.Module]:
    """The trees by path below the package, in their order, parsed once in a process.

    They stay, so they are left out of collections, each of which would look through half a million nodes.
    """
    gc.collect()
    trees = parsed(sorted(PACKAGE.rglob("*.py")))
    gc.freeze()
    return {file.relative_to(PACKAGE).as_posix(): tree for file, tree in trees.items()}


@cache
def list_nodes(tree: ast.Module) -> list[ast.AST]:
    """The nodes of a tree in the order of `ast.walk`, without what says only whether a name is read or written."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                nodes += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and name != "ctx":
                nodes.append(value)
    return nodes


def parsed(files: Iterable[Path]) -> dict[Path, ast.Module]:
    """The tree of each file; parsing makes no garbage, and looking for it would take most of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    finally:
        if was_enabled:
            gc.enable()
