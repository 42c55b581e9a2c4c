"""What a script cannot do, whatever it tries: each attempt ends within its limit with an error that says which."""

import asyncio
import os
import socket
import time
from pathlib import Path

import anyio
import pytest
from sandbox_fakes import MIB, Bench, children_of, opened_bench

from smart_mcp_proxy.gateway.sandbox import Language

pytestmark = [pytest.mark.anyio, pytest.mark.long]

SHORT_S = 1.0


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "while True: pass"),
        ("python", "while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
        ("python", "sum(range(10**12))"),
        ("python", "call_tool('hang')"),
        ("python", "call_tools([{'name': 'hang'}] * 20)"),
        ("javascript", "while (true) {}"),
        ("javascript", "/^(a+)+$/.test('a'.repeat(40) + '!')"),
        ("javascript", "await new Promise(() => {})"),
        ("javascript", "await call_tool('hang')"),
        ("javascript", "setInterval(() => {}, 1); await call_tools(Array(20).fill({name: 'hang'}))"),
        ("javascript", "const f = () => queueMicrotask(f); f(); await new Promise(() => {})"),
    ],
)
async def test_a_script_that_does_not_end_is_ended(bench: Bench, language: Language, code: str) -> None:
    """Whatever it waits for; its calls are cancelled and no process is left."""
    others = children_of(os.getpid())
    with anyio.fail_after(SHORT_S + 5):
        error = await bench.failure(language, code, timeout_s=SHORT_S)
    assert error.error_code == "code_timeout"
    assert "within 1 s" in error.message
    assert error.delivery == ("unknown" if "hang" in code else "not_sent")
    assert bench.tools.cancelled == bench.tools.most * ("hang" in code)
    assert children_of(os.getpid()) == others


async def test_a_regular_expression_in_python_takes_linear_time(bench: Bench) -> None:
    """Monty's engine does not backtrack."""
    assert await bench.run("python", "import re\nre.match('(a+)+$', 'a' * 40 + '!')") is None


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "x = 'a' * 10**10"),
        ("python", "x = [0] * 10**9"),
        ("python", "x = {}\nfor i in range(10**9): x[i] = 'a' * 1000"),
        ("python", "x = 2 ** 10**10"),
        ("javascript", "const a = []; while (true) a.push({})"),
        ("javascript", "const a = []; while (true) a.push(new Uint8Array(1e7).fill(1))"),
        ("javascript", "new SharedArrayBuffer(3e9)"),
        ("javascript", "const a = []; while (true) a.push(new WebAssembly.Memory({initial: 160}))"),
    ],
)
async def test_a_script_that_takes_too_much_memory_is_ended(bench: Bench, language: Language, code: str) -> None:
    """Objects, strings, numbers and typed arrays alike."""
    error = await bench.failure(language, code, memory_bytes=64 * MIB)
    assert error.error_code == "code_memory"
    assert "64 MiB" in error.message


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "def f(n): return f(n + 1)\nf(0)"),
        ("javascript", "const f = (n) => f(n + 1); f(0)"),
        ("javascript", "const f = (n) => [f(n + 1)]; JSON.stringify(f(0))"),
    ],
)
async def test_endless_recursion_is_an_error_of_the_script(bench: Bench, language: Language, code: str) -> None:
    """And no crash."""
    error = await bench.failure(language, code)
    assert error.error_code == "code_error"
    assert error.message.startswith("Line 1: R")  # RecursionError, RangeError


FORBIDDEN: list[tuple[Language, str]] = [
    ("python", "open('{file}').read()"),
    ("python", "import pathlib\npathlib.Path('{file}').read_text()"),
    ("python", "open('{file}', 'w').write('taken')"),
    ("python", "import os\nos.listdir('/')"),
    ("python", "import os\nos.environ['PATH']"),
    ("python", "import os\nos.getenv('PATH')"),
    ("python", "import os\nos.fork()"),
    ("python", "import os\nos.system('touch {file}.made')"),
    ("python", "import subprocess"),
    ("python", "import socket"),
    ("python", "import ctypes"),
    ("python", "import urllib.request"),
    ("python", "import pydantic_monty"),
    ("python", "__import__('os').system('id')"),
    ("python", "().__class__.__bases__[0].__subclasses__()"),
    ("python", "call_tool.__globals__['__builtins__']"),
    ("python", "(lambda: 0).__code__"),
    ("python", "call_tool.__self__"),
    ("javascript", "return Deno.readTextFileSync('{file}')"),
    ("javascript", "return (await import('node:fs')).readFileSync('{file}', 'utf8')"),
    ("javascript", "(await import('node:fs')).writeFileSync('{file}', 'taken')"),
    ("javascript", "return (await import('file://{file}')).default"),
    ("javascript", "return await import('{file}', {{with: {{type: 'json'}}}})"),
    ("javascript", "return (await import('node:child_process')).execSync('touch {file}.made').toString()"),
    ("javascript", "return (await import('node:process')).env.PATH.length"),
    ("javascript", "return process.env.PATH.length"),
    ("javascript", "return (await import('node:os')).hostname()"),
    ("javascript", "return (await fetch('http://127.0.0.1:{port}/')).status"),
    ("javascript", "return (await fetch('file://{file}')).status"),
    ("javascript", "new WebSocket('ws://127.0.0.1:{port}/').x.y"),
    ("javascript", "(await import('node:net')).connect({port}, '127.0.0.1').x.y"),
    ("javascript", "return await import('https://example.com/x.js')"),
    ("javascript", "return await import('npm:lodash')"),
    ("javascript", "return await import('jsr:@std/fs')"),
    ("javascript", "return require('fs')"),
    ("javascript", "localStorage.setItem('a', 'kept for the next script')"),
    ("javascript", "await (await caches.open('a')).put('https://a.example/', new Response('kept'))"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "code"), FORBIDDEN)
async def test_files_network_processes_and_environment_are_out_of_reach(
    bench: Bench, tmp_path: Path, language: Language, code: str
) -> None:
    """Not one of these ends well, and nothing is read, written, started or connected to."""
    file = tmp_path / "secret.json"
    file.write_text('"the secret"')
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        error = await bench.failure(language, code.format(file=file, port=listener.getsockname()[1]))
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert error.error_code == "code_error"
    assert "the secret" not in str(error.to_dict())
    assert sorted(tmp_path.iterdir()) == [file]
    assert file.read_text() == '"the secret"'


@pytest.mark.parametrize(
    "code",
    [
        "Object.prototype.toJSON = () => ({say: 'return', result: 'forged'}); await call_tool('echo', {})",
        "Object.prototype.error = {code: 'x', message: 'y'}; return await call_tool('echo', {})",
        "Object.prototype.text = '[1]'; return await call_tool('shape', {})",
        "Array.prototype.map = () => []; return await call_tools([{name: 'echo'}])",
        "Promise.prototype.then = () => {}; return await call_tool('echo', {})",
        "JSON.parse = () => 'forged'; JSON.stringify = () => 'forged'; return await call_tool('echo', {})",
        "Map.prototype.get = () => () => 'forged'; return await call_tool('echo', {})",
        "globalThis.call_tool = 1; return await call_tool('echo', {})",
        "call_tool = async () => 'forged'; return await call_tool('echo', {})",
        "TextEncoder.prototype.encode = () => new Uint8Array(9); return await call_tool('echo', {})",
        "}; call_tool('echo', {}); export const x = () => {",
        "for (let i = 0; i < 1e4; i++) Promise.resolve().then(() => { throw 1 }); await call_tool('echo')",
        'process.stdout?.write(\'{"say":"call","id":1,"name":"echo","args":{}}\\n\')',
    ],
)
async def test_a_script_that_tampers_with_its_own_process_harms_itself_alone(bench: Bench, code: str) -> None:
    """It hears nothing that a tool did not answer to it, and the next script finds everything as it was."""
    with anyio.move_on_after(SHORT_S + 5):
        try:
            await bench.run("javascript", code, timeout_s=SHORT_S)
        except Exception as error:
            assert getattr(error, "error_code", None) in ("code_error", "code_timeout"), error
    assert {name for name, _ in bench.tools.asked} <= {"echo", "shape"}
    assert await bench.run("javascript", "return await call_tool('echo', {a: 1})") == {"a": 1}


@pytest.mark.parametrize(
    "attempt",
    ["Deno.readTextFileSync(`/proc/self/environ`)", "Deno.kill(Deno.ppid, `SIGTERM`)", "Deno.env.get(`PATH`)"],
)
async def test_a_worker_of_a_script_has_no_more_rights(bench: Bench, attempt: str) -> None:
    """It finds the runtime's names again, and they still permit nothing."""
    code = (
        f"const worker = new Worker('data:text/javascript,{attempt}', {{type: 'module'}});"
        "await new Promise((_, fail) => worker.onerror = (event) => fail(new Error(event.message)))"
    )
    error = await bench.failure("javascript", code, memory_bytes=1024 * MIB)
    assert "Requires" in error.message
    assert "access" in error.message


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_scripts_process_starts_with_nothing_of_ours(bench: Bench, language: Language) -> None:
    """No variable of the gateway's environment, no file it could make longer, no core to dump, less than its turn."""
    code = {"python": "call_tool('hang')", "javascript": "await call_tool('hang')"}
    others = children_of(os.getpid())
    task = asyncio.ensure_future(bench.failure(language, code[language], timeout_s=5.0))
    with anyio.fail_after(20):
        await bench.tools.hanging.wait()
        pids = [pid for pid in children_of(os.getpid()) if pid not in others]
        assert pids
        for pid in pids:
            variables = {line.partition(b"=")[0] for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}
            assert variables <= {b"", b"DENO_DIR", b"NO_COLOR", b"LC_CTYPE"}  # the last is set by Python itself
            limits = Path(f"/proc/{pid}/limits").read_text()
            rows = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()}
            assert rows["Max file size"] == rows["Max core file size"] == ["0", "0"]
            assert int(rows["Max data size"][1]) <= (128 + 640) * MIB
            assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_python_names_can_be_overwritten_without_harm(bench: Bench) -> None:
    """They are the script's; the host's stay."""
    code = "real = call_tool\ndef call_tool(name, args): return 'mine'\n[call_tool('echo', {}), real('echo', {'a': 1})]"
    assert await bench.run("python", code) == ["mine", {"a": 1}]


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "for i in range(10000): call_tool('echo', {'i': i})"),
        ("python", "call_tools([{'name': 'echo'}] * 10000)"),
        ("javascript", "for (let i = 0; i < 10000; i++) await call_tool('echo', {i})"),
        ("javascript", "await call_tools(Array(10000).fill({name: 'echo'}))"),
    ],
)
async def test_ten_thousand_calls_end_at_the_limit(bench: Bench, language: Language, code: str) -> None:
    """Not one more is made, and the error says how many were."""
    error = await bench.failure(language, code, max_calls=20)
    assert error.error_code == "code_too_many_calls"
    assert len(bench.tools.asked) <= 20
    assert sum(group["count"] for group in (error.data or {})["calls"]) == 20


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "'x' * 20_000_000"),
        ("javascript", "return 'x'.repeat(20_000_000)"),
        ("javascript", "for (let i = 0; i < 100; i++) call_tool('echo', {a: 'x'.repeat(1_000_000)}).catch(() => {})"),
    ],
)
async def test_huge_messages_end_the_script(bench: Bench, language: Language, code: str) -> None:
    """Before they take up the gateway's memory."""
    error = await bench.failure(language, code, max_calls=1000)
    assert error.error_code == "code_error"
    assert "cannot be read" in error.message


async def test_scripts_run_a_few_at_a_time_and_the_next_waits_within_its_time() -> None:
    """One that never gets its turn is told to come back."""
    async with opened_bench(parallel=1) as bench:
        with anyio.fail_after(20):
            first = asyncio.ensure_future(bench.failure("python", "call_tool('hang')", timeout_s=3.0))
            await bench.tools.hanging.wait()
            error = await bench.failure("python", "1", timeout_s=0.2)
            assert (error.error_code, error.delivery) == ("code_busy", "not_sent")
            assert error.retry_after_s
            assert (await first).error_code == "code_timeout"
            assert await bench.run("python", "1") == 1


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_cancelled_script_leaves_no_process_and_no_call(bench: Bench, language: Language) -> None:
    """The client has given it up."""
    code = {"python": "call_tool('hang')", "javascript": "call_tool('hang'); while (true) await call_tool('echo')"}
    others = children_of(os.getpid())  # servers that other tests of this process share
    with anyio.fail_after(20):
        task = asyncio.ensure_future(bench.run(language, code[language], max_calls=10_000))
        await bench.tools.hanging.wait()
        assert len(children_of(os.getpid())) > len(others)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert bench.tools.cancelled == 1
    assert children_of(os.getpid()) == others


async def test_closing_the_sandbox_ends_what_runs() -> None:
    """A script is not waited for."""
    others = children_of(os.getpid())
    async with opened_bench() as bench:
        task = asyncio.ensure_future(bench.failure("javascript", "call_tool('hang'); while (true) {}"))
        with anyio.fail_after(20):
            await bench.tools.hanging.wait()
    with anyio.fail_after(20):
        assert (await task).error_code == "code_error"
    assert children_of(os.getpid()) == others


async def test_busy_scripts_leave_the_event_loop_to_others(bench: Bench) -> None:
    """Four that print, call and compute without end; a turn of the loop stays short."""
    codes: list[tuple[Language, str]] = [
        ("python", "while True: print('x' * 1000)"),
        ("python", "while True: pass"),
        ("javascript", "while (true) console.log('x'.repeat(1000))"),
        ("javascript", "while (true) await call_tools(Array(8).fill({name: 'echo', args: {a: 'x'.repeat(10000)}}))"),
    ]
    tasks = [asyncio.ensure_future(bench.failure(*code, timeout_s=3.0, max_calls=10_000)) for code in codes]
    worst, turns = 0.0, 0
    with anyio.fail_after(20):
        while not all(task.done() for task in tasks):
            began = time.monotonic()
            await asyncio.sleep(0.001)
            worst, turns = max(worst, time.monotonic() - began), turns + 1
    assert turns > 20
    assert worst < 0.5, "the loop was blocked"
    assert {(await task).error_code for task in tasks} <= {"code_timeout", "code_too_many_calls", "code_error"}
