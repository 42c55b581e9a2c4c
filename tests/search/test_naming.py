"""Tools found by name."""

import random
import string

import pytest
from growth import assert_growth

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.naming import NameTable

NOUNS = ("issue", "branch", "invoice", "contact", "forecast", "ticket", "message", "folder", "calendar", "playlist")
VERBS = ("create", "delete", "list", "get", "update", "archive", "search", "export", "merge", "rename")


def many(count: int) -> dict[int, Document]:
    documents = {}
    for id in range(1, count + 1):
        place, noun, verb = id // 100, NOUNS[id % 10], VERBS[id // 10 % 10]
        server, name = f"server-{place}", f"{verb}_{noun}_{place}"
        documents[id] = Document(id, server, name, listed_name=f"{server}__{name}")
    return documents


def table_of(documents: dict[int, Document]) -> NameTable:
    return NameTable.empty().replace_documents((), documents.values())


@pytest.mark.parametrize("looked_at_each", [1_000, 30])
def test_a_changed_table_equals_one_made_anew(looked_at_each: int) -> None:
    """Names, nearest names and servers; nothing of what is gone is left, whenever it was looked at in between."""
    documents = many(400)
    changed = table_of(documents)
    for id in range(1, 250):
        old = documents.pop(id)
        new = [Document(1_000 + id, "fresh", f"brew_{id}")] if id % 3 else []
        documents |= {document.id: document for document in new}
        changed = changed.replace_documents([old], new)
        if id % looked_at_each == 0:
            servers = ["fresh", "server-0", "server-3"]
            assert changed.find_server_ids(servers, documents) == table_of(documents).find_server_ids(
                servers, documents
            )
            assert changed.nearest(old.name, 3, documents, None) == table_of(documents).nearest(
                old.name, 3, documents, None
            )
    fresh = table_of(documents)
    for name in {
        form for each in documents.values() for form in (each.name, each.listed_name, f"{each.server}:{each.name}")
    }:
        assert changed.exact(name, documents, None) == fresh.exact(name, documents, None)
        assert changed.spelt_otherwise(name, documents, None) == fresh.spelt_otherwise(name, documents, None)
    for name in ("brew", "server2", "create_issue_1", "nosuch"):
        assert changed.nearly_named(name, documents, None) == fresh.nearly_named(name, documents, None)
    assert (changed.counts, changed.by_words) == (fresh.counts, fresh.by_words)
    for servers in (["fresh"], ["server-2", "fresh", "nobody's"], fresh.counts.keys(), ["nobody's"]):
        ids = {id for id, document in documents.items() if document.server in servers}
        assert changed.find_server_ids(servers, documents) == fresh.find_server_ids(servers, documents) == ids
    for name in ("brew_7", "server-2:create_isue_2", "delete_invoice_1", "zzz"):
        assert changed.nearest(name, 3, documents, None) == fresh.nearest(name, 3, documents, None)


def test_a_server_is_forgotten_with_its_last_tool() -> None:
    """Then its name in a query means nothing any more; that of one spelled alike still does."""
    documents = {1: Document(1, "acme-crm", "a"), 2: Document(2, "Acme_CRM", "b"), 3: Document(3, "acme-crm", "c")}
    table = table_of(documents)
    assert table.find_named_servers("in ACME crm") == {"acme-crm", "Acme_CRM"}
    table = table.replace_documents([documents[1]], ())
    assert table.find_named_servers("in ACME crm") == {"acme-crm", "Acme_CRM"}
    table = table.replace_documents([documents[3]], ())
    assert table.find_named_servers("in ACME crm") == {"Acme_CRM"}
    assert table.replace_documents([documents[2]], ()).find_named_servers("in ACME crm") == set()


def test_a_name_means_one_tool_of_a_server_however_many_spellings_it_has() -> None:
    """Of each server; the spelling of the query before others, and then no other server's in another case."""
    spellings = ("Create issue", "CREATE issue", "create Issue")
    documents = {n: Document(n, "flood", name) for n, name in enumerate(spellings, 1)}
    documents |= {9: Document(9, "other", "CREATE ISSUE")}
    table = table_of(documents)
    assert table.exact("create issue", documents, None) == {2: "create issue", 9: "create issue"}
    assert table.exact("create Issue", documents, None) == {3: "create Issue"}
    assert table.exact("create issue", documents, {2, 3}) == {2: "create issue"}


@pytest.mark.long  # much work for one test
def test_a_slip_of_the_pen_finds_the_name_that_was_meant_among_thousands() -> None:
    """One letter wrong, missing, doubled or two exchanged, in any form of the name: nearly always the first one."""
    documents = many(5_000)
    table, rng = table_of(documents), random.Random(3)
    right = 0
    for _ in range(200):
        document = documents[rng.randrange(1, 5_001)]
        name = rng.choice((document.listed_name, f"{document.server}:{document.name}"))
        at = rng.randrange(2, len(name) - 8)
        slips = (
            name[:at] + rng.choice(string.ascii_lowercase) + name[at + 1 :],
            name[:at] + name[at + 1 :],
            name[:at] + name[at] + name[at:],
            name[:at] + name[at + 1] + name[at] + name[at + 2 :],
        )
        right += document.id in table.nearest(rng.choice(slips), 3, documents, None)
    assert right >= 180


@pytest.mark.long
def test_the_cost_of_finding_the_nearest_name_grows_slower_than_the_number_of_names() -> None:
    """Among ten times as many names it costs at most ten times as much, and noise."""
    tables = {count: (table_of(many(count)), many(count)) for count in (10_000, 100_000)}

    def nearest(count: int) -> None:
        table, documents = tables[count]
        for place in range(5):
            assert table.nearest(f"server-77{place}:create_isue_77{place}", 3, documents, None)

    assert_growth(nearest, 10_000, 100_000, at_most=10)


def test_allowed_names_are_found_behind_any_number_of_others() -> None:
    """What may not be seen neither shows nor hides the rest."""
    documents = many(1_000)
    table = table_of(documents)
    allowed = {id for id, document in documents.items() if document.server == "server-9"}
    nearest = table.nearest("server-1:create_issue_1", 3, documents, allowed)
    assert len(nearest) == 3
    assert set(nearest) <= allowed


def test_a_name_one_slip_away_is_found_among_any_number_of_names_that_are_longer() -> None:
    """Also where these have more letter pairs in common with what was written."""
    names = ("sbutract", *(f"sbutract_{n}{n}" for n in "abcdefghijklmnopqrstuvwxyz"))
    documents = {id: Document(id, "s", name) for id, name in enumerate(names, 10_001)}
    for table in (table_of(documents), table_of(documents | many(5_000)).replace_documents(many(5_000).values(), ())):
        assert table.nearly_named("sbutrcat", documents, None) == [10_001]


@pytest.mark.parametrize(
    "name",
    ["caf\u00e9_menu", "\u67e5\u627e\u65b0\u5bbf\u5fa1\u82d1", "plain_name", "\U00020000\U00020001\U00020002" + "abc"],
)
def test_a_slip_in_any_script_finds_the_name(name: str) -> None:
    """A letter changed, left out, doubled, or swapped with its neighbour, among the names of other scripts."""
    documents = {10_001: Document(10_001, "s", name)} | many(1_000)
    table = table_of(documents)
    for slipped in (f"x{name[1:]}", name[1:], name[:2] + name[1:], name[1] + name[0] + name[2:]):
        if slipped != name:
            assert table.nearly_named(slipped, documents, None) == [10_001]


def test_few_names_one_slip_away_stand_as_they_do_among_many() -> None:
    """Sixteen are compared by themselves, more of them as a table: the order is the same."""
    names = ("search_notes", "searchNotes", "search-note", "SEARCH_NOTE")
    documents = {id: Document(id, f"server{id % 7}-{'x' * (id % 5)}", names[id % 4]) for id in range(1, 41)}
    table = table_of(documents)
    first = table.nearly_named("search_notez", documents, None)
    assert len(first) == 16
    for count in (1, 2, 5, 16):
        assert table.nearly_named("search_notez", documents, frozenset(first[:count])) == first[:count]
