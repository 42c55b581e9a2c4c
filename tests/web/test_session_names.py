"""Ids of sessions: they say where the session is kept, and only our own do."""

import socket

import pytest
from pydantic import SecretStr

from smart_mcp_proxy.io.worker import ALONE, Worker
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.workers.session_names import SessionNames, find_head_worker

RANDOM = "0123456789abcdef" * 2
DATABASE = SecretStr("postgresql://db/x")


def of_two() -> tuple[Worker, list[socket.socket]]:
    ends = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
    return Worker(1, ends, None), ends


@pytest.mark.parametrize(
    ("is_alone", "settings", "expected"),
    [
        (True, Settings(), RANDOM),
        (True, Settings(replica="a"), RANDOM),
        (True, Settings(database_url=DATABASE, replica="gateway-a"), f"{RANDOM}.gateway-a"),
        (False, Settings(), f"{RANDOM}-1"),
        (False, Settings(database_url=DATABASE, replica="b"), f"{RANDOM}-1.b"),
    ],
)
def test_a_session_is_called_after_where_it_is_kept(is_alone: bool, settings: Settings, expected: str) -> None:
    """And a balancer or another worker reads that back."""
    worker, ends = of_two()
    session_id = SessionNames(ALONE if is_alone else worker, settings)(RANDOM)
    for end in ends:
        end.close()
    assert session_id == expected
    head = f"POST /mcp HTTP/1.1\r\nMCP-Session-Id: \t{session_id} \r\nHost: x\r\n\r\n".encode()
    assert find_head_worker(head, len(head) - 2) == (None if is_alone else 1)


def test_a_body_names_no_worker() -> None:
    """Whatever it looks like."""
    head = b"POST /mcp HTTP/1.1\r\n"
    request = b"%b\r\n{\r\nmcp-session-id: %b-1\r\n}" % (head, RANDOM.encode())
    assert find_head_worker(request, len(head)) is None


def test_a_host_that_is_no_name_of_ours_becomes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hyphens for what does not fit."""
    monkeypatch.setattr(socket, "gethostname", lambda: "Web_01.Example.")
    assert SessionNames(ALONE, Settings(database_url=DATABASE))(RANDOM) == f"{RANDOM}.web-01-example"


@pytest.mark.parametrize(
    "field",
    [
        "mcp-session-id: " + RANDOM,
        f"mcp-session-id: {RANDOM}-",
        f"mcp-session-id: {RANDOM}-x",
        f"mcp-session-id: {RANDOM}-123",
        f"x-mcp-session-id: {RANDOM}-1",
        f"mcp-session-id: {RANDOM}-1.a b",
        f"mcp-session-id: {RANDOM}-1, {RANDOM}-0",
    ],
)
def test_an_id_of_nobodys_names_no_worker(field: str) -> None:
    """The request is answered where it came in."""
    head = f"POST /mcp HTTP/1.1\r\n{field}\r\n".encode()
    assert find_head_worker(head + b"\r\n", len(head)) is None
