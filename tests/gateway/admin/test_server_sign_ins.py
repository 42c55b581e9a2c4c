"""Sign-ins at servers that are begun at the page."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from smart_mcp_proxy.errors import CatalogError, ConflictError, QuarantinedError
from smart_mcp_proxy.gateway.admin import server_sign_ins
from smart_mcp_proxy.gateway.admin.server_sign_ins import ServerSignIns
from smart_mcp_proxy.servers import ServerConfig

pytestmark = pytest.mark.anyio

LIMIT_S = 5


class Asking:
    """Sends each person to an address of its own and waits for them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def authorize_server(self, config: ServerConfig, browser: Any) -> None:
        """Asks."""
        self.asked.append(config.url or "")
        await browser.ask(f"https://provider.example/{len(self.asked)}", "state")


class LostProgress:
    """A store that cannot be used."""

    holder = "this"

    async def find(self, *_: Any) -> None:
        """Fails."""
        raise CatalogError("The database is lost.")

    tell = leave = left = find


def of(
    asking: Asking, url: str = "https://web.example/mcp", *, quarantined: bool = False, progress: Any = None
) -> ServerSignIns:
    """Sign-ins at a server `web`."""
    servers = {"web": ServerConfig(name="web", transport="http", url=url, oauth={}, quarantined=quarantined)}
    return ServerSignIns(asking, lambda: servers, {}, lambda: None, lambda record: None, progress)  # type: ignore[arg-type]


async def test_a_sign_in_goes_on_without_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown and finished by the process that began it."""
    monkeypatch.setattr(server_sign_ins, "_LOOK_S", 0.0)
    sign_ins = of(Asking(), progress=LostProgress())
    assert (await sign_ins.of("web")).state == "none"
    async with asyncio.timeout(LIMIT_S):
        begun = await sign_ins.begin("web")
        assert begun.state == "waiting" and await sign_ins.of("web") == begun
        with pytest.raises(ConflictError):
            await sign_ins.take("web", "http://127.0.0.1:1/callback?code=x&state=y")
        await sign_ins.take("web", "http://127.0.0.1:1/callback?code=x&state=state")
        while (await sign_ins.of("web")).state == "waiting":
            await asyncio.sleep(0)
        assert (await sign_ins.of("web")).state == "done"
    await sign_ins.close()


async def test_an_address_is_not_called_wrong_while_the_store_is_lost() -> None:
    """Another process may well wait for it: it can be given again."""
    sign_ins = of(Asking(), progress=LostProgress())
    with pytest.raises(CatalogError, match="The database is lost"):
        await sign_ins.take("web", "http://127.0.0.1:1/callback?code=x&state=state")


async def test_a_sign_in_that_is_begun_twice_at_once_is_begun_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A double click: the one that is replaced before it could start holds up nobody and ends nothing later."""

    async def at_once(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    monkeypatch.setattr(server_sign_ins.to_thread, "run_sync", at_once)
    asking = Asking()
    sign_ins = of(asking)
    async with asyncio.timeout(LIMIT_S):
        first, second = await asyncio.gather(sign_ins.begin("web"), sign_ins.begin("web"))
    assert (first.state, second.state) == ("none", "waiting")
    assert await sign_ins.of("web") == second and len(asking.asked) == 1
    await sign_ins.close()


async def test_a_server_in_quarantine_is_asked_for_nothing() -> None:
    """An agent may have written its address, with a secret of the user's in it."""
    asking = Asking()
    sign_ins = of(asking, "https://web.example/${env:TOKEN}", quarantined=True)
    with pytest.raises(QuarantinedError):
        await sign_ins.begin("web")
    assert asking.asked == []
