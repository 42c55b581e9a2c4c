"""What a request gets: its good answer, or that of the fault that is switched on, the same on every transport."""

from collections.abc import Iterator

from answers import ANSWERS, STREAMED
from catalogs import CATALOGS, GREETINGS
from server import Ask, dump

__all__ = ["is_streamed", "knows", "replies"]


def knows(fault: str) -> bool:
    """Whether this is a fault of messages, and not one of a transport."""
    return fault in ANSWERS or fault in CATALOGS or fault in GREETINGS


def is_streamed(fault: str) -> bool:
    """Whether the answer has more than one message, or pauses."""
    return fault in STREAMED


def replies(ask: Ask, fault: str) -> Iterator[bytes | float]:
    """Messages as they go on the wire, and pauses in seconds."""
    if fault in ANSWERS:
        yield from ANSWERS[fault](ask)
        return
    held = ask.server.take_held() if ask.stage == "call" else []
    yield from held
    if ask.stage == "list" and fault in CATALOGS:
        yield ask.with_result(**CATALOGS[fault](ask.params))
    elif ask.stage == "init" and fault in GREETINGS and "result" in ask.good:
        yield ask.with_result(**GREETINGS[fault])
    else:
        yield dump(ask.good)
