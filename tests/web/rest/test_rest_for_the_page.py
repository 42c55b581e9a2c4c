"""Operations of REST that the page brought: parts of long lists, settings with their origin, events as they come."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from msgspec import structs
from page_gateway import Opened, opened, tool
from plain_http import plain_client

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.cli.support.local_gateway import open_local_api
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.web.rest import activity, operator_token
from smart_mcp_proxy.web.server.protocol import BoundedProtocol

pytestmark = pytest.mark.anyio

SOME = [tool(f"t{number:02}") for number in range(12)]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for the gateway of all tests here."""
    return "asyncio"


@pytest.fixture(scope="module")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    """A gateway with 12 tools that agents see (and one to poke), two that wait and one that is blocked."""
    async with opened(tmp_path_factory.mktemp("rest"), SOME, top_k=7) as found:
        changed = [tool("t00", "Does another thing."), *SOME[1:], tool("new")]
        await found.turn(changed)
        await found.gateway.admin.approvals.block("s:t05", "operator")
        yield found


@pytest.fixture(scope="module")
async def rest(there: Opened) -> AsyncIterator[httpx2.AsyncClient]:
    """The operator over the network."""
    headers = {"authorization": f"Bearer {operator_token(there.gateway.settings)}"}
    async with plain_client(base_url=f"{there.base}/api/v1/", headers=headers, timeout=60) as client:
        yield client


@pytest.mark.long  # a third of a second of processor time
async def test_tools_are_listed_in_parts_with_those_that_wait(rest: httpx2.AsyncClient) -> None:
    """By name, filtered by state, server and a part of the name."""
    whole = (await rest.get("listing")).json()
    names = [each["name"] for each in whole["items"]]
    assert names == sorted(names) and whole["total"] == len(names) == 14
    states = {each["name"]: each["state"] for each in whole["items"]}
    assert (states["s:t00"], states["s:new"], states["s:t05"], states["s:t01"]) == (
        "changed",
        "pending",
        "blocked",
        "visible",
    )
    parts = [(await rest.get(f"listing?limit=5&offset={start}")).json() for start in (0, 5, 10, 15)]
    assert [each["name"] for part in parts for each in part["items"]] == names
    assert {part["total"] for part in parts} == {14}
    withheld = (await rest.get("listing?state=withheld&name=T0")).json()
    assert [each["name"] for each in withheld["items"]] == ["s:t00", "s:t05"]
    assert (await rest.get("listing?state=visible")).json()["total"] == 11
    assert (await rest.get("listing?server=nobody")).status_code == 404
    for words in ("limit=0", "limit=501", "offset=-1", "state=some", "nothing=1"):
        assert (await rest.get(f"listing?{words}")).status_code == 400, words


async def test_approvals_come_in_parts_with_their_differences(rest: httpx2.AsyncClient) -> None:
    """As runs of words where they are asked for; without blocked tools where those are left out."""
    whole = (await rest.get("approvals")).json()
    assert [each["name"] for each in whole["tools"]] == ["s:new", "s:t00", "s:t05"] and whole["total"] == 3
    assert "changes" not in whole["tools"][0]
    part = (await rest.get("approvals?limit=1&offset=1&changes=true&blocked=false")).json()
    assert part["total"] == 2
    (one,) = part["tools"]
    (change,) = one["changes"]
    assert change["path"] == "description"
    runs = [(words["kind"], words["text"].strip()) for words in change["words"] if words["text"].strip()]
    assert ("removed", "a") in runs and ("added", "another") in runs


@pytest.mark.long  # a third of a second of processor time
async def test_settings_say_where_they_come_from_and_no_secret(
    rest: httpx2.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given, of the environment, or as they are without either."""
    found = {each["variable"]: each for each in (await rest.get("settings")).json()}
    assert (found["MCPPROXY_TOP_K"]["value"], found["MCPPROXY_TOP_K"]["origin"]) == ("7", "flag")
    assert found["MCPPROXY_TOP_K"]["default"] == "5" and found["MCPPROXY_TOP_K"]["help"]
    assert found["MCPPROXY_TOOLS_LIMIT"]["origin"] == "default"
    monkeypatch.setenv("MCPPROXY_TOP_K", "7")
    found = {each["variable"]: each for each in (await rest.get("settings")).json()}
    assert found["MCPPROXY_TOP_K"]["origin"] == "environment"
    async with (
        opened(tmp_path, [tool("a")], auth_token="a-secret-of-this-test-and-long") as other,
        open_local_api(other.gateway) as api,
    ):
        text = json.dumps(await api.manage("GET", "settings"))
        assert "a-secret" not in text and "[set]" in text


async def test_events_tell_records_and_changes_as_they_come(there: Opened, rest: httpx2.AsyncClient) -> None:
    """One that connects again goes on behind the last record it had; a filter leaves the others out."""
    async with asyncio.timeout(60), aclosing(events_of(rest, "events")) as events:
        assert (await anext(events))[0] == "change"
        await there.gateway.admin.approvals.unblock("s:t05", "operator")
        kind, first, record = await until(events, "activity")
        while record["detail"]["decision"] == "block":  # of the fixture, which may be stored only now
            kind, first, record = await until(events, "activity")
        assert (kind, record["kind"], record["subject"]) == ("activity", "approval", "s:t05")
        await there.gateway.admin.approvals.block("s:t05", "operator")
        _, second, record = await until(events, "activity")
        assert record["detail"]["decision"] == "block" and int(second) > int(first)
        await there.turn([*SOME, tool("newer")])
        assert (await until(events, "change"))[2]["generation"] == there.gateway.catalog.snapshot.generation
    await there.gateway.admin.approvals.unblock("s:t05", "operator")
    async with asyncio.timeout(60), aclosing(events_of(rest, "events", {"last-event-id": first})) as events:
        assert (await until(events, "activity"))[1] == second  # its own, though another comes with it
        assert int((await until(events, "activity"))[1]) > int(second)
    async with asyncio.timeout(60), aclosing(events_of(rest, f"events?after={first}&kind=search")) as events:
        await rest.get("search?q=thing")
        assert (await until(events, "activity"))[2]["kind"] == "search"


async def test_events_are_the_operators_alone(there: Opened, rest: httpx2.AsyncClient) -> None:
    """And say what is wrong with a question before they begin."""
    assert (await rest.get("events", headers={"authorization": "Bearer x"})).status_code == 401
    assert (await rest.get("events?kind=nothing")).status_code == 400
    assert (await rest.get("events?after=-1")).status_code == 400


async def test_open_streams_end_with_the_gateway(tmp_path: Path) -> None:
    """In good order: the reader sees the end, not a broken connection."""
    reading: asyncio.Task[list[Any]]
    async with opened(tmp_path, [tool("a")]) as there:
        headers = {"authorization": f"Bearer {operator_token(there.gateway.settings)}"}
        client = plain_client(base_url=f"{there.base}/api/v1/", headers=headers, timeout=60)
        begun = asyncio.Event()

        async def read() -> list[Any]:
            found = []
            async with client:
                async for event in events_of(client, "events"):
                    found.append(event[0])
                    begun.set()
            return found

        reading = asyncio.create_task(read())
        await begun.wait()
    async with asyncio.timeout(60):
        assert (await reading)[0] == "change"


@pytest.mark.long  # a third of a second of processor time
async def test_a_reader_that_never_reads_does_not_hold_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its stream is cut off; the server's grace is for those who read."""
    is_full, pause = asyncio.Event(), BoundedProtocol.pause_writing

    def noted(self: BoundedProtocol) -> None:
        pause(self)
        is_full.set()

    monkeypatch.setattr(BoundedProtocol, "pause_writing", noted)
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        reader.setblocking(False)
        async with asyncio.timeout(60), opened(tmp_path, [tool("a")]) as there:
            long = Activity("search", "local", "q", "ok", 1.0, 1.0, {"text": "x" * 10_000})
            await there.gateway.catalog.append_activity(
                [structs.replace(long, id=str(number)) for number in range(2_000)], limit_rows=0
            )
            url = httpx2.URL(there.base)
            await asyncio.get_running_loop().sock_connect(reader, (url.host, url.port))
            head = f"GET /api/v1/events?after=0 HTTP/1.1\r\nHost: {url.host}:{url.port}\r\n"
            token = f"Authorization: Bearer {operator_token(there.gateway.settings)}\r\n\r\n"
            await asyncio.get_running_loop().sock_sendall(reader, (head + token).encode())
            await is_full.wait()
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_change_is_told_that_comes_while_records_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more records follow at once, or the look for them has just ended."""
    changes = Changes()
    looks = iter((True, True, False))

    async def page(*_: object, after: int) -> tuple[list[SimpleNamespace], int | None, int]:
        if has_more := next(looks, None):
            changes.announce()
        stored = SimpleNamespace(place=after + 1, activity={"at": after})
        return [stored], after + 1 if has_more else None, after + 1

    gateway: Any = SimpleNamespace(
        base=SimpleNamespace(changes=changes), catalog=SimpleNamespace(snapshot=SimpleNamespace(generation=7))
    )
    monkeypatch.setattr(activity, "read_stored_page", page)
    monkeypatch.setattr(activity, "view_record", lambda record: record)
    async with asyncio.timeout(20), aclosing(activity._stream_events(gateway, ActivityFilter(), 1)) as told:
        lines = [await anext(told) for _ in range(5)]
    assert [b"event: change" in line for line in lines] == [True, False, False, False, True]


async def test_a_stream_that_a_filter_leaves_nothing_looks_at_no_record_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or each look would take longer than the one before, until none ends in time."""
    changes, places = Changes(), list[int]()

    async def page(*_: object, after: int) -> tuple[list[SimpleNamespace], int | None, int]:
        places.append(after)
        changes.announce()
        return [], None, after + 5

    gateway: Any = SimpleNamespace(
        base=SimpleNamespace(changes=changes), catalog=SimpleNamespace(snapshot=SimpleNamespace(generation=7))
    )
    monkeypatch.setattr(activity, "read_stored_page", page)
    async with (
        asyncio.timeout(20),
        aclosing(activity._stream_events(gateway, ActivityFilter(kind="session"), 1)) as told,
    ):
        for _ in range(3):
            await anext(told)
    assert places == [1, 6]


async def events_of(
    client: httpx2.AsyncClient, address: str, headers: dict[str, str] | None = None
) -> AsyncIterator[tuple[str, str, Any]]:
    """Name, id and data of each event."""
    async with client.stream("GET", address, headers=headers) as reply:
        assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/event-stream")
        facts: dict[str, str] = {}
        async for line in reply.aiter_lines():
            name, _, value = line.partition(":")
            if line and name:
                facts[name] = value.strip()
            elif not line and "event" in facts:
                yield facts["event"], facts.get("id", ""), json.loads(facts["data"])
                facts = {}


async def until(events: AsyncIterator[tuple[str, str, Any]], name: str) -> tuple[str, str, Any]:
    """The next event of that name."""
    while (event := await anext(events))[0] != name:
        pass
    return event
