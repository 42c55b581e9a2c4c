"""Messages of a client that wait in its door."""

from typing import Any, NamedTuple


class Pending(NamedTuple):
    """Request of the client that is not answered.

    Attributes:
        line: As it came.
        request: Read.
        number: Its place among the lines that the present gateway was sent, from 1.
        said: What the client was answered already, empty where an earlier gateway did; None where this one answers.
        repeats: How often it was sent before.
    """

    line: bytes
    request: dict[str, Any]
    number: int
    said: bytes | None
    repeats: int

    @property
    def is_hidden(self) -> bool:
        """Whether the client has its answer."""
        return self.said is not None

    @property
    def is_lasting(self) -> bool:
        """Whether it is answered at its end only, and waits for news until then."""
        return self.request.get("method") == "subscriptions/listen"


class QueuedLine(NamedTuple):
    """Line that waits for the gateway.

    Attributes:
        line: As it came, without its end.
        said: What the client was answered already; None where the gateway answers.
        repeats: How often it was sent before.
    """

    line: bytes
    said: bytes | None = None
    repeats: int = 0


class Alone(NamedTuple):
    """The client is served by a gateway of its own, in this process.

    Attributes:
        why: In words; empty where nobody need be told.
        queued: Lines for it, in order.
        rest: The beginning of the next line.
        unsent: Answers that have not left yet.
    """

    why: str
    queued: list[QueuedLine]
    rest: bytes
    unsent: bytes
