"""Message on its way to a gateway over HTTP, and what has come of the answer."""

import time
from contextlib import suppress
from typing import Any

from smart_mcp_proxy.desktop.http.address import HttpAddress, build_modern_headers
from smart_mcp_proxy.desktop.http.link import Link
from smart_mcp_proxy.desktop.http.reply import BrokenReplyError, HttpReply
from smart_mcp_proxy.desktop.lines import is_repeatable
from smart_mcp_proxy.event_parser import EventParser, OversizedEventError

MOST_EVENT_BYTES = 256 * 1024 * 1024
"""As much as the gateway itself leaves unsent to one client."""
BARRIERS = ("initialize", "notifications/initialized")
_ENDLESS = "subscriptions/listen"


class Exchange:
    """Request of HTTP, from the line that asks for it to the end of its reply.

    Args:
        line: The client's; empty for a GET or DELETE.
        message: What is in it.
        verb: Of HTTP.
        is_hidden: Whether the client never asked, and hears no answer.

    Attributes:
        link: The connection; None while it waits.
        session: The id that it was sent with.
        is_answered: Whether the client has its answer.
        is_cancelled: Whether the client waits no more.
        failing_since: When it first came to nothing; None before.
        has_lost_session: Whether it was sent again for the end of its session.
    """

    def __init__(self, line: bytes, message: dict[str, Any], *, verb: str = "POST", is_hidden: bool = False) -> None:
        self.line, self.message, self.verb, self.is_hidden = line, message, verb, is_hidden
        self.method = message.get("method")
        self.key = message.get("id")
        self.is_request = self.method is not None and "id" in message
        self.is_barrier = is_hidden or self.method in BARRIERS
        self.is_endless = self.method == _ENDLESS
        self.modern = build_modern_headers(message)
        self.link: Link | None = None
        self.session = ""
        self.is_answered = self.is_cancelled = self.has_lost_session = False
        self.failing_since: float | None = None
        self._sent_at = 0.0

    @property
    def is_waited_for(self) -> bool:
        """Whether a client that has closed its end still waits for this."""
        return self.is_request and not self.is_endless and not (self.is_answered or self.is_cancelled)

    @property
    def is_unsent(self) -> bool:
        """Whether the gateway cannot have heard all of it."""
        return self.link is None or not self.link.is_open or bool(self.out)

    @property
    def may_be_sent_again(self) -> bool:
        """Whether it does no harm if the gateway has heard it before."""
        return not self.is_request or self.is_hidden or self.is_unsent or is_repeatable(self.message)

    @property
    def age_s(self) -> float:
        """Time since it was sent last."""
        return time.monotonic() - self._sent_at

    def begin(self, address: HttpAddress, link: Link, headers: dict[str, str]) -> None:
        """Send it, as far as that can be done at once.

        Raises:
            OSError: The connection has ended.
        """
        body = self.line.strip()
        self.session = headers.get("mcp-session-id", "")
        self.out = bytearray(address.build_head(self.verb, headers, len(body) if self.verb == "POST" else None) + body)
        self.reply, self.body = HttpReply(), bytearray()
        self.events = EventParser(MOST_EVENT_BYTES)
        self.link, self._sent_at = link, time.monotonic()
        if link.is_open:
            link.send(self.out)

    def advance(self) -> list[bytes]:
        """Send and receive what can be; the messages of its event stream that have come whole.

        Raises:
            OSError: The connection has failed, or ended before the reply was whole.
            ValueError: The reply is not HTTP, or too large.
        """
        link, said = self.link, list[bytes]()
        assert link is not None
        if not link.is_open:
            link.go_on()
            if not link.is_open:
                return said
        if self.out:
            with suppress(OSError):  # who has heard enough may have said why before the connection ended
                link.send(self.out)
        while not self.reply.is_whole and (data := link.receive()) is not None:
            if not data:
                self.reply.end()
                break
            try:
                for piece in self.reply.feed(data):
                    if self.is_stream:
                        said += [event.data for event in self.events.feed(piece)]
                    else:
                        self.body += piece
            except OversizedEventError:
                raise BrokenReplyError from None
            if said:
                break
        return said

    @property
    def is_success(self) -> bool:
        """Whether the status says so."""
        return 200 <= self.reply.status < 300

    @property
    def is_stream(self) -> bool:
        """Whether the reply is one of events."""
        return self.is_success and self.reply.media_type == "text/event-stream"
