"""Packages that run late: what they hold is what it would be, and the gateway in the background starts without it."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import mcp_types
import pytest
from mcp_types import methods
from pydantic import ValidationError

from smart_mcp_proxy.fastmcp_compat.packages import _STRICTER

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
        if (method, table) == ("initialize", methods.SERVER_RESULTS):
            continue  # what it makes of answers that we give is compared below
        named.append([method, version, len(json.dumps(methods._adapter(model).json_schema()))])
for version in ("2025-11-25", "2026-07-28"):
    for name in (1, "x"):
        try:
            methods.validate_client_request("tools/call", version, {"name": name})
        except Exception as exc:
            named.append(str(exc))
    named.append(methods.serialize_server_result("tools/call", version, {"content": [], "resultType": "complete"}))
offers = {
    "completions": {}, "experimental": {"a": {}}, "logging": {}, "prompts": {"listChanged": True}, "tools": {},
    "resources": {"subscribe": True, "listChanged": False}, "tasks": {"list": {}, "requests": {"tools": {"call": {}}}},
}
icon = {"src": "data:x", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
server = {"name": "a", "version": "1", "title": "t", "description": "d", "websiteUrl": "https://a", "icons": [icon]}
answer = {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": server, "instructions": "x"}
for each in (answer, {**answer, "capabilities": {}, "instructions": None}, {**answer, "serverInfo": None}):
    try:
        named.append(methods.serialize_server_result("initialize", "2025-11-25", each))
    except Exception as exc:
        named.append(str(exc))
extended = {**answer, "capabilities": {**offers, "extensions": {"a/b": {}}}}
told = methods.serialize_server_result("initialize", "2025-11-25", extended)
kept = told["capabilities"].pop("extensions", None)  # late, the model of all versions has them
named.append([told, kept in (None, {"a/b": {}})])
left = [name for name, module in sys.modules.items() if type(module) is LateModule]
print(json.dumps([taken, named, missing, late, has_client, left, sorted(set(mcp.__all__) - set(vars(mcp)))]))
"""
LATE = [
    "mcp", "mcp.client", "mcp.server", "mcp.server.request_state", "mcp_types._v2025_11_25", "mcp_types._v2026_07_28",
    "joserfc.jwk", "joserfc.jws", "joserfc.jwt", "jwt", "httpx2", "dotenv", "opentelemetry.propagate", "yaml",
    "jsonschema_rs", "regress", "rich.console", "rich.logging", "sse_starlette", "uvicorn",
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
    assert late[5] == ["joserfc.jwt", "jwt", "dotenv", "opentelemetry.propagate", "sse_starlette"]
    assert late[6] == []


META = {"progressToken": "a", "other": 1}
ICON = {"src": "data:x", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark", "other": 1}
WHO = {"name": "a", "version": "1", "title": "t", "description": "d", "websiteUrl": "https://a", "icons": [ICON]}
TASKS = {"list": {}, "cancel": {}, "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}}
ABILITIES = {
    "experimental": {"a": {}},
    "roots": {"listChanged": True},
    "sampling": {"context": {}, "tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "tasks": TASKS,
    "extensions": {"a": {}},
    "other": 1,
}
FULL: Mapping[str, Mapping[str, Any]] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": ABILITIES, "clientInfo": WHO, "_meta": META},
    "notifications/initialized": {"_meta": META},
    "ping": {"_meta": META, "other": 1},
    "tools/call": {"name": "a", "arguments": {"b": [1]}, "task": {"ttl": 5}, "inputResponses": {}, "_meta": META},
    "tools/list": {"cursor": "a", "_meta": META},
    "prompts/list": {"cursor": "a", "_meta": META},
    "resources/list": {"cursor": "a", "_meta": META},
    "resources/templates/list": {"cursor": "a", "_meta": META},
    "logging/setLevel": {"level": "debug", "_meta": META},
}
"""A message of each method with all that it may have."""


def vary(value: Any) -> Iterator[Any]:
    """The value, and versions in which one part, however deep, is missing or of another type."""
    yield from (value, None, 0, 1.5, True, "x", "", [], {}, ["x"], {"x": 1}, -1, 10**30)
    if isinstance(value, dict):
        for key in value:
            yield {name: each for name, each in value.items() if name != key}
            yield from ({**value, key: changed} for changed in vary(value[key]))
    if isinstance(value, list):
        yield from ([*value[:at], changed, *value[at + 1 :]] for at in range(len(value)) for changed in vary(value[at]))


def takes(model: Any, message: Mapping[str, Any]) -> bool:
    """Whether the model has no objection."""
    try:
        model.model_validate(message, by_name=False)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("method", sorted(FULL))
def test_the_model_of_all_versions_takes_nothing_that_the_eras_does_not(method: str) -> None:
    """The other way round it may: of those messages the era's own model decides."""
    table = (
        methods.CLIENT_REQUESTS if (method, "2025-11-25") in methods.CLIENT_REQUESTS else methods.CLIENT_NOTIFICATIONS
    )
    own = table[method, "2025-11-25"]
    free = getattr(mcp_types, own.__name__)
    taken = 0
    for params in vary(FULL[method]):
        message = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        if takes(free, message):
            taken += 1
            assert takes(own, message), message
    assert taken > 5


def test_every_message_that_is_taken_so_is_varied() -> None:
    """The list has nothing that the test above does not try."""
    models = {**methods.CLIENT_REQUESTS, **methods.CLIENT_NOTIFICATIONS}
    assert {models[method, "2025-11-25"].__name__ for method in FULL} == _STRICTER
