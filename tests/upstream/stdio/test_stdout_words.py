"""Programs on stdio that write no MCP messages: what is said about them."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from upstream_fakes import fake_config

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.telemetry import secrets_hidden
from smart_mcp_proxy.upstream import Connector
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol import inbox as line_inbox
from smart_mcp_proxy.upstream.protocol.inbox import LineInbox
from smart_mcp_proxy.upstream.protocol.pending import PendingCalls
from smart_mcp_proxy.upstream.protocol.session import LogLine
from smart_mcp_proxy.upstream.stdio.stdio import ChildProcess, StdioSession

pytestmark = pytest.mark.anyio

ANSWER = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}})
STAYS = "\nsys.stdout.flush()\nfor line in sys.stdin: pass"


async def failure(dialer: Connector, code: str) -> tuple[UpstreamError, list[str]]:
    """Why a program cannot be used, and the lines in its log."""
    lines: list[str] = []

    def hear(event: Any) -> None:
        if isinstance(event, LogLine):
            lines.append(event.text)

    config = fake_config(args=("-S", "-c", f"import sys\n{code}"))
    with anyio.fail_after(25), pytest.raises(UpstreamError) as caught:
        await dialer(config, environ={}, era="handshake", on_event=hear)
    return caught.value, lines


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (f"Content-Length: {len(ANSWER)}\r\n\r\n{ANSWER}", "frames its messages with headers ('Content-Length: 41')"),
        (f"content-length:{len(ANSWER)}\n\n{ANSWER}\n", "frames its messages with headers ('content-length:41')"),
        ('{\n  "jsonrpc": "2.0",\n  "id": 1\n}\n', 'over several lines (\'{ "jsonrpc": "2.0",\')'),
        (
            '{\r\n\t"result": {},\r\n\t"jsonrpc" : "2.0"\r\n}\r\n',
            'over several lines (\'{ "result": {}, "jsonrpc" : "2.0"\')',
        ),
        ('[\n{\n"jsonrpc": "2.0",\n', 'over several lines (\'[ { "jsonrpc": "2.0",\')'),
    ],
)
async def test_messages_in_another_framing_are_recognized_at_once(monkeypatch, dialer, written: str, said: str) -> None:
    """Without the limit of the start, and with the beginning quoted."""
    monkeypatch.setattr(line_inbox, "_NEVER_READ", tuple((*row[:2], row[2] / 20) for row in line_inbox._NEVER_READ))
    error, _ = await failure(dialer, f"sys.stdout.write({written!r}){STAYS}")
    assert said in error.message
    assert "where MCP has one message a line: it needs another version, or an option for" in error.message


async def test_a_program_that_prints_what_it_receives_is_used(dialer) -> None:
    """Its answer stands on one line of its own, behind what is printed for its developer."""
    code = (
        "import json\nfor line in sys.stdin:\n  request = json.loads(line)\n"
        "  print('received:', json.dumps(request, indent=2), sep='\\n')\n"
        "  info = {'protocolVersion': '2025-11-25', 'capabilities': {}, 'serverInfo': {'name': 'x', 'version': '1'}}\n"
        "  if 'id' in request: print(json.dumps({'jsonrpc': '2.0', 'id': request['id'], 'result': info}), flush=True)"
    )
    config = fake_config(args=("-S", "-c", f"import sys\n{code}"))
    with anyio.fail_after(25):
        session = await dialer(config, environ={}, era="handshake", on_event=lambda event: None)
        await session.close()
    assert session.server_info == "x 1"


@pytest.mark.parametrize(
    ("written", "quoted"),
    [
        (b"Welcome!\n 1) start\n 2) quit\nChoice: ", "Welcome! 1) start 2) quit"),
        (b"Continue? [y/N] ", "Continue? [y/N] "),
        (b'{"level": "info"}\nlistening on port 3000\n', '{"level": "info"} listening on port 3000'),
        (ANSWER[:-1].encode(), ANSWER[:-1]),
        (ANSWER.encode() + b"\nWelcome!\n", ""),
        (b"\x1b[2Jx" + b"y" * 900 + b"\n", "\\x1b[2Jx" + "y" * 154),
    ],
)
async def test_the_beginning_of_what_came_in_place_of_a_message_is_kept(written: bytes, quoted: str) -> None:
    """A menu, a question, a log, an answer without the end of its line; nothing from the first message on."""
    silent: Any = None
    inbox = LineInbox("s", PendingCalls("s"), lambda event: None, silent, silent, max_message_bytes=10_000)
    inbox.take(written)
    assert inbox.unread == quoted


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ([b"Welcome!\nChoice: "], ["Welcome!", "Choice:"]),
        ([b"Continue? ", b"[y/N] "], ["Continue?"]),
        ([b"Token", b": \n"], ["Token", "Token: "]),
        ([ANSWER[:9].encode(), ANSWER[9:].encode() + b"\nChoice: "], []),
    ],
)
async def test_a_question_is_told_before_its_line_ends(written: list[bytes], told: list[str]) -> None:
    """While the program is waited for its state shows what it waits for; half of a message is no question."""
    lines: list[str] = []
    silent: Any = None
    inbox = LineInbox(
        "s", PendingCalls("s"), lambda event: lines.append(event.text), silent, silent, max_message_bytes=999
    )
    for chunk in written:
        inbox.take(chunk)
    assert lines == told


async def test_a_menu_is_quoted_where_the_start_takes_too_long() -> None:
    """With where to look; the secrets in it are hidden."""
    shown = asyncio.Event()
    config = fake_config(args=("-S", "-c", f"import sys; print('Key hunter22hunter22: 1) use'){STAYS}"))
    opening = SessionOptions(config, lambda event: shown.set(), None, environ={}, max_message_bytes=1_000)
    child = await ChildProcess.start(config, {}, lambda line: None)
    session = StdioSession(opening, child)
    with anyio.fail_after(20), secrets_hidden(["hunter22hunter22"]):
        await shown.wait()
        with pytest.raises(UpstreamError) as caught:
            await session.establish_session("handshake", 0.0)
    error = caught.value
    assert "did not answer 'initialize'" in error.message
    assert error.said == "It wrote to stdout: 'Key [hidden]: 1) use'"
    assert "no MCP message" in error.hint and error.hint.endswith("mcpproxy server logs fake")


async def test_text_on_stdout_stands_in_the_log(dialer) -> None:
    """So that the reason of an end is found there, too."""
    error, lines = await failure(dialer, "print('usage: prog --token TOKEN'); sys.exit(2)")
    assert error.message == "Server 'fake' ended with exit code 2."
    assert lines == ["usage: prog --token TOKEN"]
