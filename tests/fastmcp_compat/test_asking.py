"""Asking a client of the handshake era over its own session."""

from collections.abc import Mapping
from typing import Any

import mcp_types
import pytest
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.fastmcp_compat.asking import Asking, read_input_capabilities

pytestmark = pytest.mark.anyio

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}


class Channel:
    """One side of a session: answers with what it was given, and keeps what was asked."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[tuple[str, dict[str, Any], Any]] = []

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        self.asked.append((method, dict(params or {}), (opts or {}).get("timeout")))
        if isinstance(self._answer, MCPError):
            raise self._answer
        result: dict[str, Any] = self._answer
        return result

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        raise AssertionError("nothing is announced")


def asking(channel: Channel) -> Asking:
    return Asking({"elicitation": {}}, "2025-11-25", channel)


async def test_a_question_goes_out_as_the_server_wrote_it_and_the_answer_comes_back_as_it_is() -> None:
    """Unknown members included; only what `_meta` says of a connection stays behind."""
    channel = Channel({"action": "accept", "content": {"name": "Ann"}, "odd": 1})
    meta = {"progressToken": 4, "io.modelcontextprotocol/related-task": 1, "example.org/a": 2}
    assert await asking(channel).ask("elicitation/create", {**FORM, "_meta": meta}, 7.0) == {
        "action": "accept",
        "content": {"name": "Ann"},
        "odd": 1,
    }
    assert channel.asked == [("elicitation/create", {**FORM, "_meta": {"example.org/a": 2}}, 7.0)]


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (MCPError(code=mcp_types.REQUEST_TIMEOUT, message="timed out"), "input_timeout", "did not answer"),
        (MCPError(code=-1, message="the user said no"), "input_failed", "error -1: the user said no"),
        (NoBackChannelError("elicitation/create"), "input_unavailable", "cannot be asked"),
        ({"action": "shrug"}, "input_failed", "not a result that the protocol knows"),
    ],
)
async def test_a_question_without_a_good_answer_says_why(answer: Any, code: str, words: str) -> None:
    """The call that it belongs to had begun at its server, so nobody knows what became of it."""
    with pytest.raises(RequestError, match=words) as failure:
        await asking(Channel(answer)).ask("elicitation/create", FORM, 7.0)
    assert (failure.value.error_code, failure.value.delivery) == (code, "unknown")


def test_only_what_a_client_can_be_asked_for_is_taken_from_its_capabilities() -> None:
    """Other capabilities are between it and the gateway, and null is none."""
    declared = {"elicitation": {"form": {}}, "roots": None, "experimental": {"x": {}}, "tasks": {}}
    assert read_input_capabilities(declared) == {"elicitation": {"form": {}}}
    assert read_input_capabilities(None) == {}
