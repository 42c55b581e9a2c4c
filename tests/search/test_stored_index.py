"""An index that was stored answers as one made anew does."""

import json
import random
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.search import index as index_module
from smart_mcp_proxy.search.engine import Arrays
from smart_mcp_proxy.search.engines.bm25f import Bm25fEngine
from smart_mcp_proxy.search.engines.rank_bm25 import RankBm25Engine

# Marked long: catalogs of thousands of tools.
pytestmark = pytest.mark.long

GOLDEN = Path(__file__).parent.parent / "golden_search"
ODD = ("___", "-\n-\t-", "\ud800", "Ünïcode_Größe", "検索する", "best_tool", "x" * 300)


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text("utf-8").splitlines() if line]


def golden() -> dict[int, Document]:
    """Real tools, and some with names of another kind."""
    documents = {}
    for id, row in enumerate(rows("tools.jsonl"), 1):
        properties = (row.get("input_schema") or {}).get("properties") or {}
        parameters = tuple((name, str(each.get("description") or "")) for name, each in properties.items())
        listed = f"{row['server']}__{row['name']}"
        documents[id] = Document(
            id, row["server"], row["name"], "", row["description"] or "", parameters, listed, (f"example {id % 7}",)
        )
    for id, name in enumerate(ODD, 1_000):
        documents[id] = Document(id, "odd", name, name, f"the best {name} in class, award-winning", ((name, name),))
    return documents


def queries(documents: Mapping[int, Document]) -> list[str]:
    """Needs, names, parts of names, and slips."""
    asked = [str(row["query"]) for row in rows("queries.jsonl")][::9]
    for document in list(documents.values())[::27]:
        name = document.name
        asked += [name, name[:5], name[1:], f"{document.server}:{name}".upper(), document.listed_name]
    return asked


def assert_same(index: SearchIndex, other: SearchIndex) -> None:
    assert index.documents == other.documents
    for query in queries(other.documents):
        for limit in (5, 40):
            assert index.search(query, limit=limit, explain=limit == 5) == other.search(
                query, limit=limit, explain=limit == 5
            )
        assert index.nearest_names(query) == other.nearest_names(query)


def filled(documents: Mapping[int, Document]) -> SearchIndex:
    index = SearchIndex(Bm25fEngine())
    index.update(documents.values())
    return index


def stored(index: SearchIndex) -> Arrays:
    arrays = index.dump_arrays()
    assert arrays is not None
    return arrays


def changed(index: SearchIndex, rng: random.Random) -> dict[int, Document]:
    """The documents after some were removed, replaced and added, as the index has them."""
    documents = dict(index.documents)
    for _ in range(12):
        gone, replaced = rng.sample(sorted(documents), 20), rng.sample(sorted(documents), 10)
        new = [Document(id, f"s{id % 9}", f"brew_{id}", "", "Brews coffee of the given strength.") for id in replaced]
        at = max(documents) + 1
        new += [Document(at + n, "late", f"late_{at}_{n}", "", f"comes late {at}") for n in range(8)]
        for id in {*gone} - {*replaced}:
            del documents[id]
        documents |= {document.id: document for document in new}
        index.update(new, gone)
    return documents


def test_a_stored_index_answers_as_one_made_anew() -> None:
    """Scores, order, reasons and names, also after tools were added, removed and replaced before it was stored."""
    documents = golden()
    index = filled(documents)
    restored = SearchIndex(Bm25fEngine())
    arrays = stored(index)
    restored.restore(arrays, documents)
    assert_same(restored, index)
    later = changed(index, random.Random(1))
    arrays = stored(index)
    again = SearchIndex(Bm25fEngine())
    again.restore(arrays, later)
    by_id = {id: later[id] for id in sorted(later)}
    assert_same(again, filled(by_id))


def test_a_restored_index_changes_as_any_other() -> None:
    """Tools that are added, removed and replaced in it leave nothing behind."""
    documents = golden()
    restored = SearchIndex(Bm25fEngine())
    arrays = stored(filled(documents))
    restored.restore(arrays, documents)
    other = filled(documents)
    assert changed(restored, random.Random(2)) == changed(other, random.Random(2))
    assert_same(restored, other)


def test_only_what_is_still_as_it_was_stored_is_taken_over() -> None:
    """Tools that are gone or read otherwise are not; what was not stored is left to add."""
    documents = golden()
    arrays = stored(filled(documents))
    now = {id: document for id, document in documents.items() if id % 5}
    now[2] = Document(2, "time", "convert_time", "", "reads otherwise")
    now[5_000] = Document(5_000, "new", "brew", "", "Brews coffee.")
    index = SearchIndex(Bm25fEngine())
    index.restore(arrays, now)
    assert set(index.documents) == set(now) - {2, 5_000}
    index.update([now[2], now[5_000]])
    assert_same(index, filled({id: now[id] for id in sorted(now)}))


def test_nothing_is_taken_over_from_another_catalog() -> None:
    """Then the index stays as it was."""
    arrays = stored(filled(golden()))
    index = SearchIndex(Bm25fEngine())
    index.restore(arrays, {1: Document(1, "other", "brew", "", "Brews coffee.")})
    assert not index.documents
    assert not index.search("brew coffee", limit=5).hits


@pytest.mark.parametrize("text", ["", "___"])
def test_tools_without_a_word_are_stored_as_well(text: str) -> None:
    """No term, no name in letters."""
    documents = {1: Document(1, text, "-", "", text)}
    arrays = stored(filled(documents))
    index = SearchIndex(Bm25fEngine())
    index.restore(arrays, documents)
    assert_same(index, filled(documents))
    assert [hit.id for hit in index.search("-", limit=5).hits] == [1]


def test_an_empty_index_and_a_foreign_engine_are_not_stored() -> None:
    """There is nothing to gain, or nobody who knows how."""
    assert SearchIndex(Bm25fEngine()).dump_arrays() is None
    index = SearchIndex(RankBm25Engine())
    index.update([Document(1, "a", "brew", "", "Brews coffee.")])
    assert index.dump_arrays() is None


def test_arrays_are_small_and_plain() -> None:
    """All of them have one dimension, so a file can hold them one behind another."""
    arrays = stored(filled(golden()))
    assert all(array.ndim == 1 and array.flags["C_CONTIGUOUS"] for array in arrays.values())
    assert arrays["rows"].dtype == np.int32


def test_what_is_made_of_texts_is_known_by_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored by another program it is not taken over: so the number grows with each change of this digest."""
    documents = golden()
    arrays = stored(filled(documents))
    digest = sha256(b"".join(array.tobytes() for name, array in arrays.items() if name != "kind")).hexdigest()
    assert (index_module._STORED, digest[:16]) == (2, "4d3b441d40565b89")
    monkeypatch.setattr(index_module, "_STORED", index_module._STORED + 1)
    index = SearchIndex(Bm25fEngine())
    index.restore(arrays, documents)
    assert not index.documents
