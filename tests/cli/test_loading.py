"""The way to the first answer: which modules it takes, and that nothing goes through them again and again."""

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

COUNT_COLLECTIONS = """
import asyncio, gc, json, sys
from smart_mcp_proxy import cli
import smart_mcp_proxy.cli.app as app
rounds = []
gc.callbacks.append(lambda phase, info: phase == "start" and rounds.append(info["generation"]))
def run():
    import smart_mcp_proxy.cli.commands.operate.serving
    from smart_mcp_proxy.web.collector import THRESHOLDS
    from smart_mcp_proxy.web.serve import tune_process
    while_loading = list(rounds)
    async def settle():
        async with tune_process():
            print(json.dumps([while_loading, gc.isenabled(), gc.get_threshold() == THRESHOLDS, sorted(sys.modules)]))
    asyncio.run(settle())
    return 0
app.main = run
sys.argv = ["mcpproxy", *sys.argv[1:]]
cli.main()
"""


@cache
def loaded(*words: str) -> tuple[list[int], bool, bool, list[str]]:
    """Collections while a gateway is loaded for these words; whether the collector is on afterwards, with the
    threshold of a server; and all modules."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT_COLLECTIONS, *words], input=b"", capture_output=True, check=True, timeout=60
    )
    rounds, is_on, is_settled, modules = json.loads(done.stdout)
    return rounds, is_on, is_settled, modules


@pytest.mark.long  # a process that loads everything
def test_nothing_is_collected_while_the_gateway_is_loaded() -> None:
    """The collector is on again once it serves."""
    rounds, is_on, is_settled, _ = loaded("serve")
    assert rounds == []
    assert is_on
    assert is_settled


@pytest.mark.long  # several processes that load everything
def test_a_command_hardly_collects_while_it_loads() -> None:
    """Young objects a few times, everything not once."""
    rounds, is_on, _, _ = loaded("search", "x")
    assert len(rounds) < 10
    assert 2 not in rounds
    assert is_on


NOT_ON_STDIO = {
    "fastmcp",
    "rich.progress",
    "smart_mcp_proxy.cli.support.report",
    "smart_mcp_proxy.cli.commands.operate.serving_http",
    "smart_mcp_proxy.web.broker.app",
    "smart_mcp_proxy.web.rest",
    "smart_mcp_proxy.web.serve_http",
    "smart_mcp_proxy.web.auth.sign_in",
    "smart_mcp_proxy.web.auth.signed_tokens",
    "smart_mcp_proxy.web.fast_path.wire_http",
    "smart_mcp_proxy.web.fast_path.wire_protocol",
}


@pytest.mark.long  # several processes that load everything
def test_what_serves_agents_over_http_is_not_loaded_for_a_client_on_stdio() -> None:
    """Nor is the REST of the command line's socket, before somebody asks."""
    _, _, _, modules = loaded("serve")
    assert NOT_ON_STDIO.isdisjoint(modules), NOT_ON_STDIO.intersection(modules)
    assert "sqlalchemy.dialects.postgresql" not in modules  # the catalog is a file
    code = (
        "import sys, rich.progress, smart_mcp_proxy.cli.commands.operate.serving_http; "
        f"print({NOT_ON_STDIO!r} - sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60, text=True)
    assert done.stdout == "set()\n"


BUILT_MODELS = """
import sys
from smart_mcp_proxy import cli
import smart_mcp_proxy.cli.commands.operate.serve as serve
async def built(*_, **__):
    import smart_mcp_proxy.cli.commands.operate.serving
    import mcp_types._types as types, mcp_types._v2025_11_25 as handshake, mcp_types._v2026_07_28 as modern
    assert not hasattr(types, "__unknown__") and handshake.Tool.model_fields and modern.Tool.model_fields
    models = [m for each in (types, handshake, modern) for m in vars(each).values() if hasattr(m, "model_fields")]
    built = sum(model.__pydantic_complete__ for model in models)
    tool = types.Tool.model_validate({"name": "x", "inputSchema": {"type": "object"}})
    answers = {"name": "x", "inputResponses": {"a": {"action": "decline"}}}
    assert types.CallToolRequestParams.model_validate(answers).input_responses["a"].action == "decline"
    print(len(models), built, tool.model_dump(exclude_none=True), types.Tool.__pydantic_complete__)
    return 0
serve.serve_settings = built
"""
SERVED = "sys.argv = ['mcpproxy', 'serve']; cli.main()"
EMBEDDED = "import asyncio; asyncio.run(built())"


@pytest.mark.long  # two processes that load everything
@pytest.mark.parametrize(("run", "least", "most"), [(SERVED, 0, 40), (EMBEDDED, 470, 500)])
def test_models_of_messages_are_built_when_they_are_used_where_a_gateway_starts(
    tmp_path: Path, run: str, least: int, most: int
) -> None:
    """In a program that embeds the gateway they are built at once, as pydantic does by itself."""
    environ = {**os.environ, "MCPPROXY_DATA_DIR": str(tmp_path / "data"), "MCPPROXY_CONFIG_JSON": '{"mcpServers": {}}'}
    done = subprocess.run(
        [sys.executable, "-c", BUILT_MODELS + run],
        input="",
        capture_output=True,
        check=True,
        text=True,
        cwd=tmp_path,
        env=environ,
    )
    models, built, rest = done.stdout.split(" ", 2)
    assert rest.strip() == "{'name': 'x', 'input_schema': {'type': 'object'}} True"
    assert int(models) > 400
    assert least <= int(built) <= most


@pytest.mark.long  # a process that loads everything
def test_the_rules_of_the_scanner_are_not_loaded_at_the_start() -> None:
    """They are when a definition is scanned for the first time."""
    _, _, _, modules = loaded("serve")
    assert "smart_mcp_proxy.policy.scanner.peers" not in modules
    assert "smart_mcp_proxy.policy.scanner.wording" not in modules
    code = "from smart_mcp_proxy.policy.scanner import scan; print(scan('s', {'name': 'x'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "()\n"


IN_BACKGROUND = """
import gc, json, os, sys
from smart_mcp_proxy import cli
import smart_mcp_proxy.cli.support.loop as loop
def run(work):
    work.close()
    kinds = {name: type(module).__name__ for name, module in sys.modules.items()}
    print(json.dumps([gc.isenabled(), os.environ.get("OPENBLAS_NUM_THREADS"), kinds]))
    return 0
loop.run = run
sys.argv = ["mcpproxy", "serve", "--background"]
cli.main()
"""
NOT_IN_BACKGROUND = {
    "click",
    "cryptography",
    "cyclopts",
    "fastmcp",
    "joserfc._keys",
    "mcp.client.client",
    "mcp.client.session",
    "mcp.server.auth",
    "mcp.server.lowlevel.server",
    "mcp.server.mcpserver",
    "mcp.server.streamable_http",
    "multiprocessing",
    "numpy.ma",
    "rich.console",
    "smart_mcp_proxy.web.rest",
    "sse_starlette.sse",
    "starlette",
    "uvicorn.main",
    "uvicorn.server",
    "watchfiles",
    "yaml.loader",
}
RUN_LATE = ("mcp_types._v2025_11_25", "mcp_types._v2026_07_28", "jsonschema_rs", "regress")
"""Whose code runs when they are first used."""


@pytest.mark.long  # two processes that load everything
def test_a_gateway_in_the_background_loads_what_a_first_search_needs(tmp_path: Path) -> None:
    """The client that starts it waits. Elsewhere those modules are loaded, so that their names are still right."""
    environ = {**os.environ, "MCPPROXY_DATA_DIR": str(tmp_path / "data")}
    done = subprocess.run([sys.executable, "-c", IN_BACKGROUND], capture_output=True, check=True, env=environ)
    is_collecting, threads, modules = json.loads(done.stdout)
    assert modules.keys().isdisjoint(NOT_IN_BACKGROUND), NOT_IN_BACKGROUND.intersection(modules)
    assert {modules[name] for name in RUN_LATE} == {"LateModule"}
    assert (is_collecting, threads) == (False, None)
    assert len(modules) < 1_060
    code = (
        "import sys, cyclopts, fastmcp.client, yaml, numpy.ma, smart_mcp_proxy.cli.commands.operate.serving_http; "
        f"print({NOT_IN_BACKGROUND!r} - sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"set()\n"


COMPILERS = """
import json, re, sys
compile, compilers = re.compile, []
def noted(*given):
    compilers.append(sys._getframe(1).f_globals["__name__"])
    return compile(*given)
re.compile = noted
from smart_mcp_proxy import cli
import smart_mcp_proxy.cli.support.loop as loop
def run(work):
    work.close()
    print(json.dumps(compilers))
    return 0
loop.run = run
sys.argv = ["mcpproxy", "serve", "--background"]
cli.main()
"""


@pytest.mark.long  # a process that loads everything
def test_few_patterns_are_compiled_while_the_gateway_is_loaded(tmp_path: Path) -> None:
    """The others are texts, which are compiled when they are first used."""
    environ = {**os.environ, "MCPPROXY_DATA_DIR": str(tmp_path / "data")}
    done = subprocess.run([sys.executable, "-c", COMPILERS], capture_output=True, check=True, env=environ)
    ours = [module for module in json.loads(done.stdout) if module.startswith("smart_mcp_proxy.")]
    assert len(ours) < 90, Counter(ours)


@pytest.mark.long  # a process that loads everything
def test_what_serves_the_command_line_does_not_load_fastmcp() -> None:
    """A gateway in the background would keep it from the first `mcpproxy status` on."""
    names = "smart_mcp_proxy.web.rest", "smart_mcp_proxy.web.rest.authorization", "smart_mcp_proxy.web.server.protocol"
    code = f"import sys, {', '.join(names)}; print('fastmcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"False\n"
