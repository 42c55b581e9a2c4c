"""What a server's policy approves in its user's place."""

from typing import Any

import pytest

from smart_mcp_proxy.models import Submission, ToolKey
from smart_mcp_proxy.policy.approval import choose_review, is_softer

KEY = ToolKey("s", "t")


def defined(hints: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": "t", "inputSchema": {}} | ({} if hints is None else {"annotations": hints})


def submission(approved: dict[str, Any] | None = None, hints: dict[str, Any] | None = None, **more: Any) -> Submission:
    return Submission(KEY, "hash", defined(hints), approved, **more)


def test_manual_approves_nothing() -> None:
    """Only the user does."""
    assert choose_review("manual", {"hash"}) is None


def test_trusted_approves_what_is_new_and_what_says_no_milder_things_of_itself() -> None:
    """Also where it is not known what was approved before."""
    review = choose_review("trusted")
    assert review is not None
    assert review(submission())
    assert review(submission(is_on_file=False))
    assert review(submission(defined({"destructiveHint": True}), {"destructiveHint": True}, is_on_file=False))


def test_scan_approves_only_what_the_scanner_has_read_and_found_clean() -> None:
    """A definition that it was not shown is not clean."""
    clean, unread = choose_review("scan", {"hash"}), choose_review("scan")
    assert clean is not None and unread is not None
    assert clean(submission())
    assert clean(submission(defined()))
    assert not unread(submission())


def test_scan_waits_where_it_is_not_known_what_was_approved() -> None:
    """A tool could otherwise leave and come back less dangerous by its own word."""
    review = choose_review("scan", {"hash"})
    assert review is not None
    assert not review(submission(is_on_file=False))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"destructiveHint": True}, {}),
        ({"destructiveHint": True}, None),
        ({"destructiveHint": True}, {"destructiveHint": False}),
        ({"destructiveHint": True}, {"destructiveHint": "true"}),
        (None, {"destructiveHint": False}),
        (None, {"readOnlyHint": True}),
        ({"readOnlyHint": False}, {"readOnlyHint": True}),
        ({"openWorldHint": True}, {"openWorldHint": False}),
        ({}, {"idempotentHint": True}),
        ({"destructiveHint": True, "readOnlyHint": True}, {"readOnlyHint": True}),
    ],
)
def test_a_tool_that_calls_itself_less_dangerous_waits_under_every_policy(before: Any, after: Any) -> None:
    """Its own word would otherwise open the way past the questions of the agent's client."""
    assert is_softer(defined(before), defined(after))
    for review in (choose_review("scan", {"hash"}), choose_review("trusted")):
        assert review is not None
        assert not review(submission(defined(before), after))
        assert not review(submission(defined(before), after, is_on_file=False))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        ({}, {"destructiveHint": True}),
        ({"readOnlyHint": True}, {}),
        ({"readOnlyHint": True}, {"readOnlyHint": True, "title": "New"}),
        ({"destructiveHint": False}, {"destructiveHint": True}),
    ],
)
def test_a_tool_that_calls_itself_as_dangerous_or_more_does_not_wait_for_that(before: Any, after: Any) -> None:
    """The rest of its definition is the scanner's matter."""
    assert not is_softer(defined(before), defined(after))
