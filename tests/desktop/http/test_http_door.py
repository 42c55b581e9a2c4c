"""`attach` between a client and a gateway over HTTP that ends, forgets, waits, and says a lot."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from http_stage import LIMIT_S, MODERN, Client, Exchange, Proxy, Stage

# Marked long: each starts the command as a process.
pytestmark = pytest.mark.long
ERAS = pytest.mark.parametrize("meta", [{}, {"_meta": MODERN}], ids=["handshake", "modern"])
MOST_RESIDENT_KB = 14_000


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A gateway."""
    stage = Stage()
    yield stage
    stage.stop()


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    """A client of it."""
    with closing(Client(stage.url)) as client:
        yield client


def begin(client: Client, meta: dict[str, Any]) -> None:
    if not meta:
        client.open_session()


def hang(asked: Exchange) -> None:
    """Give no answer before the connection ends."""
    asked.stage.heard.put("hanging")
    asked.wait_for_end()


def test_a_forgotten_session_is_made_again_unseen(stage: Stage, client: Client) -> None:
    """The client hears that lists may have changed, and the answer to what it asked; a level it set is set again."""
    client.open_session()
    client.send("logging/setLevel", 1, level="error")
    assert client.receive()["id"] == 1
    stage.seen.clear()
    stage.forget_sessions()
    client.send("tools/call", 2, name="a")
    assert client.receive()["method"] == "notifications/tools/list_changed"
    assert client.receive()["id"] == 2
    again = ["initialize", "notifications/initialized", "logging/setLevel"]
    assert stage.methods == ["tools/call", *again, "tools/call"]
    assert [headers.get("mcp-session-id") for method, headers, _ in stage.seen if method != "GET"] == [
        *("s1", None, "s2", "s2", "s2")
    ]
    assert client.has_said_nothing_more()


def test_a_message_that_is_refused_before_it_was_read_is_answered_once(stage: Stage, client: Client) -> None:
    """The other side closes the connection while the message is still being sent: its words were there before."""
    client.open_session()
    stage.most_bytes = 1_000_000
    client.send("tools/call", 1, name="a", arguments={"text": "x" * 30_000_000})
    assert "answers 413" in client.receive()["error"]["message"]
    assert stage.refused == 1


@ERAS
def test_what_is_under_way_at_a_restart(stage: Stage, client: Client, meta: dict[str, Any]) -> None:
    """A call of unknown fate is answered as lost, a list is asked for again."""
    begin(client, meta)
    stage.answers |= {"tools/call": hang, "tools/list": hang}
    client.send("tools/call", 1, name="a", **meta)
    client.send("tools/list", 2, **meta)
    stage.wait_for("hanging")
    stage.wait_for("hanging")
    stage.stop()
    lost = client.receive()
    assert (lost["id"], lost["error"]["data"]) == (1, {"delivery": "unknown"})
    client.send("tools/call", 3, name="a", **meta)
    stage.answers.clear()
    stage.start()
    said = [client.receive() for _ in range(2 if meta else 3)]
    assert {one["id"] for one in said if "id" in one} == {2, 3}
    assert all("result" in one for one in said if "id" in one)
    assert client.has_said_nothing_more()


def test_a_gateway_that_starts_later_is_waited_for(stage: Stage) -> None:
    """A client may be started with the machine, sooner than the gateway."""
    stage.stop()
    with closing(Client(stage.url)) as client:
        client.send("tools/list", 1, _meta=MODERN)
        client.send("nothing")  # its line was read after the first
        stage.start()
        assert client.receive()["result"] == {"method": "tools/list"}


def test_a_session_that_ends_at_once_is_given_up(stage: Stage, client: Client) -> None:
    """A request meets the end of its session twice, and is answered."""
    client.open_session()
    stage.answers["tools/list"] = lambda asked: asked.reply(404)
    client.send("tools/list", 1)
    assert client.receive()["method"] == "notifications/tools/list_changed"
    assert "answers 404" in client.receive()["error"]["message"]


def test_a_modern_request_is_cancelled_by_its_stream(stage: Stage, client: Client) -> None:
    """It is closed, and neither is a message sent nor an answer passed on."""
    stage.answers["tools/call"] = hang
    client.send("tools/call", 1, name="a", _meta=MODERN)
    stage.wait_for("hanging")
    client.send("notifications/cancelled", requestId=1)
    stage.wait_for("tools/call")
    client.send("tools/list", 2, _meta=MODERN)
    assert client.receive()["id"] == 2
    assert stage.methods == ["tools/call", "tools/list"]


def test_a_request_of_a_session_is_cancelled_by_a_message(stage: Stage, client: Client) -> None:
    """Whatever is answered to it then, the client does not wait for it."""
    is_cancelled = threading.Event()

    def answer_late(asked: Exchange) -> None:
        asked.stage.heard.put("hanging")
        assert is_cancelled.wait(LIMIT_S)
        asked.reply(200, asked.result())

    stage.answers["tools/call"] = answer_late
    client.open_session()
    client.send("tools/call", 1, name="a")
    stage.wait_for("hanging")
    client.send("notifications/cancelled", requestId=1)
    stage.wait_for("notifications/cancelled")
    is_cancelled.set()
    stage.wait_for("tools/call")
    assert client.has_said_nothing_more()


@ERAS
def test_progress_comes_as_it_is_told(stage: Stage, client: Client, meta: dict[str, Any]) -> None:
    """In order and before the answer, whatever pieces the stream comes in."""
    has_come = threading.Event()

    def tell(asked: Exchange) -> None:
        asked.open_stream()
        for number in range(3):
            has_come.clear()
            asked.send_event(json.dumps({"jsonrpc": "2.0", "method": "p", "params": {"n": number}}), 7)
            assert has_come.wait(LIMIT_S)
        asked.send_event(asked.result(), 1)
        asked.end_stream()

    stage.answers["tools/call"] = tell
    begin(client, meta)
    client.send("tools/call", 1, name="a", **meta)
    for number in range(3):
        assert client.receive()["params"] == {"n": number}
        has_come.set()
    assert client.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}


@ERAS
def test_a_large_result_arrives_byte_by_byte(stage: Stage, client: Client, meta: dict[str, Any]) -> None:
    """One line, however it is sent; numbers and spaces are as they were."""
    text = '{"jsonrpc":"2.0","id":%d,"result":{"a": 1.50,"b":"' + "x" * 10_000_000 + '"}}'

    def stream(asked: Exchange) -> None:
        asked.open_stream()
        asked.send_event(text % asked.message["id"], 100_000)
        asked.end_stream()

    stage.answers["tools/call"] = stream
    stage.answers["tools/list"] = lambda asked: asked.reply(200, text % asked.message["id"])
    begin(client, meta)
    for number, method in enumerate(("tools/call", "tools/list")):
        client.send(method, number, name="a", **meta)
        assert client.receive_line() == (text % number).encode() + b"\n"


def test_many_requests_are_under_way_at_once(stage: Stage, client: Client) -> None:
    """None waits for another; further ones use the same connections."""
    together = threading.Barrier(64)

    def wait_for_all(asked: Exchange) -> None:
        together.wait(LIMIT_S)
        asked.reply(200, asked.result())

    stage.answers["tools/call"] = wait_for_all
    client.open_session()
    for turn in range(2):
        for number in range(64):
            client.send("tools/call", turn * 64 + number, name="a")
        assert len({client.receive()["id"] for _ in range(64)}) == 64
    assert len(stage.connections) < 80


def test_a_connection_that_was_closed_while_idle_is_noticed(stage: Stage, client: Client) -> None:
    """A call is not sent into one, where its fate would be unknown."""

    def close_quietly(asked: Exchange) -> None:
        asked.reply(200, asked.result())
        asked.close_connection = True
        asked.connection.shutdown(socket.SHUT_WR)

    stage.answers["tools/call"] = close_quietly
    for number in range(5):
        client.send("tools/call", number, name="a", _meta=MODERN)
        assert "result" in client.receive()
        stage.wait_for("tools/call")


def test_questions_of_a_gateway_end_with_it(stage: Stage, client: Client) -> None:
    """They come on the stream of the session; the client is told to leave them, and its late answer goes nowhere."""

    def ask(asked: Exchange) -> None:
        asked.open_stream()
        if "s1" in str(asked.headers["mcp-session-id"]):
            asked.send_event('{"jsonrpc":"2.0","id":"q","method":"roots/list"}')
        asked.wait_for_end()

    stage.answers["GET"] = ask
    client.open_session()
    assert client.receive() == {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}
    stage.stop()
    stage.start()
    client.send("tools/list", 1)
    said = [client.receive() for _ in range(3)]
    assert said[0]["method"] == "notifications/cancelled" and said[0]["params"]["requestId"] == "q"
    client.send_message({"jsonrpc": "2.0", "id": "q", "result": {}})
    client.send("tools/list", 2)
    assert client.receive()["id"] == 2
    assert "answer" not in stage.methods


def test_the_stream_of_a_session_goes_on_where_it_ended(stage: Stage, client: Client) -> None:
    """It is opened again, and names the last event that came; an answer to a question finds its way."""

    def ask(asked: Exchange) -> None:
        asked.open_stream()
        if asked.headers["last-event-id"] is None:
            asked.send_event('{"jsonrpc":"2.0","id":7,"method":"roots/list"}')
            asked.end_stream()
        else:
            asked.send_event('{"jsonrpc":"2.0","method":"notifications/x"}')
            asked.wait_for_end()

    stage.answers["GET"] = ask
    client.open_session()
    assert client.receive()["method"] == "roots/list"
    client.send_message({"jsonrpc": "2.0", "id": 7, "result": {"roots": []}})
    stage.wait_for("answer")
    assert client.receive()["method"] == "notifications/x"


@pytest.mark.parametrize(("kind", "said"), [("good", None), ("other-host", "SSLCertVerificationError")])
def test_tls_is_spoken_and_checked(tmp_path: Path, kind: str, said: str | None) -> None:
    """With the certificates that the environment names."""
    authority = Authority(tmp_path)
    stage = Stage(authority.context(kind))
    with closing(Client(stage.url, SSL_CERT_FILE=str(authority.file))) as client:
        for number in range(3):
            client.send("tools/call", number, name="a", _meta=MODERN)
            answer = client.receive()
            assert said in answer["error"]["message"] if said else "result" in answer
    stage.stop()


def test_a_proxy_leads_to_other_machines(tmp_path: Path) -> None:
    """Through a tunnel, in which TLS is spoken with the gateway itself; this machine is reached without."""
    authority = Authority(tmp_path)
    stage = Stage(authority.context("other-host"))
    proxy = Proxy(stage)
    variables = {"HTTPS_PROXY": proxy.url, "SSL_CERT_FILE": str(authority.file)}
    with closing(Client("https://192.0.2.1/mcp", **variables)) as client:
        for number in range(2):
            client.send("tools/list", number, _meta=MODERN)
            assert "result" in client.receive()
    assert proxy.head.startswith(b"CONNECT 192.0.2.1:443 HTTP/1.1\r\n")
    assert b"proxy-authorization: Basic bWU6c2VjcmV0\r\n" in proxy.head
    assert all("proxy-authorization" not in headers for _, headers, _ in stage.seen)
    stage.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_client_costs_little_memory(stage: Stage) -> None:
    """None of the gateway's libraries is loaded, nor what TLS needs."""
    for _ in range(2):  # the first compiles what the second measures
        client = Client(stage.url, "-X", "importtime")
        client.open_session()
        client.send("tools/list", 1)
        assert client.receive()["id"] == 1
        status = Path(f"/proc/{client.process.pid}/status").read_text()
        loaded = {line.rpartition("|")[2].strip() for line in client.close().splitlines()}
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) <= MOST_RESIDENT_KB
    assert "smart_mcp_proxy.desktop.http.door" in loaded
    assert not loaded & {"httpx2", "pydantic", "mcp", "ssl", "asyncio", "cyclopts", "smart_mcp_proxy.settings"}
