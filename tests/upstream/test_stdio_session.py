"""Sessions with child processes: faithful results, faults that cost one call at most, no orphans."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from growth import NOISE_S

from smart_mcp_proxy.errors import RequestError, RpcAnswer, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.models import ProgressReport
from smart_mcp_proxy.servers import ServerLimits
from smart_mcp_proxy.upstream.protocol.session import LogLine, SessionEvent, ToolsChanged
from smart_mcp_proxy.upstream.stdio.stdio import StdioSession

pytestmark = pytest.mark.anyio


async def call(session: StdioSession, name: str, timeout_s: float = 30, **arguments: Any) -> Any:
    """The text of a tool's first content block."""
    text = (await session.request("tools/call", {"name": name, "arguments": arguments}, timeout_s=timeout_s)).text
    return json.loads(text)["content"][0]["text"]


async def fails(session: StdioSession, name: str, **arguments: Any) -> UpstreamError:
    """The error of a call that must fail well before its deadline."""
    with anyio.fail_after(20), pytest.raises(UpstreamError) as caught:
        await call(session, name, timeout_s=30, **arguments)
    return caught.value


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends while it is read
        return False


@pytest.mark.parametrize(
    ("mode", "era", "version"),
    [
        ("handshake", "handshake", "2025-11-25"),
        ("modern", "modern", "2026-07-28"),
        ("silent", "handshake", "2025-11-25"),
        ("strict", "handshake", "2025-11-25"),
        ("banner", "handshake", "2025-11-25"),
    ],
)
async def test_the_era_of_every_kind_of_server_is_found(open_fake, mode, era, version):
    """Modern, of the handshake era, silent on unknown methods, ending on them, and with a banner first."""
    session = await open_fake(mode)
    assert (session.era, session.protocol_version) == (era, version)
    assert session.server_info.startswith("fake ")
    assert await call(session, "echo", a=1) == '{"a": 1}'


async def test_a_remembered_era_saves_the_probe(open_fake):
    """A server that is silent on unknown methods costs its pause only once."""
    session = await open_fake("silent", era="handshake")
    assert json.loads(await call(session, "methods"))[0] == "initialize"


@pytest.mark.parametrize(
    ("mode", "known", "era"), [("modern", "handshake", "modern"), ("silent", "modern", "handshake")]
)
async def test_a_server_that_changed_its_era_is_understood(open_fake, mode, known, era):
    """What is remembered saves time and decides nothing."""
    session = await open_fake(mode, era=known)
    assert session.era == era


async def test_a_result_arrives_byte_for_byte(open_fake):
    """Numbers, spacing and escapes stay as the server wrote them."""
    session = await open_fake()
    text = (await session.request("tools/call", {"name": "verbatim"}, timeout_s=30)).text
    assert text == b'{"content":[],  "n":1.50, "u":"\\u00e9"}'


async def test_every_modern_request_carries_version_and_client_and_no_capability(open_fake):
    """The modern era has no session: each request says who asks, and that nothing can be asked back."""
    session = await open_fake("modern")
    meta = json.loads(await call(session, "meta"))
    prefix = "io.modelcontextprotocol/"
    assert meta[prefix + "protocolVersion"] == "2026-07-28"
    assert meta[prefix + "clientInfo"]["name"] == "smart-mcp-proxy"
    assert meta[prefix + "clientCapabilities"] == {}


async def test_a_handshake_request_carries_no_meta_of_ours(open_fake):
    """Nothing is added that the era does not know."""
    session = await open_fake()
    assert json.loads(await call(session, "meta")) is None


async def test_progress_reaches_the_caller_forwards_only_and_coalesced(open_fake):
    """The first ten pass as they come, the other hundreds become a few; the last one is among them."""
    session = await open_fake()
    reports: list[ProgressReport] = []

    async def note(report: ProgressReport) -> None:
        reports.append(report)

    await session.request("tools/call", {"name": "progress"}, timeout_s=30, on_progress=note)
    steps = [report.progress for report in reports]
    assert steps == sorted(set(steps))
    assert len(steps) <= 15
    assert steps[-1] == 499


async def test_a_listener_of_progress_that_fails_does_not_fail_the_call(open_fake):
    """Progress is a courtesy."""
    session = await open_fake()

    async def note(report: ProgressReport) -> None:
        raise ValueError("listener is broken")

    assert b"done" in (await session.request("tools/call", {"name": "progress"}, timeout_s=30, on_progress=note)).text


async def test_leaving_a_call_tells_the_server(open_fake):
    """A cancelled caller means a cancelled call, and the session goes on."""
    session = await open_fake()
    task = asyncio.ensure_future(call(session, "hang"))
    await call(session, "echo")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(json.loads(await call(session, "cancelled"))) == 1


async def test_a_timeout_says_unknown_and_tells_the_server(open_fake):
    """Whether a call without an answer was carried out cannot be known; its late reply reaches nobody."""
    session = await open_fake()
    with pytest.raises(UpstreamTimeoutError, match=r"'fake' did not answer 'tools/call' within 0.2 s") as caught:
        await call(session, "hang", timeout_s=0.2)
    assert caught.value.delivery == "unknown"
    assert len(json.loads(await call(session, "cancelled"))) == 1
    assert await call(session, "late") == "on time"
    assert await call(session, "echo") == "{}"


async def test_an_error_answer_keeps_code_text_and_data(open_fake):
    """By its code the server saw the call and could do nothing with it; whether that is so, nobody else knows."""
    error = await fails(await open_fake(), "error")
    assert (error.delivery, error.was_answered) == ("unknown", True)
    assert error.data == {"rpc_code": -32602, "rpc_data": {"a": 1}}
    assert error.answer == RpcAnswer(-32602, "no such thing", {"a": 1})
    assert error.message == "Server 'fake' answered 'tools/call' with error -32602: no such thing"


@pytest.mark.parametrize(
    "name", ["word-error", "null-result", "garbled", "garbled-id", "nan", "deep", "null-id", "float-id"]
)
@pytest.mark.parametrize("mode", ["handshake", "modern"])
async def test_a_reply_that_cannot_be_read_fails_its_call_at_once(open_fake, mode, name):
    """Nobody waits for a deadline, and the next call works."""
    session = await open_fake(mode)
    error = await fails(session, name)
    assert "'fake'" in error.message
    assert await call(session, "echo") == "{}"


async def test_a_broken_reply_fails_no_other_call(open_fake):
    """With several calls under way only the one that is certainly meant fails; the others get their answers."""
    session = await open_fake()
    others = [asyncio.ensure_future(call(session, "hang", n=n)) for n in range(2)]
    await fails(session, "garbled")
    with pytest.raises(UpstreamTimeoutError):
        await call(session, "garbled-id", timeout_s=0.2)
    await call(session, "late")
    assert await asyncio.gather(*others) == ["late", "late"]


@pytest.mark.parametrize(
    ("name", "text"), [("twice", "first"), ("quoted-id", "quoted"), ("other-id", "mine"), ("noise", "after the noise")]
)
async def test_odd_ids_and_noise_never_mix_up_calls(open_fake, name, text):
    """Duplicate, foreign, malformed ids and log lines on stdout: every call gets its own answer."""
    session = await open_fake()
    assert await call(session, name) == text
    assert await call(session, "echo", b=2) == '{"b": 2}'


async def test_noise_on_stdout_is_warned_of_once(open_fake, caplog):
    """Not once per line."""
    session = await open_fake("banner")
    await call(session, "noise")
    assert [record.message for record in caplog.records].count(
        "server fake sends text that is no protocol message; it is skipped"
    ) == 1


@pytest.mark.parametrize(
    ("name", "result"),
    [("bad-utf8", {"t": "a\ufffdb"}), ("surrogate", {"t": "a\ufffdb \U0001f600 \\ud800"}), ("bom", {})],
)
async def test_text_that_is_no_unicode_is_repaired(open_fake, name, result):
    """One bad byte costs that byte, not the session."""
    session = await open_fake()
    assert json.loads((await session.request("tools/call", {"name": name}, timeout_s=30)).text) == result


async def test_eight_mebibytes_arrive_whole(open_fake):
    """However many pieces the pipe makes of them."""
    session = await open_fake()
    with anyio.fail_after(30):
        assert len(await call(session, "big", timeout_s=30, size=8 << 20)) == 8 << 20


@pytest.mark.long
async def test_the_cost_of_a_long_line_grows_with_its_length(open_fake):
    """Twelve times the size, thirty times the processor time at most: the square would be 144 times."""
    session = await open_fake()
    spent = {}
    for mebibytes in (1, 12, 1, 12):
        started = time.thread_time()
        await call(session, "big", timeout_s=60, size=mebibytes << 20)
        spent[mebibytes] = min(spent.get(mebibytes, 60.0), time.thread_time() - started)
    assert spent[12] <= 30 * spent[1] + NOISE_S, spent


@pytest.mark.parametrize("name", ["big", "big-id-last"])
async def test_a_message_over_the_limit_fails_its_own_call(open_fake, name):
    """The line is skipped to its end without being kept; other calls and later ones are not touched."""
    session = await open_fake(limit=100_000)
    other = asyncio.ensure_future(call(session, "hang"))
    error = await fails(session, name, size=300_000)
    assert "at most 100,000 are accepted" in error.message
    assert error.delivery == "unknown"
    await call(session, "late")
    assert await other == "late"


@pytest.mark.parametrize("name", ["die", "die-mid-line"])
async def test_death_in_the_middle_of_a_call_says_unknown(open_fake, name):
    """The call may have been carried out; the next one certainly is not sent."""
    session = await open_fake()
    error = await fails(session, name)
    assert error.message == "Server 'fake' ended with exit code 7."
    assert error.delivery == "unknown"
    assert (await fails(session, "echo")).delivery == "not_sent"
    assert "exit code 7" in (await session.wait_closed()).message


async def test_a_server_that_closes_its_output_counts_as_lost(open_fake):
    """It still runs, and is of no more use."""
    session = await open_fake()
    assert (await fails(session, "close-stdout")).message == "Server 'fake' closed its output."


async def test_the_server_may_ask_for_a_ping_and_nothing_else(open_fake):
    """A shared session could not tell whose answer it would get."""
    session = await open_fake()
    answers = {answer["id"]: answer for answer in json.loads(await call(session, "ask"))}
    assert answers["q1"]["result"] == {}
    assert answers[2]["error"]["code"] == answers["q3"]["error"]["code"] == -32601


@pytest.mark.parametrize("mode", ["handshake", "modern"])
async def test_a_changed_tool_list_is_reported_in_both_eras(open_fake, events: list[SessionEvent], mode):
    """The modern era needs a subscription for it."""
    session = await open_fake(mode)
    subscribed_as = await call(session, "change")
    assert events == [ToolsChanged()]
    assert (subscribed_as != "None") == (mode == "modern")


async def test_stderr_is_drained_and_kept(open_fake, events: list[SessionEvent]):
    """A server that writes much to stderr never blocks on it."""
    session = await open_fake()
    await call(session, "stderr")
    with anyio.fail_after(20):
        while not events or events[-1] != LogLine("the last line"):
            await anyio.lowlevel.checkpoint()
    assert len(events) == 20_001


async def test_a_child_gets_little_of_our_environment(open_fake, monkeypatch):
    """Tokens of the gateway's own stay its own."""
    monkeypatch.setenv("SOME_TOKEN", "secret-value")
    session = await open_fake(env={"OWN": "1"})
    env = json.loads(await call(session, "env"))
    assert env["OWN"] == "1"
    assert env["PATH"] == os.environ["PATH"]
    assert "SOME_TOKEN" not in env


async def test_closing_ends_grandchildren_too(open_fake):
    """Also those that ignore SIGTERM, and although the server itself ended politely."""
    session = await open_fake()
    pids = [int(await call(session, name)) for name in ("pid", "grandchild")]
    assert all(map(is_alive, pids))
    await session.close()
    with anyio.fail_after(20):
        while any(map(is_alive, pids)):
            await anyio.lowlevel.checkpoint()


async def test_closing_fails_the_calls_under_way(open_fake):
    """With an error, not with a cancellation that would look like the agent's own."""
    session = await open_fake()
    task = asyncio.ensure_future(call(session, "hang"))
    await call(session, "echo")
    await session.close()
    with pytest.raises(UpstreamError, match="was stopped") as caught:
        await task
    assert "gateway ended the connection" in caught.value.hint


@pytest.mark.long  # starts and ends processes, seconds of it
async def test_a_server_that_does_not_answer_runs_into_the_start_limit(open_fake):
    """And its process is gone afterwards."""
    with pytest.raises(UpstreamTimeoutError, match="did not answer 'initialize' within 1 s"):
        await open_fake("mute", limits=ServerLimits(init_s=1))


async def test_arguments_that_are_no_json_are_the_callers_fault(open_fake):
    """Half a surrogate pair cannot be sent; nothing was."""
    session = await open_fake()
    with pytest.raises(RequestError, match="cannot be written as JSON"):
        await call(session, "echo", bad="\ud800")
    assert await call(session, "echo") == "{}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": "no-such-command"}, "Server 'fake': command 'no-such-command' not found on PATH."),
        ({"command": "/no/such/file"}, "Server 'fake': command '/no/such/file' not found."),
        ({"command": "/"}, "Server 'fake': command '/' is a folder."),
        ({"cwd": "/no/such/folder"}, "Server 'fake': folder '/no/such/folder' does not exist."),
        ({"cwd": "/" + "x" * 300}, f"Server 'fake': folder '/{'x' * 300}' does not exist."),
        ({"args": ("-c", "import sys; sys.exit(3)")}, "Server 'fake' ended with exit code 3."),
    ],
)
async def test_a_server_that_cannot_start_says_why(open_fake, changes, message):
    """Each with the value at fault."""
    with anyio.fail_after(20), pytest.raises(UpstreamError) as caught:
        await open_fake(**changes)
    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("C:\\Program Files\\nodejs\\npx.cmd", "npx"),
        ("D:/tools/uvx.exe", "uvx"),
        (".venv\\Scripts\\python.exe", "python"),
        ("..\\node_modules\\.bin\\acme.CMD", "acme"),
        ("\\\\server\\share\\my server.bat", "'command=my server'"),
        ("%APPDATA%\\npm\\acme.ps1", "acme"),
    ],
)
async def test_a_path_of_windows_is_named_as_one(open_fake, command, program):
    """Its blanks separate no arguments; the program's name is what may be right."""
    with pytest.raises(UpstreamError) as caught:
        await open_fake(command=command, args=("-y", "x"))
    assert caught.value.message == f"Server 'fake': command '{command}' not found: that is a path of Windows."
    assert caught.value.hint.endswith(
        f"mcpproxy server patch fake {program}" if " " in program else f" command={program}"
    )


async def test_a_path_with_a_blank_is_no_command_line(open_fake):
    """Its first word is no program."""
    with pytest.raises(UpstreamError) as caught:
        await open_fake(command="/opt/My Tools/acme")
    assert caught.value.message == "Server 'fake': command '/opt/My Tools/acme' not found."


@pytest.mark.parametrize(
    ("mode", "message"), [(0o755, "is no program this system can run"), (0o644, "is not executable")]
)
async def test_a_file_that_is_no_program_is_explained(open_fake, tmp_path, mode, message):
    """The kernel's words for it help nobody."""
    script = tmp_path / "server"
    script.write_bytes(b"\x00\x01")
    script.chmod(mode)
    with pytest.raises(UpstreamError, match=message):
        await open_fake(command=str(script), args=())
