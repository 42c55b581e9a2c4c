"""Several processes on one port whose catalog is a PostgreSQL database."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from postgres_server import PostgresServer
from replicas import KEY
from test_workers import NAMES, Session, connections_of_both, message, served, sessions_of_both
from worlds import is_replaced, until, until_so

pytestmark = [pytest.mark.anyio, pytest.mark.long]

TOKEN = "the-operator-of-both-workers"


async def is_executed(session: Session, tool: str) -> bool:
    """Whether a call of a tool that says what it was sent reaches its server."""
    result = await session.call("call_tool_destructive", {"name": tool, "args": {"text": "x"}})
    return not result.get("isError", False)


async def is_refused(session: Session, tool: str) -> bool:
    """Whether a call of the tool is refused because it is blocked."""
    result = await session.call("call_tool_destructive", {"name": tool, "args": {"text": "x"}})
    return bool(result.get("isError")) and "is blocked by the user" in result["content"][0]["text"]


async def read_there(session: Session, key: str) -> str:
    """The first page of a result that was cut."""
    page = await session.call("read_output", {"key": key, "offset": 0})
    text: str = page["content"][0]["text"]
    return text


async def test_workers_share_a_database(postgres: PostgresServer, tmp_path: Path) -> None:
    """Sessions, a block and a cut result hold at both, and at the one that takes a killed one's place."""
    database = postgres.new_database()
    settings = {"DATABASE_URL": postgres.url(database), "SECRET_KEY": KEY, "OPERATOR_TOKEN": TOKEN}
    (tmp_path / "alpha").mkdir()
    (tmp_path / "alpha" / "tools").write_text("echo held")
    async with served(tmp_path, TRUNCATE_OUTPUT_LEN="300", **settings) as gateway:
        lost, kept = await sessions_of_both(gateway.url)
        for number in range(10):  # each on a new connection, at whichever worker takes it
            for session in (lost, kept):
                for name in NAMES:
                    assert await session.echo(name, f"{number}") == f"said {number}"
        assert await is_executed(lost, "alpha:held") and await is_executed(kept, "alpha:held")
        async with connections_of_both(gateway, TOKEN) as (one, _):
            headers = {"authorization": f"Bearer {TOKEN}"}
            answer = await one.post("/api/v1/approvals/block", json={"name": "alpha:held"}, headers=headers)
            assert answer.status_code == 200, answer.text
        for session in (lost, kept):
            await until_so(partial(is_refused, session, "alpha:held"))
        cut = await lost.call("call_tool_destructive", {"name": "alpha:echo", "args": {"text": "y" * 5_000}})
        key = next(iter(cut["_meta"].values()))["key"]
        assert "yyyy" in await read_there(kept, key)
        victim = next(pid for pid in gateway.workers() if b'"number": 0' in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(victim, signal.SIGKILL)
        assert await kept.echo("beta", "still") == "said still"
        await until(lambda: is_replaced(victim, gateway.workers()))
        assert (await lost.post(message("tools/list", {}))).status_code == 404
        anew, _ = await sessions_of_both(gateway.url)
        for session in (anew, kept):
            await until_so(partial(is_executed, session, "alpha:echo"))
            assert await is_refused(session, "alpha:held")
            assert "yyyy" in await read_there(session, key)
    assert postgres.value("SELECT count(*) FROM approvals WHERE state = 'blocked'", database) == 1
    assert not (tmp_path / "data" / "proxy.db").exists()
