"""The TypeScript SDK, which checks each list and result: nothing that a server does costs it our own tools."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forbidden_results import READABLE, UNREADABLE
from node_tools import TYPESCRIPT_SDK, node_environment, npm_package

pytestmark = pytest.mark.clients

HERE = Path(__file__).parent
UPSTREAM = HERE.parent / "interaction" / "scripted_upstream.py"
LIMIT_S = 120
ODD_SCHEMAS: list[dict[str, Any]] = [
    {"exclusiveMinimum": True, "minimum": 0},
    {"nullable": True},
    {"pattern": "(?P<year>[0-9]+)\\Z"},
    {"$ref": "#/definitions/none"},
    {"$ref": "https://e.example/schema.json"},
    {"$schema": "https://e.example/dialect", "type": "string"},
    {"type": "any"},
    {"$ref": "#/properties/n/anyOf/\u00b2", "anyOf": [{}]},
    {"pattern": "a{1," + "9" * 5_000 + "}"},
    {"anyOf": [{"$id": "https://e.example/a", "minimum": 1}, {"$id": "https://e.example/a", "minimum": 2}]},
]


def test_every_list_and_every_result_can_be_read(tmp_path: Path) -> None:
    """Output schemas that it cannot compile, and results that the protocol forbids."""
    cases = [*READABLE.values(), *UNREADABLE.values()]
    results = {f"r{number}": result for number, (result, _) in enumerate(cases)}
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in results]
    for number, schema in enumerate(ODD_SCHEMAS):
        output = {"type": "object", "properties": {"n": schema}}
        tools.append({"name": f"s{number}", "inputSchema": {"type": "object"}, "outputSchema": output})
    (script := tmp_path / "script.json").write_text(json.dumps({"lists": [{"tools": tools}], "results": results}))
    entry = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(script)]}
    target = {
        "command": sys.executable,
        "args": ["-m", "smart_mcp_proxy", "serve"],
        "env": {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "MCPPROXY_DATA_DIR": str(tmp_path / "data"),
            "MCPPROXY_CONFIG_JSON": json.dumps({"mcpServers": {"up": entry}}),
            "MCPPROXY_LIST_ALL_BELOW_TOKENS": "100000",
        },
    }
    names = json.dumps([f"up:{name}" for name in results])
    command = ["node", str(HERE / "read_results.mjs"), str(npm_package(TYPESCRIPT_SDK)), json.dumps(target), names]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, env=node_environment(), check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    seen = json.loads(done.stdout)
    assert {"retrieve_tools", "up__s0"} <= set(seen["listed"])
    for result, (_, expected) in zip(seen["results"].values(), cases, strict=True):
        if isinstance(expected, list):
            assert result == expected
        else:
            assert expected in json.loads(result[0]["text"])["error"]["message"]
