"""Sessions are opened by the table of transports."""

from typing import Any, get_args

import pytest

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import Transport
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.upstream.fleet import TRANSPORTS, Connector
from smart_mcp_proxy.upstream.opening import SessionOptions

pytestmark = pytest.mark.anyio


def test_every_transport_that_an_entry_can_name_is_in_the_table() -> None:
    """None is a word without a function behind it."""
    assert set(TRANSPORTS) == set(get_args(Transport))


@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
def test_an_entry_may_name_each_transport(transport: str) -> None:
    """By the word of the table."""
    entry: dict[str, Any] = {"type": transport, "url": "http://127.0.0.1:1/x"}
    if transport == "stdio":
        entry = {"type": transport, "command": "x"}
    assert parse_entry("s", entry)[0].transport == transport


async def test_a_row_is_all_that_a_transport_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of the server's transport gets the limit, the environment and the server."""
    seen: list[SessionOptions] = []

    async def refuse(opening: SessionOptions) -> Any:
        seen.append(opening)
        raise UpstreamError("no")

    monkeypatch.setitem(TRANSPORTS, "sse", refuse)  # type: ignore[index]  # a table that only tests write to
    async with Connector(1000) as dialer:
        with pytest.raises(UpstreamError, match="no"):
            config = ServerConfig("s", "sse", url="http://127.0.0.1:1/sse")
            await dialer(config, environ={"A": "b"}, era=None, on_event=lambda _: None)
    assert [(each.config.name, each.max_message_bytes, each.environ) for each in seen] == [("s", 1000, {"A": "b"})]


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_an_address_that_refuses_the_newer_transport_is_tried_as_the_older_one(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Where that one answers it is used; where it does not, what is said is about the address as configured."""
    tried: list[str] = []
    config = ServerConfig("s", "http", url="http://127.0.0.1:1/x")

    async def refuse(opening: SessionOptions) -> Any:
        tried.append(opening.config.transport)
        raise UpstreamError("refused", data={"http_status": status})

    async def answer(opening: SessionOptions) -> Any:
        tried.append(opening.config.transport)
        return "a session"

    monkeypatch.setitem(TRANSPORTS, "http", refuse)  # type: ignore[index]  # a table that only tests write to
    monkeypatch.setitem(TRANSPORTS, "sse", answer)  # type: ignore[index]  # likewise
    async with Connector(1000) as dialer:
        assert await dialer(config, environ={}, era=None, on_event=lambda _: None) == "a session"  # type: ignore[comparison-overlap]
        monkeypatch.setitem(TRANSPORTS, "sse", refuse)  # type: ignore[index]  # likewise
        with pytest.raises(UpstreamError, match="refused"):
            await dialer(config, environ={}, era=None, on_event=lambda _: None)
    assert tried == ["http", "sse", "http", "sse"]


@pytest.mark.parametrize("status", [0, 401, 403, 500])
async def test_other_refusals_are_not_taken_for_an_older_server(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """A sign-in, a failure, or nobody there."""

    async def refuse(opening: SessionOptions) -> Any:
        assert opening.config.transport == "http"
        raise UpstreamError("refused", data={"http_status": status} if status else None)

    monkeypatch.setitem(TRANSPORTS, "http", refuse)  # type: ignore[index]  # a table that only tests write to
    monkeypatch.setitem(TRANSPORTS, "sse", refuse)  # type: ignore[index]  # likewise
    async with Connector(1000) as dialer:
        with pytest.raises(UpstreamError, match="refused"):
            config = ServerConfig("s", "http", url="http://127.0.0.1:1/x")
            await dialer(config, environ={}, era=None, on_event=lambda _: None)
