"""Requests to see something and to change something, and tools that do one of both."""

import pytest

from smart_mcp_proxy.search.effects import asks_for_effect, names_effect


@pytest.mark.parametrize(
    ("query", "has_effect"),
    [
        ("what is in my calendar tomorrow", False),
        ("Could you tell me which alerts fire?", False),
        ("please list the open tickets", False),
        ("how many users are there", False),
        ("how do I create a board", True),
        ("open an issue", True),
        ("open the settings", None),
        ("delete the old branch", True),
        ("I want to send a mail", True),
        ("tell the team that we are live", None),
        ("weather in Oslo", None),
        ("画像を削除する", None),
        ("", None),
    ],
)
def test_the_beginning_of_a_request_says_whether_it_changes_something(query: str, has_effect: bool | None) -> None:
    """Where it does not, nothing is guessed."""
    assert asks_for_effect(query) is has_effect


@pytest.mark.parametrize(
    ("name", "has_effect"),
    [
        ("create_calendar", True),
        ("hosting_getWebsiteV1", False),
        ("stories-create-subtask", True),
        ("calendar_event_for_person_delete", True),
        ("get_delete_log", False),
        ("maps_directions", None),
    ],
)
def test_the_first_verb_of_a_name_says_what_its_tool_does(name: str, has_effect: bool | None) -> None:
    """Whatever stands before it; the last word is a verb, too."""
    assert names_effect(name) is has_effect
