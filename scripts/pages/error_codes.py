"""Every error code of the package, read from its syntax trees, with the class that carries it."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

from smart_mcp_proxy import errors
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.proxying.metadata import ProxyType

PACKAGE = Path(__file__).parents[2] / "smart_mcp_proxy"
LINE = re.compile(r"(\w+Error) +([a-z_]+) +(\d{3}) +(-\d+) +(.+)")
"""One class in the tree at the head of errors.py: name, code, HTTP status, JSON-RPC code, whose fault."""
HELPERS = {"_build_code_error": "RequestError"}
"""Functions that are given a code and make an error of this class."""


@dataclass(frozen=True, order=True)
class Fact:
    """How an error of one class appears on the wire."""

    http: str
    jsonrpc: str
    fault: str


def tree() -> str:
    """The tree at the head of errors.py."""
    return (errors.__doc__ or "").split("\n\n", 1)[1].rstrip()


@cache
def codes() -> dict[str, list[Fact]]:
    """Every code with its facts; more than one where errors of several classes carry it."""
    found: dict[str, set[str]] = {}
    classes: dict[str, ast.ClassDef] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ast.parse(file.read_text("utf-8"))
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                classes[node.name] = node
                if code := _stated(node, "code"):
                    found.setdefault(code, set()).add(node.name)
            elif isinstance(node, ast.Call) and (name := _name(node.func)):
                for code in _given(node, module):
                    found.setdefault(code, set()).add(HELPERS.get(name, name))
    facts = _facts(classes)
    ours = {code: {facts[name] for name in names if name in facts} for code, names in found.items()}
    return {code: sorted(known) for code, known in ours.items() if known}


def _stated(node: ast.ClassDef, name: str) -> str:
    """A constant in the body of a class; empty without it."""
    for each in node.body:
        match each:
            case (
                ast.AnnAssign(target=ast.Name(id=found), value=ast.Constant(value=value))
                | ast.Assign(targets=[ast.Name(id=found)], value=ast.Constant(value=value))
            ) if found == name:
                return str(value)
    return ""


def _given(node: ast.Call, module: ast.Module) -> Iterator[str]:
    """The codes that an error is made with."""
    given = [word.value for word in node.keywords if word.arg == "code"]
    if _name(node.func) in HELPERS:
        given += node.args[:1]
    for value in given:
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
            yield value.value
        elif isinstance(value, ast.Name):
            yield from _constant(value.id, module)
        elif isinstance(value, ast.JoinedStr) and ast.unparse(value) == "f'{type}_not_found'":
            yield from (f"{kind}_not_found" for kind in get_args(ProxyType))


def _constant(name: str, module: ast.Module) -> Iterator[str]:
    for each in module.body:
        match each:
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.Constant(value=str(value))) if found == name:
                yield value


def _facts(classes: dict[str, ast.ClassDef]) -> dict[str, Fact]:
    """The facts of every class: those of the tree, and of the classes derived from them."""
    faults = {found[1]: found[5].strip() for found in LINE.finditer(tree())}
    known = {
        name: Fact(str(each.http_status), str(each.jsonrpc_code), faults.get(name, "us"))
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, ProxyError)
    }
    while more := {name: node for name, node in classes.items() if name not in known and _base(node) in known}:
        for name, node in more.items():
            base = known[_base(node)]
            known[name] = Fact(_stated(node, "http_status") or base.http, base.jsonrpc, base.fault)
    return known


def _base(node: ast.ClassDef) -> str:
    return _name(node.bases[0]) if node.bases else ""


def _name(node: ast.expr) -> str:
    """The last part of a name that may stand behind a module's; empty for anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
