"""Packages that run late: what they hold is what it would be, and the gateway in the background starts without it."""

import json
import subprocess
import sys

import pytest

COMPARE = """
import json, sys
from smart_mcp_proxy.fastmcp_compat.packages import _HOMES, LateModule, defer_packages
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
left = [name for name, module in sys.modules.items() if type(module) is LateModule]
print(json.dumps([taken, named, missing, late, has_client, left, sorted(set(mcp.__all__) - set(vars(mcp)))]))
"""


@pytest.mark.long  # two processes that load the SDK
def test_what_runs_late_is_the_same() -> None:
    """The names that are taken from elsewhere, and those for which a package runs after all."""

    def found(way: str) -> list[object]:
        done = subprocess.run([sys.executable, "-c", COMPARE, way], capture_output=True, check=True, timeout=60)
        return list(json.loads(done.stdout))

    late, plain = found("late"), found("plain")
    assert late[:3] == plain[:3]
    assert late[2] == [False, False, False]
    assert late[3] == ["mcp", "mcp.client", "mcp.server", "joserfc.jwk", "joserfc.jws", "joserfc.jwt", "jwt", "yaml"]
    assert (late[4], plain[3], plain[4]) == (False, [], True)
    assert late[5] == ["joserfc.jwt", "jwt"]
    assert late[6] == []
