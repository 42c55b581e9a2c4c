"""Which client gets found tools into its list: by what is known of it, and by what it was seen to do."""

import pytest

from smart_mcp_proxy.gateway.sessions.tool_surface import decide
from smart_mcp_proxy.gateway.shared.client_behavior import ClientBehavior


class Clock:
    """Turned by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("name", "conduct", "route", "words"),
    [
        ("claude-code", (0, 0), "DYNAMIC", "known to ask"),
        ("Visual Studio Code - Insiders", (0, 0), "DYNAMIC", "known to ask"),
        ("gemini-cli-mcp-client", (0, 1), "DYNAMIC", "known to ask"),
        ("gemini-cli-mcp-client", (0, 2), "CALL_TOOL", "after 2 announcements"),
        ("Cursor", (0, 0), "CALL_TOOL", "not known to ask"),
        ("Cursor", (3, 1), "DYNAMIC", "after 3 of 4 announcements"),
        ("codex-mcp-client", (0, 0), "CALL_TOOL", "known not to ask"),
        ("", (0, 0), "CALL_TOOL", "not known to ask"),
        ("my agent", (0, 0), "CALL_TOOL", "not known to ask"),
        ("mcp-test-client", (0, 0), "CALL_TOOL", "not known to ask"),
        ("not claude-code", (0, 0), "CALL_TOOL", "not known to ask"),
    ],
)
def test_auto_goes_by_conduct_first_and_by_name_then(
    name: str, conduct: tuple[int, int], route: str, words: str
) -> None:
    """What was seen counts for more than what is said of a client; the reason says which it was."""
    decided = decide(name, conduct)
    assert decided.kind == route
    assert words in decided.reason


def test_an_announcement_is_heeded_by_a_list_within_half_a_minute() -> None:
    """Later, or never, it was not; several announcements before one list count once."""
    clock = Clock()
    conduct = ClientBehavior(clock)
    watch = conduct.watch("a")
    watch.note_list_request()
    assert conduct.of("a") == (0, 0)
    watch.note_announcement()
    watch.note_announcement()
    clock.now_s += 30
    watch.note_list_request()
    assert conduct.of("a") == (1, 0)
    watch.note_announcement()
    clock.now_s += 31
    watch.note_list_request()
    assert conduct.of("a") == (1, 1)


def test_a_session_that_ends_without_a_list_after_a_while_did_not_heed() -> None:
    """One that ends at once may just have been over; clients of another name are not judged by it."""
    clock = Clock()
    conduct = ClientBehavior(clock)
    for after_s in (1, 31):
        watch = conduct.watch("a")
        watch.note_announcement()
        clock.now_s += after_s
        watch.give_up()
    assert (conduct.of("a"), conduct.of("b")) == ((0, 1), (0, 0))


def test_only_so_many_names_are_remembered() -> None:
    """Clients choose their names freely, so the memory is bounded; the oldest name goes first."""
    conduct = ClientBehavior()
    for number in range(300):
        watch = conduct.watch(str(number))
        watch.note_announcement()
        watch.note_list_request()
    assert conduct.of("0") == (0, 0)
    assert conduct.of("299") == (1, 0)


def test_of_a_long_name_only_the_beginning_is_remembered() -> None:
    """A client may call itself anything, megabytes long, and is remembered after it has left."""
    conduct = ClientBehavior()
    watch = conduct.watch("a" * 100 + "b" * 1_000_000)
    watch.note_announcement()
    watch.note_list_request()
    assert conduct.of("a" * 100) == conduct.of("a" * 5_000) == (1, 0)
    assert conduct.of("a" * 99) == (0, 0)
