"""Servers of which clients that share a gateway get a process each, unless their entry says otherwise."""

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from smart_mcp_proxy.desktop.present import JoinedClient
from smart_mcp_proxy.servers.config import ServerConfig
from smart_mcp_proxy.servers.expand import expand, find_variables, uses_workspace
from smart_mcp_proxy.servers.known import find_known_server


def explain_separation(config: ServerConfig) -> str:
    """Why clients get a process each, in words; empty where they share one."""
    if config.transport != "stdio" or config.is_off or "connection" in config.raw:
        return ""
    if uses_workspace(config):
        return "depends on the working directory"
    return find_known_server(config.command, config.args).separation


def expand_for_client(config: ServerConfig, environ: Mapping[str, str], client: JoinedClient) -> ServerConfig:
    """Expand an entry with the working directory and the variables of one client; see `expand()`.

    Of the variables that the entry names it gets the client's own: the gateway's may be another client's.
    """
    named, folder = find_variables(config), Path(client.directory)
    others = {name: text for name, text in environ.items() if name not in named}
    expanded = expand(config, {**others, **client.variables}, workspace=folder)
    return replace(expanded, cwd=str(folder / (expanded.cwd or ""))) if config.transport == "stdio" else expanded


def with_own_processes(servers: Mapping[str, ServerConfig]) -> dict[str, ServerConfig]:
    """The servers, those that clients must not share with a connection for each."""
    return {
        name: replace(config, connection="per_client") if explain_separation(config) else config
        for name, config in servers.items()
    }
