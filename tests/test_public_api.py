"""The public API: the names that `smart_mcp_proxy` itself exports."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from syntax_trees import list_nodes, package_trees

import smart_mcp_proxy
from smart_mcp_proxy import ProxyError, ProxyMCP, ProxyResponseInfo
from smart_mcp_proxy.client import ProxyClient, ProxyResult
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.plugins import EMBEDDERS_GROUP, ENGINES_GROUP
from smart_mcp_proxy.search.embedding import Embedder
from smart_mcp_proxy.search.engine import Engine, LexicalEngine
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.rest import ROUTES

STUB = Path(smart_mcp_proxy.__file__).with_suffix(".pyi")
NAMES = Path(__file__).with_name("public_names.toml")
CODES = Path(__file__).parents[1] / "docs" / "words" / "errors.toml"
"""Those of the package, as tests/docs holds."""
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
CLIENT = [
    "InvalidAnswerError",
    "InvalidOperationError",
    "MissingProxyToolError",
    "ProxyClient",
    "ProxyFastMCP",
    "ProxyMCP",
    "ProxyResponseInfo",
    "ProxyResult",
    "deserialize_embedded_resource_python_object",
    "get_embedded_resource_python_object",
    "get_proxy_query_result",
    "tool_result_as_prompt_result",
    "tool_result_as_resource_result",
]
MEMBERS: dict[type, str] = {
    Embedder: "id dimension embed embed_query",
    Engine: "explain fit fitness meets name problem rank update",
    Gateway: "apply degraded is_settled mcp_server serves_at start_upstreams status visible wait_settled",
    LexicalEngine: "scores",
    ProxyClient: "batch call_tool discover_proxy get_prompt list_prompts list_resource_templates list_resources"
    " list_tools proxy read_resource",
    ProxyError: "code from_dict http_status jsonrpc_code to_dict",
    ProxyMCP: "PROXY_TOOL_NAME get_proxy_query_result proxied_server validate_operation",
    ProxyResponseInfo: "content_type from_annotations from_content many next_cursor proxy_action proxy_path proxy_type"
    " python_type total_count",
    ProxyResult: "raise_if_error",
}


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


def list_members(cls: type) -> set[str]:
    """Public names that a class itself gives its users."""
    return {name for name in vars(cls) if not name.startswith("_")} | {
        name for name in getattr(cls, "__annotations__", {}) if not name.startswith("_")
    }


def test_what_programs_and_plugins_call_keeps_its_name() -> None:
    """Members of exported classes and of the protocols behind entry points; what has to change keeps an alias."""
    assert smart_mcp_proxy.client.__all__ == CLIENT
    assert (EMBEDDERS_GROUP, ENGINES_GROUP) == ("smart_mcp_proxy.embedders", "smart_mcp_proxy.engines")
    for cls, names in MEMBERS.items():
        assert list_members(cls) >= set(names.split()), cls


def test_what_scripts_and_alarms_name_keeps_its_name() -> None:
    """What is new is added to the list; what leaves it is a change that breaks somebody's work."""
    metrics = {
        node.value
        for tree in package_trees().values()
        for node in list_nodes(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("mcpproxy_")
    }
    known = {
        "error_codes": tomllib.loads(CODES.read_text("utf-8")).keys(),
        "metrics": metrics,
        "operations": {f"{each.method} {each.path}" for each in ROUTES},
        "settings": {f"MCPPROXY_{name.upper()}" for name in Settings.model_fields},
    }
    pinned = tomllib.loads(NAMES.read_text("utf-8"))
    assert pinned.keys() == known.keys()
    for kind, names in pinned.items():
        assert set(names) - known[kind] == set(), kind
        assert kind == "metrics" or known[kind] - set(names) == set(), kind
