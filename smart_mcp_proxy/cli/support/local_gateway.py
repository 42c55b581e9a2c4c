"""A gateway of our own, open as long as a command needs it, behind the same REST as a running one."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import httpx2

from smart_mcp_proxy.cli.support.api import Api, Origin
from smart_mcp_proxy.cli.support.one_start import start_environment
from smart_mcp_proxy.cli.support.output import say
from smart_mcp_proxy.cli.support.wait_ready import SETTLE_S, settle, wait_light_vectors
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.servers import Profile, ServerConfig
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.rest import build_rest_app


@asynccontextmanager
async def open_local_api(gateway: Gateway, origin: Origin = "own") -> AsyncIterator[Api]:
    """The REST of an open gateway in this process."""
    transport = httpx2.ASGITransport(build_rest_app(gateway))
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway/api/v1/", timeout=None) as client:
        yield Api(client, origin)


@asynccontextmanager
async def open_own(
    settings: Settings,
    servers: Mapping[str, ServerConfig],
    profiles: Mapping[str, Profile] = MappingProxyType({}),
    *,
    is_stored_enough: Callable[[Gateway], bool],
    is_enough: Callable[[Gateway], bool],
) -> AsyncIterator[Api]:
    """The REST of a gateway that is opened for the moment.

    Args:
        settings: Its settings, except that nothing is reset: a question must not empty the catalog.
        servers: Its servers.
        profiles: Its profiles.
        is_stored_enough: Whether the stored catalog will do; then no server is connected.
        is_enough: Whether enough servers are listed; otherwise all are waited for.
    """
    kept = settings.model_copy(update={"reset_data": False})
    environ = start_environment(settings)
    async with open_gateway(kept, servers, environ=environ, profiles=profiles, serves=False) as gateway:
        await gateway.lists.index_sync.loaded.wait()
        is_stored = is_stored_enough(gateway)
        if is_stored:
            say(_from_the_store(gateway), style="dim")
        else:
            gateway.start_upstreams()
            await settle(gateway, SETTLE_S, is_enough)
        await wait_light_vectors(gateway)
        async with open_local_api(gateway, "stored" if is_stored else "own") as api:
            yield api


def _from_the_store(gateway: Gateway) -> str:
    enabled = [name for name, config in gateway.visible.servers.items() if not config.is_off]
    unknown = [name for name in enabled if gateway.catalog.last_sync_s(name) is None]
    missing = f" Not listed yet: {', '.join(unknown)}." if unknown else ""
    return f"From the stored catalog.{missing} Add --fresh to connect to the servers first."
