"""The first search of a conversation, told from the others."""

from gateway_fakes import HandClock

from smart_mcp_proxy.gateway.retrieval.retrieval import APART_S, REMEMBERED, Conversations


def test_a_conversation_is_a_session_or_searches_close_together() -> None:
    """Of each principal by itself; after half an hour of silence another one begins."""
    clock = HandClock()
    conversations = Conversations(clock)
    assert conversations.begins("ann", "one") and not conversations.begins("ann", "one")
    assert conversations.begins("ann", "two") and conversations.begins("bob", "one")
    assert conversations.begins("ann", None)
    clock.now_s += APART_S
    assert not conversations.begins("ann", None)
    clock.now_s += APART_S + 1
    assert conversations.begins("ann", None)


def test_callers_are_remembered_up_to_a_limit() -> None:
    """The one that searched longest ago is forgotten first."""
    conversations = Conversations(HandClock())
    assert conversations.begins("first", None)
    for number in range(REMEMBERED - 1):
        conversations.begins(f"p{number}", None)
    assert not conversations.begins("first", None)
    assert conversations.begins("another", None)
    assert conversations.begins("p0", None)
    assert not conversations.begins("first", None)
