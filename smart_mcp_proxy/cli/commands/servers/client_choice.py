"""Clients that a command line names, and the files that are meant."""

import os
from difflib import get_close_matches
from pathlib import Path

from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step
from smart_mcp_proxy.cli.support.report import GatewayAddress
from smart_mcp_proxy.client_files import KNOWN_CLIENTS, Door, KnownClient, Places
from smart_mcp_proxy.desktop.spelling import find_program
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers import find_config, find_variables, load_configured_servers
from smart_mcp_proxy.settings import Settings, environment

_CONFIG_NAME = "mcp_config.json"


def places_here() -> Places:
    """The places of the clients' files for this user, in this folder."""
    return Places(environment(), Path.cwd())


def select_clients(names: tuple[str, ...], places: Places, *, is_all: bool, is_project: bool) -> list[KnownClient]:
    """The clients of these names, or all that are installed and can keep servers there.

    Raises:
        UsageError: A name is not that of a client, or both are given.
    """
    if names and is_all:
        raise UsageError("Clients are named, and --all is given.", hint="Use one of the two.")
    if is_all:
        return [one for one in KNOWN_CLIENTS if places.is_installed(one) and (one.project or not is_project)]
    known = {client.name: client for client in KNOWN_CLIENTS}
    chosen = {}
    for name in names:
        plain = name.lower().replace(" ", "-")
        found = known.get(plain) or next((one for one in KNOWN_CLIENTS if one.title.lower() == name.lower()), None)
        if found is None:
            near = get_close_matches(plain, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
            raise add_next_step(
                UsageError(f"{name!r} is not a client that is known here.", hint=hint), "mcpproxy connect"
            )
        chosen[found.name] = found
    return list(chosen.values())


def client_path(client: KnownClient, places: Places, *, is_project: bool) -> Path:
    """The file of a client that is meant.

    Raises:
        UsageError: The project's is meant, and the client has none.
    """
    if not is_project:
        return places.user_file(client)
    found = places.project_file(client)
    if found is None:
        raise UsageError(f"{client.title} keeps no servers in a project.", hint="Leave --project out.")
    return found


def choose_door(settings: Settings, *, is_http: bool, url: str | None) -> Door:
    """The way in which clients are to reach the gateway: a start of their own, or one that runs.

    Raises:
        ConfigError: The servers are only in this shell's environment, which a client does not have.
    """
    program = tuple(find_program())
    if url is not None or is_http:
        address = GatewayAddress(settings.host, settings.port, is_sse=False, has_token=settings.auth_token is not None)
        return Door(program, url=url or address.url, has_token=settings.auth_token is not None)
    if settings.config_json is not None:
        raise ConfigError(
            "The servers come from MCPPROXY_CONFIG_JSON, which a client that starts the gateway does not have.",
            hint="Put them into a file, or connect with --http.",
        )
    env = {}
    default = Settings()
    if settings.data_dir.absolute() != default.data_dir.absolute():
        env["MCPPROXY_DATA_DIR"] = str(settings.data_dir.absolute())
    found = find_config(settings, Path.cwd())
    if found is not None and found.absolute() != (settings.data_dir / _CONFIG_NAME).absolute():
        env["MCPPROXY_CONFIG_PATH"] = os.path.abspath(found)
    servers = load_configured_servers(settings, Path.cwd()).servers.values()
    named = {name for each in servers if not each.is_off for name in find_variables(each)}
    return Door(program, env, tuple(sorted(named)))
