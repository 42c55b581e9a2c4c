"""Sessions are opened by the table of transports."""

from typing import Any, get_args

import pytest

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import Transport
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.upstream.dial import TRANSPORTS, Connector
from smart_mcp_proxy.upstream.opening import Opening

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
    seen: list[Opening] = []

    async def refuse(opening: Opening) -> Any:
        seen.append(opening)
        raise UpstreamError("no")

    monkeypatch.setitem(TRANSPORTS, "sse", refuse)  # type: ignore[index]  # a table that only tests write to
    async with Connector(1000) as dialer:
        with pytest.raises(UpstreamError, match="no"):
            config = ServerConfig("s", "sse", url="http://127.0.0.1:1/sse")
            await dialer(config, environ={"A": "b"}, era=None, on_event=lambda _: None)
    assert [(each.config.name, each.max_message_bytes, each.environ) for each in seen] == [("s", 1000, {"A": "b"})]
