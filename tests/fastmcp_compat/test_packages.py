"""Packages that run late: what they hold is what it would be, and the gateway in the background starts without it."""

import json
import subprocess
import sys

import pytest

COMPARE = """
import json, sys
from smart_mcp_proxy.fastmcp_compat.packages import _HOMES, LateModule, defer_packages, restore_packages
if sys.argv[1] == "late":
    defer_packages()
import mcp, mcp.types, mcp.server.lowlevel.server, joserfc.jws, yaml
from joserfc.jws import extract_compact
taken = {name: repr(getattr(sys.modules[module], name)) for module, name in _HOMES}
late = [name for name, module in sys.modules.items() if type(module) is LateModule]
has_client = "mcp.client.client" in sys.modules
named = [repr(mcp.types.Tool), repr(mcp.Client), repr(mcp.client.ClientSession), yaml.safe_load("a: [1]")]
try:
    extract_compact(b"no signature")
except Exception as exc:
    named.append(type(exc).__name__)
missing = [hasattr(each, "unknown_name") for each in (mcp, mcp.server, yaml)]
assert not hasattr(mcp.server, "__unknown__")
import jsonschema_rs, regress, uvicorn, fastmcp
restore_packages()
import rich.console, rich.logging
from fastmcp.utilities import logging as fastmcps
named += [isinstance(rich.console.Console(), rich.console.Console), type(rich.logging.RichHandler()).__name__]
named.append(type(fastmcps.Console()).__name__)
from fastmcp.server.server import FastMCP
from mcp_types import methods
from mcp.server import elicitation, request_state
from pydantic import BaseModel
named += [jsonschema_rs.is_valid({"type": "string"}, 1), repr(regress.Regex), uvicorn.run.__module__]
named.append(elicitation._PRIMITIVE_SCHEMA_ADAPTER.validate_python({"type": "boolean"}).__class__.__name__)
named.append(request_state.AESGCMRequestStateCodec([b"k" * 32]).unseal.__name__)
for table in (methods.CLIENT_REQUESTS, methods.CLIENT_NOTIFICATIONS, methods.SERVER_RESULTS, methods.CLIENT_RESULTS):
    for (method, version), model in table.items():
        named.append([method, version, len(json.dumps(methods._adapter(model).json_schema()))])
for version in ("2025-11-25", "2026-07-28"):
    for name in (1, "x"):
        try:
            methods.validate_client_request("tools/call", version, {"name": name})
        except Exception as exc:
            named.append(str(exc))
    named.append(methods.serialize_server_result("tools/call", version, {"content": [], "resultType": "complete"}))
left = [name for name, module in sys.modules.items() if type(module) is LateModule]
print(json.dumps([taken, named, missing, late, has_client, left, sorted(set(mcp.__all__) - set(vars(mcp)))]))
"""
LATE = [
    "mcp", "mcp.client", "mcp.server", "mcp.server.request_state", "mcp_types._v2025_11_25", "mcp_types._v2026_07_28",
    "joserfc.jwk", "joserfc.jws", "joserfc.jwt", "jwt", "yaml", "jsonschema_rs", "regress", "rich.console",
    "rich.logging", "sse_starlette", "uvicorn",
]  # fmt: skip


@pytest.mark.long  # two processes that load the SDK
def test_what_runs_late_is_the_same() -> None:
    """The names that are taken from elsewhere, and those for which a package runs after all."""

    def found(way: str) -> list[object]:
        done = subprocess.run([sys.executable, "-c", COMPARE, way], capture_output=True, check=True, timeout=60)
        return list(json.loads(done.stdout))

    late, plain = found("late"), found("plain")
    assert late[:3] == plain[:3]
    assert late[2] == [False, False, False]
    assert late[3] == LATE
    assert (late[4], plain[3], plain[4]) == (False, [], True)
    assert late[5] == ["joserfc.jwt", "jwt", "sse_starlette"]
    assert late[6] == []
