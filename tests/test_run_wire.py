"""What looks at the headers that servers are sent finds what is nothing to them."""

from collections.abc import Iterator

import pytest
import run_wire
from starlette.responses import Response

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What other tests have said and seen stays theirs."""
    for name, empty in (("strays", []), ("configured", set()), ("sent_by_agents", set())):
        monkeypatch.setattr(run_wire, name, empty)
    yield


async def sent(**headers: str) -> list[str]:
    """What is found in one request with these headers."""
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    told = []

    async def tell(message: object) -> None:
        told.append(message)

    async def listen() -> object:
        raise AssertionError("nobody reads")

    await run_wire.Watched(Response("served"))({"type": "http", "headers": lines}, listen, tell)
    assert len(told) == 2
    return run_wire.strays


async def test_a_header_that_is_not_on_the_list_is_found() -> None:
    """Whatever it is called; those of the protocol, and of a tool's own parameters, are on it."""
    assert await sent(host="h", mcp_param_region="eu", authorization="Bearer its-own-token") == []
    assert await sent(x_any="1", cookie="a=b") == [
        f"a server was sent the header '{name}'" for name in ("x-any", "cookie")
    ]


async def test_what_is_configured_for_a_server_may_be_sent_with_its_own_value_only() -> None:
    """An agent's header of the same name is none."""
    run_wire.configured_with({"X-Team": "lighthouse"})
    assert await sent(x_team="lighthouse") == []
    assert len(await sent(x_team="private-team")) == 1


async def test_what_an_agent_sent_is_found_in_whatever_header_it_comes() -> None:
    """Its token in `authorization`, which a server may be sent otherwise; what every client says is nobody's own."""
    run_wire.came_from_agent({"Authorization": "Bearer token-of-an-agent", "Accept": "application/json"}.items())
    assert await sent(accept="application/json", authorization="Bearer token-of-the-server") == []
    assert len(await sent(authorization="Bearer token-of-an-agent")) == 1
    assert len(await sent(traceparent="token-of-an-agent")) == 2
