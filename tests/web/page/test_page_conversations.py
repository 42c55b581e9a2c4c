"""Activity by conversation: whose records stand together, and under which name."""

from typing import Any

from smart_mcp_proxy.policy import short_digest
from smart_mcp_proxy.web.page.places.activity import group_conversations
from smart_mcp_proxy.web.rest.route import COMMAND_LINE


def record(minute: int, kind: str = "call", session: str = "", principal: str = "local", **more: Any) -> dict[str, Any]:
    """A record of that minute."""
    at = f"2026-11-25T{minute // 60:02}:{minute % 60:02}:00.000Z"
    facts = {"subject": "a:x", "outcome": "ok", "detail": {}}
    return {"at": at, "kind": kind, "session": session, "principal": principal, **facts, **more}


SESSIONS = [
    record(9, "session", "s2", "ann", subject="cursor"),
    record(8, "session", "s1", subject="claude-code"),
    record(7, "session", subject="codex"),
    record(6, "session", subject="gemini-cli"),
]


def test_records_of_a_client_stand_together_under_its_name() -> None:
    """However they are mixed; on a pipe, where clients have no session, under the names that it may be."""
    found = group_conversations(
        [record(14, session="s1"), record(13, session="s2", principal="ann"), record(12, session="s1"), record(11)],
        SESSIONS,
    )
    assert [(each.client, each.principal, len(each.records)) for each in found] == [
        ("claude-code", "local", 2),
        ("cursor", "ann", 1),
        ("codex or gemini-cli", "local", 1),
    ]


def test_a_name_is_not_that_of_somebody_elses_session() -> None:
    """Who sends the id of another's session gets no name by it; nor has a client that never said one."""
    found = group_conversations([record(14, session="s1", principal="eve"), record(13, session="s9")], SESSIONS)
    assert [each.client for each in found] == ["a client", "a client"]


def test_a_record_that_names_its_client_needs_no_guess() -> None:
    """Clients that share a gateway have one principal and no session."""
    found = group_conversations(
        [record(12, detail={"client": "codex"}), record(11, "search", detail={"client": "gemini-cli"})], SESSIONS
    )
    assert [each.client for each in found] == ["codex", "gemini-cli"]


def test_after_a_long_pause_begins_another_conversation() -> None:
    """Of the same client; failures are counted."""
    late, early = record(200, session="s1", outcome="tool_error"), record(100, session="s1")
    found = group_conversations([late, record(199, session="s1"), early], SESSIONS)
    assert [(len(each.records), each.count_failures()) for each in found] == [(2, 1), (1, 0)]


def test_what_people_do_is_theirs() -> None:
    """At the command line and on the page, by whoever it was."""
    own = short_digest(COMMAND_LINE)
    found = group_conversations(
        [record(5, "approval"), record(4, "search", own), record(3, "config", principal="ann")], SESSIONS
    )
    people = [(each.client, len(each.records)) for each in found]
    assert people == [("you, at the command line or on this page", 2), ("a person", 1)]
