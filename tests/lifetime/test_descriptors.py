"""A gateway that may have no more files and connections open: it says so, goes on, and is whole again afterwards."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress

import pytest
from two_servers import Front, opened_front
from worlds import error_of, text_of, until

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

CROWD = 100
ROOM = 40
"""Descriptors between what an idle gateway has open and its limit."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests here: each leaves the gateway whole."""
    return "asyncio"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    """A gateway that has all descriptors it wants between the tests."""
    folder = tmp_path_factory.mktemp("front")
    async with opened_front(folder) as front:
        yield front
    assert "Traceback" not in (folder / "log").read_text()


async def test_a_crowd_of_clients_leaves_descriptors_for_servers(gateway: Front) -> None:
    """F58: those beyond are told so; who was there is served, and a server that dies is started again."""
    most, refusals = gateway.open_files() + ROOM, gateway.log().count("clients that connect are refused")
    with gateway.limited(most), ExitStack() as crowd:
        used_s = gateway.processor_s()
        for _ in range(CROWD):
            last = crowd.enter_context(gateway.connection())
        said = await asyncio.to_thread(last.recv, 10_000)
        assert said.startswith(b"HTTP/1.1 503 ")
        assert f"as it may, {most}. Try again later".encode() in said
        assert await gateway.healthy() == 503
        for server in ("up", "web"):
            assert text_of(await gateway.echo(server)) == "said a"
        await gateway.lose(gateway.up)
        await gateway.back("up")
        assert gateway.processor_s() - used_s < 5, "it does not spin"
    await until(lambda: gateway.open_files() < most - ROOM // 2)
    assert await gateway.healthy() == 200
    assert gateway.log().count("clients that connect are refused") == refusals + 1


async def test_without_a_descriptor_left_calls_say_so_and_later_all_is_well(gateway: Front) -> None:
    """F58: a server that dies then is not reached; no call of it was sent, and it is back without a restart."""
    with gateway.limited(3), ExitStack() as crowd:
        for server in ("up", "web"):
            assert text_of(await gateway.echo(server)) == "said a"
        crowd.enter_context(gateway.connection())
        await gateway.lose(gateway.up)
        while "may, 3." not in (error := error_of(await gateway.echo("up")))["message"]:
            await asyncio.sleep(0.05)
        assert error["delivery"] == "not_sent"
        assert "ulimit -n" in error["hint"]
        assert (await gateway.client.call("retrieve_tools", {"query": "does echo"}))["structuredContent"]["tools"]
    await gateway.back("up")
    assert await gateway.healthy() == 200


async def test_clients_that_connect_while_all_descriptors_are_in_use_are_let_go(gateway: Front) -> None:
    """F58: the event loop has one in reserve for that; it does not spin, and who was there is served."""
    with ExitStack() as crowd:
        before = gateway.open_files()
        for _ in range(ROOM // 4):
            early = crowd.enter_context(gateway.connection())
            early.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await asyncio.to_thread(early.recv, 10_000)
        with gateway.limited(gateway.highest_file() + 1):
            used_s = gateway.processor_s()
            late = [crowd.enter_context(gateway.connection()) for _ in range(ROOM // 2)]
            for one in late:
                with suppress(ConnectionError):
                    assert await asyncio.to_thread(one.recv, 1) == b""
            for server in ("up", "web"):
                assert text_of(await gateway.echo(server)) == "said a"
            assert gateway.processor_s() - used_s < 2
    await until(lambda: gateway.open_files() <= before)
    assert await gateway.healthy() == 200
