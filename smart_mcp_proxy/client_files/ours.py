"""Entries of the gateway in the words of each client."""

from collections.abc import Mapping
from typing import Any

import msgspec

from smart_mcp_proxy.client_files.clients import KnownClient
from smart_mcp_proxy.errors import RequestError

OUR_NAME = "mcpproxy"
"""Name of our entry in every client."""
TOKEN_VARIABLE = "MCPPROXY_AUTH_TOKEN"
"""Variable that the entries name where a token is needed; the token itself is never written down."""
_PROGRAMS = ("mcpproxy", "smart-mcp-proxy")
_MODULE = "smart_mcp_proxy"


class Door(msgspec.Struct, frozen=True):
    """Way in which a client reaches the gateway.

    Attributes:
        program: Our program, whose path is absolute: what a desktop starts has another PATH than a shell.
        env: Variables that it needs there.
        variables: Names of the user's variables that the server file names, which it has to get as well.
        url: Address of a gateway that runs; empty: the client starts one.
        has_token: Whether that address asks for a token.
    """

    program: tuple[str, ...]
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    variables: tuple[str, ...] = ()
    url: str = ""
    has_token: bool = False


def our_entry(client: KnownClient, door: Door) -> dict[str, Any]:
    """The entry that makes a client use the gateway.

    Raises:
        RequestError: The address asks for a token, and the client can refer to none.
    """
    if door.url and client.url_key:
        return {**client.http, client.url_key: door.url, **_token(client, door), **client.always}
    if door.url:
        _refuse_token(client, door)
    words = [*door.program, *(["attach", door.url] if door.url else ["serve"])]
    if client.is_command_list:
        started: dict[str, Any] = {client.command_key: words}
    else:
        started = {client.command_key: words[0], "args": words[1:]}
    env = dict(door.env)
    if client.passes == "references":
        env |= {name: client.variable.format(name) for name in door.variables}
    elif client.passes == "names" and door.variables:
        started[client.passes_key] = list(door.variables)
    if env:
        started[client.env_key] = env
    return {**client.stdio, **started, **client.always}


def is_ours(name: str, entry: Any) -> bool:
    """Whether an entry of a client leads to this program."""
    if name == OUR_NAME or not isinstance(entry, Mapping):
        return name == OUR_NAME
    command = entry.get("command") or entry.get("cmd")
    words = [*command] if isinstance(command, list) else [command]
    if isinstance(args := entry.get("args"), list):
        words += args
    texts = [word for word in words if isinstance(word, str)]
    return any(word.rpartition("/")[2] in _PROGRAMS for word in texts[:1]) or _MODULE in texts


def _token(client: KnownClient, door: Door) -> dict[str, Any]:
    if not door.has_token:
        return {}
    if client.bearer_key:
        return {client.bearer_key: client.variable.format(TOKEN_VARIABLE) or TOKEN_VARIABLE}
    if not client.variable:
        _refuse_token(client, door)
    return {client.headers_key: {"Authorization": f"Bearer {client.variable.format(TOKEN_VARIABLE)}"}}


def _refuse_token(client: KnownClient, door: Door) -> None:
    """Passes if no token is needed."""
    if door.has_token:
        raise RequestError(
            f"{client.name!r} cannot refer to a token, and the gateway's address asks for one.",
            hint="Let it start the gateway itself, with --stdio.",
        )
