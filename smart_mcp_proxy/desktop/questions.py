"""Requests of gateways to a client, whose ids every gateway counts anew."""

import json

from smart_mcp_proxy.desktop.lines import Id, encode, get_param, read_message

_CANCELLED = b"notifications/cancelled"


class Questions:
    """Open requests to the client, under ids that it is never given twice.

    The first gateway's pass as they are; a later one's have the number of that gateway before them. So an answer to one
    that has ended is known by its id, and reaches no other.
    """

    def __init__(self) -> None:
        self._gateways = 0
        self._open: dict[str, tuple[Id, Id]] = {}
        """By the text of the id, as `7` may be answered as `"7"`: the client's id, and the gateway's."""

    def begin(self) -> None:
        """Another gateway asks from now on."""
        self._gateways += 1

    def ask(self, line: bytes, key: Id) -> bytes:
        """Note a request; returns it as the client is to see it."""
        shown = self._show(key)
        self._open[str(shown)] = (shown, key)
        return line if shown is key else _with_id(line, shown)

    def hear(self, line: bytes) -> bytes:
        """A notification of the gateway as the client is to see it: it may take a request back."""
        if _CANCELLED not in line:
            return line
        message = read_message(line)
        key = get_param(message, "requestId")
        if not isinstance(key, int | str):
            return line
        shown = self._show(key)
        self._open.pop(str(shown), None)
        if shown is key:
            return line
        message["params"]["requestId"] = shown
        return encode(message).removesuffix(b"\n")

    def answer(self, line: bytes, key: Id) -> bytes | None:
        """The client's answer as the gateway is to see it; None if it is to another gateway."""
        shown, asked = self._open.pop(str(key), (None, None))
        if asked is None:
            return line if self._gateways == 1 else None
        return line if shown is asked else _with_id(line, asked)

    def end(self) -> list[Id]:
        """The gateway has ended; returns the client's ids of what it has asked."""
        ended = [shown for shown, _ in self._open.values()]
        self._open.clear()
        return ended

    def _show(self, key: Id) -> Id:
        return key if self._gateways == 1 else f"{self._gateways}/{json.dumps(key)}"


def _with_id(line: bytes, key: Id) -> bytes:
    return encode({**read_message(line), "id": key}).removesuffix(b"\n")
