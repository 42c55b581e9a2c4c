"""A client on stdio, joined to the gateway of all, or told why it has one of its own."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from smart_mcp_proxy.desktop.alone import find_reason_to_stay_alone

if TYPE_CHECKING:
    from smart_mcp_proxy.desktop.waiting import Alone
    from smart_mcp_proxy.greeting.greeter import Handed


def serve_through_door(words: list[str], environ: Mapping[str, str]) -> "tuple[int | None, Handed | None]":
    """Serve the client on stdin and stdout through the gateway of all.

    Args:
        words: The command line, which serves.
        environ: The environment.

    Returns:
        The exit status; None where it is to be served by a gateway in this process, then with what it has said.
    """
    why = find_reason_to_stay_alone(environ, words)
    if why is not None:
        _say(why)
        return None, None
    # Here and not above: a client that is served alone is greeted without them.
    from smart_mcp_proxy.desktop.door import StdioDoor
    from smart_mcp_proxy.desktop.joining import Place
    from smart_mcp_proxy.desktop.places import describe_failure, read_message_limit

    try:
        place = Place(words, environ)
        limit_bytes = read_message_limit(environ)
        door = StdioDoor(place.connect, place.hello, place.tell_variables, lambda: _greet(words, environ), limit_bytes)
        alone = door.run()
    except OSError as exc:
        _say(describe_failure(exc))
        return None, None
    if alone is None:
        return (128 + door.signal if door.signal == 2 else 0), None
    _say(alone.why)
    return None, _hand(alone)


def _say(why: str) -> None:
    if why:
        sys.stderr.write(f"This client has a gateway of its own: {why}.\n")


def _greet(words: list[str], environ: Mapping[str, str]) -> Any:
    """The answers of the last start, or of the first one ever; None where they are not known."""
    # Here and not above: a gateway that runs answers itself.
    from smart_mcp_proxy.greeting.answers import Answers
    from smart_mcp_proxy.greeting.record import GreetingRecord

    if (found := GreetingRecord(words, environ).load()) is None:
        from smart_mcp_proxy.greeting.first import first_answers

        found = first_answers(words, environ)
    return None if found is None else Answers(*found)


def _hand(alone: "Alone") -> "Handed":
    from smart_mcp_proxy.greeting.answers import BacklogLine, read_request
    from smart_mcp_proxy.greeting.greeter import Handed

    kept = [BacklogLine(each.line, read_request(each.line), each.said) for each in alone.queued]
    return Handed(kept, alone.rest, alone.unsent)
