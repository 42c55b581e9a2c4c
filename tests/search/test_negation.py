"""Operations that a query forbids."""

from dataclasses import replace

import pytest

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.search.engines.bm25f import Bm25fEngine
from smart_mcp_proxy.search.negation import read_request

FORBIDDING = [
    ("list the issue types, do not delete anything", "list the issue types,"),
    ("do not delete or remove the filters, only list them", "the filters, only list them"),
    ("create a group without deleting", "create a group"),
    ("list files, don\u2019t delete the archive", "list files, the archive"),
    ("archive the mail instead of deleting it", "archive the mail"),
    ("read the config, never overwrite or modify it", "read the config,"),
    ("show the rows; nothing should be dropped or changed", "show the rows;"),
    ("get the mail, no deletions", "get the mail,"),
    ("find the user and do not under any circumstances remove them", "find the user and"),
    ("these files must not be erased, list them", "these files , list them"),
    ("fetch the page rather than editing it", "fetch the page"),
    ("list the branches, but not delete", "list the branches"),
]
ALLOWING = [
    "Start VM in resource group without waiting for completion",
    "Get a complete list of all documents without filtering",
    "Can you list all the files in my project without showing their contents?",
    "Read the file, tell me who did not give a gift",
    "communicate without her knowing",
    "I'm not sure which version to use, can't remember",
    "troubleshoot why my motion sensor isn't working",
    "why do files not delete",
    "find files that were never modified",
    "accounts that should not be deleted",
    "I can't delete my repository",
    "do not delete",
    "",
]


@pytest.mark.parametrize(("query", "wanted"), FORBIDDING)
def test_a_forbidden_operation_is_taken_out_of_the_query(query: str, wanted: str) -> None:
    """Only the operation: what it is about may be what the tool is about."""
    request = read_request(query)
    assert (" ".join(request.text.split()), request.forbids_destruction) == (wanted, True)


@pytest.mark.parametrize("query", ALLOWING)
def test_a_query_that_forbids_nothing_stays_as_it_is(query: str) -> None:
    """Statements, questions, and ways to do a thing forbid no operation."""
    assert read_request(query) == (query, False)


@pytest.mark.parametrize("query", ["write the mail, do not send it", "delete the draft, do not delete the inbox"])
def test_destruction_is_not_forbidden_where_the_query_asks_for_it_or_forbids_something_else(query: str) -> None:
    """The words are taken out, the order stays."""
    request = read_request(query)
    assert request.text != query
    assert not request.forbids_destruction


def index_of(*documents: Document) -> SearchIndex:
    index = SearchIndex(Bm25fEngine())
    index.update(documents)
    return index


def test_a_tool_marked_destructive_never_stands_above_one_that_is_not_where_that_is_forbidden() -> None:
    """Even where its words fit better; without the ban it comes first."""
    wipe = Document(1, "db", "tidy_records", "", "Tidy the records of a table.", is_destructive=True)
    safe = [Document(2, "db", "list_records", "", "List the records."), Document(3, "crm", "records", "", "Records.")]
    index = index_of(wipe, *safe)
    assert index.search("tidy the records of a table", limit=5).hits[0].id == wipe.id
    hits = index.search("tidy the records of a table, do not delete anything", limit=5).hits
    assert [hit.id for hit in hits if hit.id != wipe.id]
    assert hits[-1].id == wipe.id or wipe.id not in [hit.id for hit in hits]
    assert [hit.score for hit in hits] == sorted([hit.score for hit in hits], reverse=True)


def test_what_one_query_of_a_search_forbids_counts_for_all_of_them() -> None:
    """The others are parts of the same need: they do not bring the tool back to the top; its name does."""
    wipe = Document(1, "db", "tidy_records", "", "Tidy the records of a table.", is_destructive=True)
    index = index_of(wipe, Document(2, "db", "list_records", "", "List the records."))
    ban, further = "list the records, do not delete anything", "tidy the records of a table"
    assert index.search(further, limit=5).hits[0].id == wipe.id
    for queries in ((ban, further), (further, ban)):
        hits = index.search(queries[0], limit=5, more_queries=queries[1:]).hits
        assert [hit.id for hit in hits] == [2, 1]
        assert hits[0].score > hits[1].score
    assert index.search(ban, limit=5, more_queries=["db:tidy_records"]).hits[0].id == wipe.id


def test_where_only_destructive_tools_fit_they_are_found() -> None:
    """An empty answer would help nobody."""
    tool = Document(1, "db", "update_record", "", "Update a record of a table.", is_destructive=True)
    index = index_of(tool, Document(2, "mail", "send", "", "Send a letter."))
    assert [hit.id for hit in index.search("update a record, do not delete anything", limit=5).hits] == [1]


def test_the_forbidden_tool_does_not_stand_above_the_wanted_one_without_any_marks() -> None:
    """Most servers mark nothing: then the words decide, without the forbidden ones."""
    wanted = Document(1, "db", "list_filters", "", "List the filters.")
    index = index_of(replace(wanted, id=2, name="delete_filter", description="Delete or remove a filter."), wanted)
    for query in ("list filters, do not delete anything", "do not delete or remove the filters, only list them"):
        assert index.search(query, limit=5).hits[0].id == wanted.id
