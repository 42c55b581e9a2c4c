"""Circles among objects of the SDK, broken so that a session is freed at its end.

The collector of a serving process does not look at all objects again, see web/collector.py.

Private names used: `ServerRunner._on_request`, `ServerRunner._on_notify`.
"""

from operator import attrgetter

from mcp.server.runner import ServerRunner


def free_ended_connections() -> None:
    """Stop each connection's runner from referring to itself.

    The SDK keeps the runner's bound methods on the runner. It then lives until a collection of the oldest generation,
    and with it all that belonged to the connection: 14 KB for each session that was opened and never ended.
    """
    for name, own in (("on_request", "_on_request"), ("on_notify", "_on_notify")):
        setattr(ServerRunner, name, property(attrgetter(own)))
