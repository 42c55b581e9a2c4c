"""Session of the handshake era as far as it is made again with the next gateway."""

from typing import Any

from smart_mcp_proxy.desktop.lines import encode, get_param, read_message


class SessionLines:
    """Client's lines that a session rests on.

    Attributes:
        lines: What the next gateway has to be told first, in order.
    """

    def __init__(self) -> None:
        self.lines: list[bytes] = []

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
