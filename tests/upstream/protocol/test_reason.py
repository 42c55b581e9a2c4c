"""Choice of the words that say why a program ended, for every runtime that servers are written in."""

import pytest

from smart_mcp_proxy.upstream.protocol.server_log import ServerLog, find_reason

NODE = {
    "an error that nothing caught": (
        """\
/app/dist/cli.js:34
        throw new Error('Acme API key not provided. Set ACME_SECRET_KEY.');
        ^

Error: Acme API key not provided. Set ACME_SECRET_KEY.
    at main (/app/dist/cli.js:34:15)
    at node:internal/main/run_main_module:33:47

Node.js v24.21.0""",
        "Error: Acme API key not provided. Set ACME_SECRET_KEY.",
    ),
    "members of the error below it, and npm's notices": (
        """\
node:internal/modules/cjs/loader:1228
  throw err;
  ^

Error: Cannot find module '/app/dist/index.js'
Require stack:
- /app/bin/cli.js
    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)
    at node:internal/main/run_main_module:33:47 {
  code: 'MODULE_NOT_FOUND',
  requireStack: [ '/app/bin/cli.js' ]
}

Node.js v24.21.0
npm notice
npm notice New minor version of npm available! 11.19.1 -> 11.21.2
npm notice To update run: npm install -g npm@11.21.2""",
        "Error: Cannot find module '/app/dist/index.js'",
    ),
    "the cause of another error": (
        """\
TypeError: fetch failed
    at node:internal/deps/undici/undici:13510:13
    at async main (file:///app/index.mjs:3:1) {
  [cause]: Error: getaddrinfo ENOTFOUND api.acme.example
      at GetAddrInfoReqWrap.onlookupall [as oncomplete] (node:dns:122:26) {
    errno: -3008,
    code: 'ENOTFOUND',
    syscall: 'getaddrinfo',
    hostname: 'api.acme.example'
  }
}

Node.js v22.1.0""",
        "Error: getaddrinfo ENOTFOUND api.acme.example",
    ),
    "a rejected promise": (
        """\
node:internal/process/promises:394
      triggerUncaughtException(err, true /* fromPromise */);
      ^

[UnhandledPromiseRejection: This error originated either by throwing inside of an async function without a catch \
block, or by rejecting a promise which was not handled with .catch(). The promise rejected with the reason \
"no licence".] {
  code: 'ERR_UNHANDLED_REJECTION'
}

Node.js v22.1.0""",
        "no licence",
    ),
    "a thrown string": (
        """\
/app/index.js:1
throw "the licence has ended"
^
the licence has ended
(Use `node --trace-uncaught ...` to show where the exception was thrown)

Node.js v22.1.0""",
        "the licence has ended",
    ),
    "variables named below": (
        """\
Error: Missing required environment variables:
  - ACME_URL
  - ACME_TOKEN
    at file:///app/index.js:3:7

Node.js v22.1.0""",
        "Error: Missing required environment variables: - ACME_URL - ACME_TOKEN",
    ),
    "a schema that the environment fails": (
        """\
Configuration error: [
  {
    "code": "invalid_type",
    "path": [
      "ACME_KEY"
    ],
    "message": "Required"
  }
]""",
        'Configuration error: [ { "code": "invalid_type", "path": [ "ACME_KEY" ], "message": "Required" }',
    ),
    "warnings, colours and a hint after it": (
        """\
(node:71) [DEP0040] DeprecationWarning: The `punycode` module is deprecated.
(Use `node --trace-deprecation ...` to show where the warning was created)
\x1b[31m✖ ACME_TOKEN is required\x1b[39m
(node:71) ExperimentalWarning: SQLite is an experimental feature and might change at any time
For more information see https://acme.example/docs
Exiting...""",
        "✖ ACME_TOKEN is required",
    ),
    "usage below it": (
        """\
error: required option '--token <token>' not specified
Usage: acme-mcp [options]

Options:
  --token <token>  API token (required)
  -h, --help       display help for command
Examples:
  acme-mcp --token abc""",
        "error: required option '--token <token>' not specified",
    ),
    "an example of an entry below it": (
        """\
ACME_API_KEY environment variable is required
Add it to your configuration:
{
  "mcpServers": {
    "acme": {
      "env": { "ACME_API_KEY": "your key" }
    }
  }
}""",
        "ACME_API_KEY environment variable is required",
    ),
    "log lines in JSON": (
        """\
{"level":"info","msg":"starting","pid":3}
{"level":"fatal","msg":"ACME_TOKEN is not set","pid":3}
{"level":"info","msg":"bye","pid":3}""",
        "FATAL ACME_TOKEN is not set",
    ),
    "an error in one, as pino writes it": (
        """\
{"level":30,"msg":"starting","pid":3}
{"level":60,"pid":3,"err":{"type":"Error","message":"EROFS: read-only file system","stack":"%s"},"msg":"FATAL: Hit."}
{"level":30,"msg":"Logger shutting down.","pid":3}"""
        % ("    at open (/app/main.js:77)\\n" * 40),
        "FATAL: Hit: EROFS: read-only file system",
    ),
    "a program that a wrapper has started, whose log lines hold stacks": (
        """\
{"level":"fatal","message":"Authentication failed - check your tokens","error":"no such host","stacktrace":"%s"}
node:child_process:930
    throw err;
    ^

Error: Command failed: /app/node_modules/acme-linux-amd64/bin/acme-linux-amd64 --transport stdio
    at genericNodeError (node:internal/errors:984:15)
    at node:internal/modules/run_main:164:12 {
  status: 1,
  signal: null,
  output: [ null, null, null ]
}

Node.js v20.20.2"""
        % ("main.main\\n\\t/app/main.go:77\\n" * 40),
        "FATAL Authentication failed - check your tokens: no such host",
    ),
}

PYTHON = {
    "a traceback": (
        """\
Traceback (most recent call last):
  File "/app/server.py", line 3, in <module>
    raise SettingsMissing("no ACME_KEY")
    ~~~~~^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
acme.SettingsMissing: no ACME_KEY""",
        "acme.SettingsMissing: no ACME_KEY",
    ),
    "an exception during the handling of another": (
        """\
Traceback (most recent call last):
  File "/app/server.py", line 3, in <module>
    key = os.environ["ACME_KEY"]
  File "<frozen os>", line 714, in __getitem__
KeyError: 'ACME_KEY'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/server.py", line 5, in <module>
    raise RuntimeError("cannot start")
RuntimeError: cannot start""",
        "RuntimeError: cannot start (after KeyError: 'ACME_KEY')",
    ),
    "a group of exceptions": (
        """\
  + Exception Group Traceback (most recent call last):
  |   File "/app/server.py", line 9, in main
  |     async with anyio.create_task_group() as group:
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/app/server.py", line 4, in connect
    |     raise ValueError("ACME_URL must be set")
    | ValueError: ACME_URL must be set
    +------------------------------------""",
        "ValueError: ACME_URL must be set",
    ),
    "fields that settings lack, without their values": (
        """\
Traceback (most recent call last):
  File "/app/server.py", line 9, in <module>
    settings = Settings()
pydantic_core._pydantic_core.ValidationError: 2 validation errors for Settings
acme_url
  Field required [type=missing, input_value={'a': 'b'}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.12/v/missing
acme_token
  Field required [type=missing, input_value={'a': 'b'}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.12/v/missing""",
        "pydantic_core._pydantic_core.ValidationError: 2 validation errors for Settings acme_url Field required",
    ),
    "complaints at the end of the event loop": (
        """\
Traceback (most recent call last):
  File "/app/server.py", line 9, in <module>
    main()
ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 5432)
Exception ignored in: <function _ProactorBasePipeTransport.__del__ at 0x7f>
Traceback (most recent call last):
  File "/usr/lib/python3.12/asyncio/base_events.py", line 545, in _check_closed
    raise RuntimeError('Event loop is closed')
RuntimeError: Event loop is closed""",
        "ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 5432)",
    ),
    "a box of typer's": (
        """\
Usage: acme-mcp [OPTIONS]
Try 'acme-mcp --help' for help.
╭─ Error ──────────────────────────────────────────────────────────╮
│ Missing option '--token'.                                        │
╰──────────────────────────────────────────────────────────────────╯""",
        "Missing option '--token'.",
    ),
    "argparse": (
        "usage: acme-mcp [-h] --token TOKEN\nacme-mcp: error: the following arguments are required: --token",
        "acme-mcp: error: the following arguments are required: --token",
    ),
    "a warning before it": (
        """\
/app/acme/api.py:3: FutureWarning: Python 3.10 leaves support soon.
  warnings.warn(message, FutureWarning)
2026-11-28 08:00:00,123 - acme - ERROR - no connection to the database
2026-11-28 08:00:00,200 - acme - INFO - done""",
        "2026-11-28 08:00:00,123 - acme - ERROR - no connection to the database",
    ),
    "uv, over several lines": (
        """\
  \u00d7 No solution found when resolving tool dependencies:
  ╰─▶ Because acme-mcp was not found in the package registry and you require
      acme-mcp, we can conclude that your requirements are unsatisfiable.""",
        "No solution found when resolving tool dependencies: Because acme-mcp was not found in the package registry "
        "and you require acme-mcp, we can conclude that your requirements are unsatisfiable.",
    ),
    "uv, as of late": (
        "error: No solution found when resolving tool dependencies\n"
        "  cause: Because Python is 3.11 and acme needs 3.12,\n"
        "         we can conclude that acme cannot be used.\n",
        "error: No solution found when resolving tool dependencies cause: Because Python is 3.11 and acme needs 3.12, "
        "we can conclude that acme cannot be used.",
    ),
    "uv, over many lines": (
        "  \u00d7 No solution found when resolving tool dependencies:\n  ╰─▶ Because there is no version of acme,\n"
        + "      we know it cannot be used.\n" * 40,
        "No solution found when resolving tool dependencies: Because there is no version of acme, "
        + "we know it cannot be used. " * 5
        + "we know it c ...",
    ),
    "a package that cannot be built": (
        """\
  \u00d7 Failed to build `acme==1.0`
  ├─▶ The build backend returned an error
  ╰─▶ Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)

      hint: This usually indicates a problem with the package or the build environment.""",
        "Failed to build `acme==1.0` The build backend returned an error Call to "
        "`setuptools.build_meta.build_wheel` failed (exit status: 1)",
    ),
}

OTHERS = {
    "Go": (
        """\
2026/11/28 08:00:00 starting
panic: ACME_TOKEN not set

goroutine 1 [running]:
main.main()
\t/app/main.go:10 +0x1d
exit status 2""",
        "ACME_TOKEN not set",
    ),
    "Go, memory": (
        """\
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x48f4a3]

goroutine 1 [running]:
main.run(...)
\t/app/main.go:7
main.main()
\t/app/main.go:3 +0x13""",
        "runtime error: invalid memory address or nil pointer dereference",
    ),
    "Rust": (
        """\
thread 'main' panicked at src/main.rs:10:45:
ACME_TOKEN must be set: NotPresent
stack backtrace:
   0: rust_begin_unwind
             at /rustc/9fc6b431/library/std/src/panicking.rs:665:5
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace""",
        "ACME_TOKEN must be set: NotPresent",
    ),
    "Rust, as it was": (
        "thread 'main' panicked at 'no configuration', src/main.rs:3:5\n"
        "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
        "no configuration",
    ),
    "Rust's chain of causes": (
        "Error: failed to load the configuration\n\nCaused by:\n    0: /etc/acme.toml\n"
        "    1: No such file or directory",
        "Error: failed to load the configuration Caused by: 0: /etc/acme.toml 1: No such file or directory",
    ),
    "Java": (
        """\
Exception in thread "main" java.lang.IllegalStateException: cannot start
\tat com.acme.Main.main(Main.java:9)
Caused by: java.lang.IllegalArgumentException: acme.token is missing
\tat com.acme.Config.read(Config.java:3)
\t... 1 more""",
        "java.lang.IllegalArgumentException: acme.token is missing",
    ),
    ".NET": (
        """\
Unhandled exception. System.InvalidOperationException: ACME_TOKEN is missing.
   at Program.<Main>$(String[] args) in /src/Program.cs:line 5""",
        "System.InvalidOperationException: ACME_TOKEN is missing.",
    ),
    "npm": (
        """\
npm error code E404
npm error 404 Not Found - GET https://registry.acme.example/@acme%2fmcp - Not found
npm error 404
npm error 404  The requested resource '@acme/mcp@*' could not be found or you do not have permission to access it.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git folder.
npm error A complete log of this run can be found in: /root/.npm/_logs/2026-11-28T08_00_00_000Z-debug-0.log""",
        "npm error 404  The requested resource '@acme/mcp@*' could not be found or you do not have permission to "
        "access it.",
    ),
    "npm without a network": (
        """\
npm error code ENOTFOUND
npm error syscall getaddrinfo
npm error errno ENOTFOUND
npm error network request to https://registry.acme.example/x failed, reason: getaddrinfo ENOTFOUND registry.acme.example
npm error network This is a problem related to network connectivity.
npm error network In most cases you are behind a proxy or have bad network settings.
npm error A complete log of this run can be found in: /root/.npm/_logs/x.log""",
        "npm error network request to https://registry.acme.example/x failed, reason: getaddrinfo ENOTFOUND "
        "registry.acme.example",
    ),
    "a shell": (
        "npm warn exec The following package was not found\nsh: 1: acme-mcp: not found",
        "sh: 1: acme-mcp: not found",
    ),
    "plain words": ("starting\nno licence found for this machine\nbye", "no licence found for this machine"),
}


WRITTEN = NODE | PYTHON | OTHERS


@pytest.mark.parametrize(("written", "reason"), WRITTEN.values(), ids=WRITTEN)
def test_the_reason_is_quoted_and_not_what_stands_around_it(written: str, reason: str) -> None:
    """Whichever runtime wrote it, and whatever follows."""
    found = find_reason(written.splitlines())
    assert found == reason or (reason.endswith("Field required") and found.startswith(reason))
    assert "input_value" not in found


@pytest.mark.parametrize(
    "written",
    [
        "",
        "Node.js v24.21.0",
        "(node:7) ExperimentalWarning: SQLite is an experimental feature",
        "npm warn deprecated glob@7.2.3: no longer supported\nnpm notice\n",
        "    at main (/app/dist/cli.js:34:15)\n}\n",
    ],
)
def test_warnings_and_dumps_alone_are_no_reason(written: str) -> None:
    """Nothing is said rather than something wrong."""
    assert find_reason(written.splitlines()) == ""


def test_an_error_of_long_ago_is_no_reason() -> None:
    """What the program wrote at its end counts."""
    work = ["ERROR: no such page", *(f"answered request {number}" for number in range(60)), "the disk is full"]
    assert find_reason(work) == "the disk is full"


def test_a_quote_is_one_short_line() -> None:
    """However much was written."""
    assert len(find_reason(["Error: " + "x" * 9_000])) == 240
    assert find_reason(["Error: a:", *["  more,"] * 400]).count("more") < 12


def test_what_is_written_on_a_later_connection_counts_alone() -> None:
    """The end of one connection does not explain that of the next."""
    log = ServerLog()
    log.add("Error: no licence", is_said=True)
    assert log.reason() == "Error: no licence"
    log.begin()
    assert log.reason() == log.last_said == ""
    log.add("a notice of the protocol", is_said=False)
    assert log.reason() == log.last_said == ""
    assert log.last(2) == ["Error: no licence", "a notice of the protocol"]
