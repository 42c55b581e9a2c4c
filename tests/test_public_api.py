"""The public API: the names that `smart_mcp_proxy` itself exports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import smart_mcp_proxy
from smart_mcp_proxy.client import ProxyClient
from smart_mcp_proxy.gateway import open_gateway

STUB = Path(smart_mcp_proxy.__file__).with_suffix(".pyi")
PUBLIC = [
    "ConfigError",
    "Gateway",
    "ProxyClient",
    "ProxyError",
    "ProxyFastMCP",
    "ProxyMCP",
    "ProxyResponseInfo",
    "Settings",
    "__version__",
    "load_servers",
    "open_gateway",
]
"""A name that leaves this list breaks somebody's program."""


def test_the_public_names_are_these() -> None:
    """Each leads to the object of its module."""
    assert smart_mcp_proxy.__all__ == PUBLIC
    assert all(getattr(smart_mcp_proxy, name) is not None for name in PUBLIC)
    assert smart_mcp_proxy.open_gateway is open_gateway
    assert smart_mcp_proxy.ProxyClient is ProxyClient


def test_type_checkers_know_the_same_names() -> None:
    """By the stub beside it."""
    imported = [
        alias.asname
        for node in ast.parse(STUB.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted([*filter(None, imported), "__version__"]) == PUBLIC


def test_an_unknown_name_is_no_attribute() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="module 'smart_mcp_proxy' has no attribute 'Gatewy'"):
        smart_mcp_proxy.Gatewy  # noqa: B018


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    """A name is imported when it is first used."""
    code = "import sys, smart_mcp_proxy; print([name for name in sys.modules if name.startswith('smart_mcp_proxy.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
