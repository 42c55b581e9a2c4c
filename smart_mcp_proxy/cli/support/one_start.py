"""Connect to a server once, for its log lines alone: no gateway, no retry, nothing stored."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.gateway.shared.shared_sign_ins import open_sign_ins
from smart_mcp_proxy.models import PENDING_STATES, Era, ServerStatus
from smart_mcp_proxy.servers import (
    IsolationMode,
    ServerConfig,
    find_config,
    has_process_here,
    list_guarded_places,
    with_inherited,
)
from smart_mcp_proxy.settings import Settings, environment
from smart_mcp_proxy.upstream import (
    SHELTER,
    Connector,
    Fleet,
    OnEvent,
    Shelter,
    TlsContext,
    UpstreamSession,
    mark_environment,
)

_ANSWER_S: Final = 30.0
"""As long as one listing may take. Source: docs/design/limits.md#listing"""


def start_environment(settings: Settings) -> Mapping[str, str]:
    """Environment for child servers, with the gateway-loop marker.

    Raises:
        ConfigError: The configured server file does not exist.
    """
    file = None if settings.config_json is not None else find_config(settings, Path.cwd())
    return mark_environment(environment(), file)


async def read_start_log(
    settings: Settings, config: ServerConfig, mode: IsolationMode, count: int, shelter: Shelter | None = None
) -> tuple[list[str], ServerStatus]:
    """Start a server once; returns the last lines of its log and its final state.

    A server that is disabled or waits for approval is left alone.

    Args:
        settings: Whose data directory holds the sign-ins.
        config: The server, not expanded.
        mode: How its process is held.
        count: At most so many lines.
        shelter: Holds its private folder, in the data directory if None; without its caches a start takes longer.
    """
    if has_process_here(config):
        config = replace(config, isolation=replace(config.isolation, mode=mode))
    environ = start_environment(settings)
    came = asyncio.Event()
    found: list[ServerStatus] = []

    def note(status: ServerStatus) -> None:
        if status.state not in PENDING_STATES and not came.is_set():
            found.append(status)
            came.set()

    tls = TlsContext(environ)
    wait_s = _ANSWER_S if shelter is None else config.limits.init_s
    shelter = shelter or Shelter(settings.data_dir / SHELTER, list_guarded_places(settings, Path.cwd()))
    async with (
        open_sign_ins(settings, tls) as sign_ins,
        Connector(settings.max_message_bytes, sign_ins, tls, shelter=shelter) as dialer,
    ):
        # Tools are never listed here.
        fleet = Fleet(environ=environ, on_change=note, on_tools_changed=lambda _: None, open_session=_OneTry(dialer))
        fleet.guarded = shelter.guarded
        await fleet.apply(with_inherited({config.name: config}, settings.inherit_env))
        (upstream,) = fleet
        try:
            await fleet.start()
            await asyncio.wait_for(came.wait(), wait_s)
        except TimeoutError:
            found.append(upstream.status)
        finally:
            await fleet.close()
        return upstream.logs(count), found[0]


class _OneTry:
    """Opens one session and refuses a second; a child is started once, not again for the other era.

    Args:
        dialer: Opens it.
    """

    def __init__(self, dialer: Connector) -> None:
        self._dialer = dialer
        self._is_used = False

    async def __call__(
        self, config: ServerConfig, *, environ: Mapping[str, str], era: Era | None, on_event: OnEvent, **options: Any
    ) -> UpstreamSession:
        """A session with the server; see `OpenSession`."""
        if self._is_used:
            raise UpstreamError(
                f"Server '{config.name}' was tried once.", hint="Run the command again for one more try."
            )
        self._is_used = True
        # With `initialize` first, a child that ends is not started once more without the probe of the modern era; one
        # that speaks no other era refuses, and is probed then.
        first: Era | None = "handshake" if config.transport == "stdio" else era
        return await self._dialer(config, environ=environ, era=first, on_event=on_event, **options)
