"""Answers and errors over HTTP, as the broker and REST both send them."""

from typing import Any

import msgspec
import pytest

from smart_mcp_proxy.errors import ProxyError, RateLimitedError, UpstreamAuthError
from smart_mcp_proxy.web.broker.app import failure
from smart_mcp_proxy.web.common.messages import UnauthorizedError, json_response


def answers(error: ProxyError) -> list[Any]:
    """What REST and what the broker answer."""
    return [json_response({"error": error.to_dict()}, error), failure(error, "b", is_proxy=True)]


@pytest.mark.parametrize(("pause_s", "told"), [(0.0, "0"), (0.2, "1"), (1.0, "1"), (1.4, "2"), (60.0, "60")])
def test_a_pause_is_told_in_whole_seconds_that_are_long_enough(pause_s: float, told: str) -> None:
    """Whoever comes back when it is over is not too early."""
    for answer in answers(RateLimitedError("Too many.", retry_after_s=pause_s)):
        assert (answer.status_code, answer.headers["retry-after"]) == (429, told)


def test_only_the_callers_own_token_is_asked_for() -> None:
    """A server's wish for a sign-in is a 401 as well, and no header of the caller's would help."""
    for answer in answers(UnauthorizedError("Who are you?")):
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    for answer in answers(UpstreamAuthError("The server wants a sign-in.")):
        assert answer.status_code == 401 and "www-authenticate" not in answer.headers


def test_json_text_is_sent_as_it_is_and_nothing_is_stored_on_the_way() -> None:
    """Everything else is encoded."""
    for value in (b'{"a": 1}', {"a": 1}):
        answer = json_response(value)
        assert (answer.status_code, msgspec.json.decode(answer.body)) == (200, {"a": 1})
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-type"] == "application/json"
