"""Causes of a program's end that have a known remedy."""

import json
import shlex
import shutil
from typing import Any

import pytest
from msgspec.structs import replace

from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import secrets_hidden
from smart_mcp_proxy.upstream.protocol.server_log import ServerLog, find_reason
from smart_mcp_proxy.upstream.stdio.remedies import extend_hint, find_remedy


def describe(written: str, *args: str, command: str = "npx", **changes: Any) -> str:
    """The remedy for a program that wrote this before its end."""
    lines = written.splitlines()
    return find_remedy(
        ServerConfig("my server", "stdio", command=command, args=args, **changes), find_reason(lines), lines
    )


def read_patch(hint: str) -> dict[str, Any]:
    """Fields that the command at the end of a hint sets."""
    words = shlex.split(hint.rpartition(": ")[2] if ": mcpproxy" not in hint else hint.partition(": mcpproxy")[2])
    assert words[:3] == ["server", "patch", "my server"]
    fields = dict(word.split("=", 1) for word in words[3:])
    return {name: json.loads(value) if value[0] in "[nt" else value for name, value in fields.items()}


NODE_20 = """\
file:///app/node_modules/@acme/mcp/dist/common/transport-stdio.js:1
import { enableCompileCache } from "node:module";
         ^^^^^^^^^^^^^^^^^^
SyntaxError: The requested module 'node:module' does not provide an export named 'enableCompileCache'
    at ModuleJob._instantiate (node:internal/modules/esm/module_job:213:21)

Node.js v20.20.2"""
NODE_20_SQLITE = """\
Failed to connect to SQLite database: Error [ERR_UNKNOWN_BUILTIN_MODULE]: No such built-in module: node:sqlite
    at ModuleLoader.builtinStrategy (node:internal/modules/esm/translators:391:11)
    at async ModuleJob._link (node:internal/modules/esm/module_job:148:19) {
  code: 'ERR_UNKNOWN_BUILTIN_MODULE'
}
Fatal error: Error [ERR_UNKNOWN_BUILTIN_MODULE]: No such built-in module: node:sqlite
    at ModuleLoader.builtinStrategy (node:internal/modules/esm/translators:391:11)
    at async ModuleJob._link (node:internal/modules/esm/module_job:148:19) {
  code: 'ERR_UNKNOWN_BUILTIN_MODULE'
}"""
NODE_20_UNDICI = """\
/app/node_modules/@acme/mcp/index.js:81123
      webidl.util.markAsUncloneable(this);
                  ^

TypeError: webidl.util.markAsUncloneable is not a function
    at new CacheStorage (/app/node_modules/@acme/mcp/index.js:81123:19)
    at node:internal/main/run_main_module:28:49

Node.js v20.20.2"""
NODE_20_ASKED = """\
Error: Acme MCP server requires Node.js 22 or later (you have v20.20.2).
Please update Node.js: https://nodejs.org"""
PYTHON_311 = """\
error: No solution found when resolving tool dependencies
  cause: Because the current Python version (3.11.7) does not satisfy Python>=3.12.0,<3.13 and all versions of acme-mcp
         depend on Python>=3.12,<3.13, we can conclude that all versions of acme-mcp cannot be used.
         And because you require acme-mcp, we can conclude that your requirements are unsatisfiable."""
PYTHON_312_NAME = """\
Traceback (most recent call last):
  File "/app/acme/server.py", line 3, in <module>
    from typing import override
ImportError: cannot import name 'override' from 'typing' (/usr/lib/python3.11/typing.py)"""


def test_a_newer_node_is_brought_by_npx_for_that_server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node.js runs npx there, which starts the package with that Node.js."""
    monkeypatch.setattr(shutil, "which", {"npx": "/usr/bin/npx"}.get)
    changed = {"args": ["-y", "node@22", "/usr/bin/npx", "-y", "@acme/mcp"]}
    assert read_patch(describe(NODE_20, "-y", "@acme/mcp")) == changed
    engine = "npm warn EBADENGINE   required: { node: '>=22.12.0' },\nError: no"
    assert read_patch(describe(engine, "-y", "@acme/mcp")) == changed
    assert describe(NODE_20, *changed["args"]) == ""
    for written in (NODE_20_SQLITE, NODE_20_UNDICI, NODE_20_ASKED):
        assert read_patch(describe(written, "-y", "@acme/mcp")) == changed
    assert describe(NODE_20, "index.js", command="node").startswith("It needs Node.js 22 or later: install it")


@pytest.mark.parametrize(("written", "version"), [(PYTHON_311, "3.12"), (PYTHON_312_NAME, "3.12")])
def test_another_python_is_brought_by_uv(written: str, version: str) -> None:
    """The version that the package asks for, or the first that has what it imports."""
    assert read_patch(describe(written, "acme-mcp", command="uvx")) == {"args": ["--python", version, "acme-mcp"]}
    patched = read_patch(describe(written, "run", "a.py", command="uv"))
    assert patched == {"args": ["run", "--python", version, "a.py"]}
    assert describe(written, "--python", "3.11", "acme-mcp", command="uvx") == ""
    assert "name its interpreter" in describe(written, "a.py", command="python3")


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("Error: ACME_API_KEY environment variable is required", ["ACME_API_KEY"]),
        (
            "Error: Missing required environment variables:\n  - ACME_URL\n  - ACME_TOKEN\n    at x",
            ["ACME_URL", "ACME_TOKEN"],
        ),
        ("Traceback (most recent call last):\n  File \"a\", line 1\nKeyError: 'ACME_KEY'", ["ACME_KEY"]),
        ("Please set ACME_API_KEY or ACME_TOKEN", ["ACME_API_KEY"]),
    ],
)
def test_a_missing_variable_is_passed_on_by_its_name(written: str, names: list[str]) -> None:
    """Of several that will do, one."""
    hint = describe(written, "-y", "@acme/mcp")
    assert read_patch(hint) == {f"env.{name}": f"${{{name}}}" for name in names}
    assert describe(written, "-y", "@acme/mcp", inherit=("ACME_URL", "ACME_TOKEN", "ACME_KEY", "ACME_API_KEY")) == ""


def test_codes_of_errors_are_no_variables() -> None:
    """They are written alike."""
    for said in (
        "Error [ERR_MODULE_NOT_FOUND]: missing",
        "UNABLE_TO_GET_ISSUER_CERT is required",
        "x/A_B.py is missing",
    ):
        assert describe(said, "x") == ""


def test_a_missing_option_is_named() -> None:
    """Unless it is there; the name of its value is no variable."""
    clap = """\
error: the following required arguments were not provided:
  --allowed-dir <ALLOWED_DIRS>

Usage: acme-mcp --allowed-dir <ALLOWED_DIRS>

For more information, try '--help'."""
    assert "the option --allowed-dir" in describe(clap, "-y", "acme-mcp")
    said = "usage: acme-mcp [-h] --token TOKEN\nacme-mcp: error: the following arguments are required: --token"
    assert "the option --token" in describe(said, "acme-mcp", command="uvx")
    assert describe(said, "acme-mcp", "--token", "x", command="uvx") == ""
    assert "the option --read-write" in describe(
        "Error: In-memory databases require the --read-write flag.", "acme-mcp"
    )


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "apt install libgl1"),
        ("Error: libsecret-1.so.0: cannot open shared object file: No such file", "apt install libsecret-1-0"),
        ('OSError: no library called "cairo-2" was found', "apt install libcairo2"),
        ("ImportError: failed to find libmagic.  Check your installation", "apt install libmagic1"),
        (
            "acme: error while loading shared libraries: libacme.so.3: cannot open shared object file",
            "libacme.so.3: in",
        ),
        ("acme: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by acme)", "GLIBC_2.38"),
        (
            "npm error command sh -c prebuild-install || npm run build\nnpm error > keytar@7.9.0 build\n"
            "npm error Package libsecret-1 was not found in the pkg-config search path.\n"
            "npm error Package 'libsecret-1', required by 'virtual:world', not found\n"
            "npm error gyp ERR! stack Error: `gyp` failed with exit code: 1\nnpm error gyp ERR! not ok",
            "apt install libsecret-1-dev",
        ),
        ("browserType.launch: Executable doesn't exist at /root/.cache/ms-playwright/chrome", "playwright install"),
    ],
)
def test_a_missing_library_is_named_with_its_package(written: str, words: str) -> None:
    """Where the package is known."""
    assert words in describe(written, "x")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (
            "npm error code EBADPLATFORM\n"
            'npm error notsup Unsupported platform for acme@2.3.3: wanted {"os":"darwin"} (current: {"os":"linux"})\n'
            "npm error notsup Valid os:  darwin\nnpm error notsup Actual os: linux",
            "It runs on macOS only",
        ),
        ("ModuleNotFoundError: No module named 'winreg'", "It runs on Windows only"),
        ("acme only works on macOS", "It runs on macOS only"),
        ("/bin/acme: cannot execute binary file: Exec format error", "another kind of processor"),
    ],
)
def test_a_program_for_another_system_is_left_out(written: str, words: str) -> None:
    """With the command for that."""
    hint = describe(written, "-y", "acme")
    assert words in hint
    assert hint.endswith("mcpproxy server disable 'my server'")


def test_a_package_that_has_moved_is_started_under_its_new_name_or_address() -> None:
    """As its makers write it where it is installed."""
    renamed = "npm warn deprecated @acme/mcp@1.2.0: This package has been renamed to @acme/mcp-server\nError: gone"
    assert read_patch(describe(renamed, "-y", "@acme/mcp@latest", "--x")) == {"args": ["-y", "@acme/mcp-server", "--x"]}
    moved = (
        "npm warn deprecated acme-mcp@1.2.0: use the remote server at https://mcp.acme.example/mcp instead\nError: x"
    )
    expected = {"url": "https://mcp.acme.example/mcp", "command": None, "args": None}
    assert read_patch(describe(moved, "-y", "acme-mcp")) == expected
    assert describe(renamed, "-y", "@other/mcp") == ""


def test_scripts_that_fail_at_an_installation_are_left_out() -> None:
    """By the variable that npm reads, unless a library would do; a program that fails itself is something else."""
    refused = """\
npm error code 1
npm error path /home/u/.npm/_npx/01f/node_modules/acme-mcp
npm error command failed
npm error command sh -c npx only-allow pnpm
npm error npm error npx canceled due to missing packages and no YES option: ["only-allow@1.2.2"]
npm error A complete log of this run can be found in: /home/u/.npm/_logs/2026-11-29T09_36_16_820Z-debug-0.log"""
    assert read_patch(describe(refused, "-y", "acme-mcp")) == {"env.npm_config_ignore_scripts": True}
    assert describe(refused, "-y", "acme-mcp", env={"npm_config_ignore_scripts": "true"}) == ""
    assert describe(refused.replace("/node_modules/", "/"), "-y", "acme-mcp") == ""


def test_npx_that_ends_in_silence_is_made_to_speak() -> None:
    """As it does where such a script fails, whichever it is; a program that says why has said it."""
    failure = "Server 'my server' ended with exit code 1."
    config = ServerConfig("my server", "stdio", command="npx", args=("-y", "acme-mcp"))
    written = ServerLog()
    written.add("npm notice New minor version of npm available! 11.19.1 -> 11.21.2", is_said=True)
    assert read_patch(extend_hint("", config, {}, written, failure)) == {"env.npm_config_foreground_scripts": True}
    assert extend_hint("", config, {}, written, "Server 'my server' has not answered within 30 s.") == ""
    assert extend_hint("", replace(config, command="acme-mcp"), {}, written, failure) == ""
    written.add("Error: no licence", is_said=True)
    assert extend_hint("", config, {}, written, f"{failure} It wrote: Error: no licence") == ""


def test_a_name_that_is_not_published_is_to_be_corrected() -> None:
    """Whichever program looked for it."""
    npm = (
        "npm error code E404\nnpm error 404 Not Found - GET https://registry.acme.example/acme-mcp\nnpm error 404\n"
        "npm error 404  The requested resource 'acme-mcp@*' could not be found or you may not."
    )
    uv = "error: No solution found\n  cause: Because acme-mcp was not found in the package registry"
    for written in (npm, uv, "npm error could not determine executable to run"):
        assert describe(written, "-y", "acme-mcp").startswith("No program of this name is published")


def test_other_ends_have_no_remedy() -> None:
    """Nor has a server at an address."""
    assert describe("Error: no licence for this machine", "-y", "acme-mcp") == ""
    assert describe("", "-y", "acme-mcp") == ""
    assert find_remedy(ServerConfig("s", "http", url="http://x.example"), NODE_20, [NODE_20]) == ""


def test_a_remedy_never_writes_over_a_secret() -> None:
    """What is shown in its place would end in the entry."""
    with secrets_hidden(["hunter22hunter22"]):
        hint = describe(PYTHON_311, "acme-mcp", "--token", "hunter22hunter22", command="uvx")
    assert "patch" not in hint and hint.endswith("mcpproxy server show 'my server'")
