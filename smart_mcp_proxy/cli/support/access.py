"""Access to a gateway for one command: a running one, else a local one opened for it."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from smart_mcp_proxy.cli.support.api import Api, open_running, read_config, tell_other_gateway
from smart_mcp_proxy.cli.support.output import say
from smart_mcp_proxy.errors import CatalogError, ConfigError
from smart_mcp_proxy.servers import Profile, ServerConfig, load_configured_servers
from smart_mcp_proxy.settings import Settings

if TYPE_CHECKING:
    from smart_mcp_proxy.gateway import Gateway


def _is_never(_: "Gateway") -> bool:
    return False


async def record_access(settings: Settings, change: str, person: str, server: str) -> None:
    """Record a sign-in that this process began or ended; it holds also where it cannot be recorded."""
    # Here and not above: --help has to be quick.
    from smart_mcp_proxy.catalog import open_catalog
    from smart_mcp_proxy.gateway.activity.access import build_access_activity
    from smart_mcp_proxy.gateway.observability.export import open_export

    record = build_access_activity(change, person, server, server=server, by="operator")
    try:
        async with open_catalog(settings) as catalog, open_export(settings.activity_export) as export:
            await catalog.append_activity([record], settings.activity_rows)
            if export is not None:
                export([record])
    except (CatalogError, ConfigError) as error:
        say(f"This is not in the activity log: {error.message}", style="yellow")


def has_listed(names: Iterable[str]) -> "Callable[[Gateway], bool]":
    """Whether the servers of these tools, each with a digest or without, are listed in this session."""

    def is_listed(gateway: "Gateway") -> bool:
        records = [gateway.visible.find(name.partition("@sha256:")[0]) for name in names]
        return all(record is not None and gateway.lists.tool_lists.is_fresh(record.key.server) for record in records)

    return is_listed


@asynccontextmanager
async def open_api(
    settings: Settings,
    servers: Mapping[str, ServerConfig] | None = None,
    *,
    is_stored_enough: "Callable[[Gateway], bool]" = _is_never,
    is_enough: "Callable[[Gateway], bool]" = _is_never,
    lists_refused: bool = False,
) -> AsyncIterator[Api]:
    """The newest gateway that runs on the data directory, else one of our own while open.

    Args:
        settings: Whose data directory and servers.
        servers: The configured servers, where they have been read already.
        is_stored_enough: Whether what the catalog holds will do, without any server being connected.
        is_enough: Whether enough servers are listed; otherwise all are waited for.
        lists_refused: See `read_config`.

    Raises:
        ConfigError: There is no running gateway, and no servers to open one for.
    """
    async with open_running(settings) as running:
        if running is not None:
            yield running
            return
    profiles: Mapping[str, Profile] = {}
    if servers is None:
        file = await read_config(settings, lists_refused=lists_refused)
        servers, profiles = file.servers, file.profiles
    # Here and not above: importing the gateway takes a second, and a running one answers in a tenth of that.
    from smart_mcp_proxy.cli.support.local_gateway import open_own

    enough = {"is_stored_enough": is_stored_enough, "is_enough": is_enough}
    async with open_own(settings, servers, profiles, **enough) as api:
        yield api


@asynccontextmanager
async def open_at_rest(settings: Settings) -> AsyncIterator[Api]:
    """The newest gateway that runs on the data directory, else one of our own that connects to no server."""
    async with open_running(settings) as running:
        if running is not None:
            yield running
            return
    tell_other_gateway(settings)
    # Here and not above: see `open_api`.
    from smart_mcp_proxy.cli.support.local_gateway import open_local_api
    from smart_mcp_proxy.cli.support.one_start import start_environment
    from smart_mcp_proxy.gateway import open_gateway

    file = await to_thread.run_sync(load_configured_servers, settings, Path.cwd())
    kept = settings.model_copy(update={"reset_data": False})
    async with (
        open_gateway(
            kept, file.servers, environ=start_environment(settings), profiles=file.profiles, serves=False
        ) as gateway,
        open_local_api(gateway, "stored") as api,
    ):
        yield api
