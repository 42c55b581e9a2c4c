"""Ended connections of the SDK: freed with the last reference to them, without a collection.

Private names used: `ServerRunner._on_request`, `ServerRunner._on_notify`.
"""

from typing import Any

from mcp.server.runner import ServerRunner
from mcp.shared.dispatcher import OnNotify, OnRequest


def _get_request_handler(runner: ServerRunner[Any]) -> OnRequest:
    return runner._on_request


def _get_notification_handler(runner: ServerRunner[Any]) -> OnNotify:
    return runner._on_notify


def free_ended_connections() -> None:
    """Stop each connection's runner from referring to itself.

    The SDK keeps the runner's bound methods on the runner. It then lives until a collection of the oldest generation,
    and with it all that belonged to the connection: 14 KB for each session that was opened and never ended.
    """
    for name, method in (("on_request", _get_request_handler), ("on_notify", _get_notification_handler)):
        setattr(ServerRunner, name, property(method))
