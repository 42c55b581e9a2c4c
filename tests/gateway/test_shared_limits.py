"""Limits of calls that gateways on one store keep together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway_fakes import config
from pydantic import SecretStr

from smart_mcp_proxy.gateway import Gateway, app, open_gateway
from smart_mcp_proxy.servers import ServerLimits
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio


class Place:
    """A store, and the gateways that are opened on it."""

    def __init__(self, data_dir: Path, url: str | None) -> None:
        self._data_dir = data_dir
        self._url = None if url is None else SecretStr(url)
        self._number = 0

    def opened(self, *servers: str, serves: bool = True) -> AbstractAsyncContextManager[Gateway]:
        """A gateway with servers of these names, disabled ones, that take six calls at a time each."""
        self._number += 1
        data_dir = self._data_dir if self._url is None else self._data_dir / str(self._number)
        settings = Settings(data_dir=data_dir, database_url=self._url, in_flight=30)
        made = {name: config(name, limits=ServerLimits(in_flight=6), disabled=True) for name in servers}
        return open_gateway(settings, made, environ={}, serves=serves)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Gateways in one data directory, or in data directories of their own on one database."""
    if request.param == "sqlite":
        return Place(tmp_path, None)
    postgres = request.getfixturevalue("postgres")
    return Place(tmp_path, postgres.url(postgres.new_database()))


@asynccontextmanager
async def next_shares(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Ends when the gateway has shared its limits anew after what is done inside."""
    shared, divide = asyncio.Event(), gateway.lists.admission.divide

    def divided(others: Any) -> None:
        divide(others)
        shared.set()

    yield
    monkeypatch.setattr(gateway.lists.admission, "divide", divided)
    with anyio.fail_after(20):
        for _ in range(2):  # a heartbeat may be under way already
            shared.clear()
            await shared.wait()


def shares(gateway: Gateway, server: str) -> tuple[float, float]:
    """Calls that may be in flight: over all servers, and of one."""
    return gateway.lists.admission.places.most, gateway.lists.admission.places.get_server_limits(server)[0]


async def test_gateways_share_limits_as_they_come_and_go(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their heartbeats; a server's limit is shared by those that have it, and one alone has all."""
    monkeypatch.setattr(app, "HEARTBEAT_S", 0.05)
    async with place.opened("both", "mine") as one:
        assert shares(one, "both") == (30, 6)
        async with next_shares(one, monkeypatch):
            two = await (second := place.opened("both")).__aenter__()
            assert shares(two, "both") == (15, 3)
        assert (shares(one, "both"), shares(one, "mine")) == ((15, 3), (15, 6))
        assert [found.pid for found in one.status().gateways] == [found.pid for found in two.status().gateways]
        async with next_shares(one, monkeypatch):
            await second.__aexit__(None, None, None)
        assert shares(one, "both") == (30, 6)


async def test_a_command_takes_no_share(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens a gateway for a moment; what it calls itself is bound by what the others leave."""
    monkeypatch.setattr(app, "HEARTBEAT_S", 0.05)
    async with place.opened("both") as one:
        async with next_shares(one, monkeypatch):
            command = await (opened := place.opened("both", serves=False)).__aenter__()
            assert shares(command, "both") == (15, 3)
        assert shares(one, "both") == (30, 6)
        assert len(command.status().gateways) == 1
        await opened.__aexit__(None, None, None)
