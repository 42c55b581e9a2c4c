"""Session of the handshake era as far as it is made again with the next gateway."""

from typing import Any

from smart_mcp_proxy.desktop.lines import build_cancellation, encode, get_param, read_message


class SessionLines:
    """Client's lines that a session rests on, and the questions of its gateway that are open.

    Attributes:
        lines: What the next gateway has to be told first, in order.
    """

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._asked: set[int | str] = set()
        self._stale: set[int | str] = set()

    def note(self, method: str, message: dict[str, Any], line: bytes) -> None:
        """Keep a line of the client, if the session rests on it; let go of those that it takes back."""
        if method in ("initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe"):
            if method == "logging/setLevel":
                self.lines = [each for each in self.lines if read_message(each).get("method") != method]
            if line not in self.lines:
                self.lines.append(line)
        elif method == "resources/unsubscribe":
            ended = ("resources/subscribe", get_param(message, "uri"))
            seen = ((each, read_message(each)) for each in self.lines)
            self.lines = [each for each, said in seen if (said.get("method"), get_param(said, "uri")) != ended]

    def ask(self, key: int | str) -> None:
        """A question of the gateway goes to the client."""
        self._asked.add(key)

    def take_answer(self, key: int | str) -> bool:
        """Whether an answer of the client is for the present gateway, and not for one that has ended."""
        if key in self._stale:
            self._stale.discard(key)
            return False
        self._asked.discard(key)
        return True

    def end_questions(self) -> bytes:
        """The gateway has ended: lines that tell the client to leave its questions."""
        ended, self._asked = self._asked, set()
        self._stale |= ended
        return b"".join(map(build_cancellation, ended))


def build_changes(answer: bytes) -> bytes:
    """Tell a client, after the answer to a repeated `initialize`, that lists may have changed meanwhile."""
    result = read_message(answer).get("result")
    claimed = result.get("capabilities") if isinstance(result, dict) else None
    groups = claimed if isinstance(claimed, dict) else {}
    return b"".join(
        encode({"jsonrpc": "2.0", "method": f"notifications/{name}/list_changed"})
        for name in ("tools", "prompts", "resources")
        if isinstance(group := groups.get(name), dict) and group.get("listChanged")
    )
