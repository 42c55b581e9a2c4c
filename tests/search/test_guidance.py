"""Clauses of descriptions that send readers elsewhere: the words in them are those of other tools."""

import time

import pytest

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search import Bm25fEngine, SearchIndex
from smart_mcp_proxy.search.guidance import read_purpose

LIST = """List the repositories of a workspace.

WHEN NOT TO USE:
- When you know the slug (use 'get_repository').
- When you need pull requests (use pull request tools).

RETURNS: names and slugs."""


@pytest.mark.parametrize(
    ("description", "left"),
    [
        (
            "Stops a VM. Do not use this to delete disks (use disk_delete instead). Takes a name.",
            "Stops a VM. . Takes a name.",
        ),
        ("Reads pages. NOT FOR: images, video v1.2 (use read_media). Fast.", "Reads pages. . Fast."),
        ("Reads text; not suitable for binary files", "Reads text;"),
        ("Searches articles. For gene variants, use variant_search instead.", "Searches articles. ."),
        ("DEPRECATED: Use `read_text` instead.", "DEPRECATED: ."),
        ("Gets one (use `list_all` for all).", "Gets one ."),
        ("Don\u2019t use for totals!", "!"),
        (LIST, "List the repositories of a workspace. RETURNS: names and slugs."),
    ],
)
def test_what_a_tool_is_not_for_goes(description: str, left: str) -> None:
    """To the end of the sentence or of the list, with the tool that is named for it."""
    assert " ".join(read_purpose(description).split()) == left


@pytest.mark.parametrize(
    "description",
    [
        "Deletes files that are not used.",
        "Use this instead of `execute_command` to list folders.",
        "For any analysis of local files, always use this instead.",
        "Use for writing notes, and not only for reading them.",
        "Never fails. Uses the cache instead of the network.",
        "Checks whether (unused) options are set; users do not need a key.",
        "",
    ],
)
def test_what_a_tool_is_for_stays(description: str) -> None:
    """As it is written."""
    assert read_purpose(description) == description


def test_a_tool_is_not_found_for_what_it_says_it_is_not_for() -> None:
    """Where each of two names the other's work, the right one comes first."""
    index = SearchIndex(Bm25fEngine())
    index.update(
        Document(number, server, "run", description=description)
        for number, (server, description) in enumerate(
            [
                ("alpha", "Creates a schedule. NOT FOR: cancelling a schedule, cancelling a booking (use beta)."),
                ("beta", "Cancels a schedule that was made before, with all of its bookings."),
            ]
        )
    )
    assert index.search("cancelling a booking", limit=2).hits[0].id == 1


@pytest.mark.long  # measures
@pytest.mark.parametrize(
    "text", ["not for ", "use a ", "(use ", "for x use a ", "when not to use:\n- ", "never use this ("]
)
def test_no_description_takes_long(text: str) -> None:
    """Also where a clause begins again and again, and never ends."""
    began = time.process_time()
    read_purpose(text * (8_000 // len(text)))
    assert time.process_time() - began < 0.1
