"""A vector counts for a tool only while the tool has the text that it was made of."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.embedding import build_embedding_text, text_hash
from smart_mcp_proxy.search.vectors.links import VectorLinks, from_bytes, to_bytes
from smart_mcp_proxy.search.vectors.sidecar import Sidecar
from smart_mcp_proxy.search.vectors.vectors import VectorIndex

E = np.eye(4, dtype=np.float32)
TOOLS = {id: Document(id, "s", f"tool_{id}", description=f"Does {id}.") for id in (1, 2, 3)}


def hash_of(document: Document) -> str:
    return text_hash(build_embedding_text(document))


def found(*ids: int) -> dict[int, tuple[str, NDArray[np.float32]]]:
    return {id: (hash_of(TOOLS[id]), E[id]) for id in ids}


@pytest.fixture
def links() -> VectorLinks:
    """Three tools, of which 1 and 2 have vectors."""
    links = VectorLinks(VectorIndex(4))
    links.follow(TOOLS)
    links.link(found(1, 2))
    return links


def test_what_is_missing_is_told_by_hash_with_its_text(links: VectorLinks) -> None:
    """Tools of the same text share a vector."""
    assert links.find_missing_vectors() == {hash_of(TOOLS[3]): [3]}
    assert links.texts(links.find_missing_vectors()) == {hash_of(TOOLS[3]): build_embedding_text(TOOLS[3])}
    links.follow(TOOLS | {4: replace(TOOLS[3], id=4)})
    assert links.find_missing_vectors() == {hash_of(TOOLS[3]): [3, 4]}
    assert links.hashes() == {hash_of(tool) for tool in TOOLS.values()}


def test_a_tool_that_reads_otherwise_loses_its_vector(links: VectorLinks) -> None:
    """And one that left; a change elsewhere in the definition takes nothing."""
    changed = replace(TOOLS[1], description="Does something else.")
    links.follow({1: changed, 3: TOOLS[3]})
    assert len(links.vectors) == 0
    assert links.find_missing_vectors().keys() == {hash_of(changed), hash_of(TOOLS[3])}
    links.follow(TOOLS)
    links.link(found(1, 2, 3))
    links.follow(TOOLS | {1: replace(TOOLS[1], parameters=(("path", ""),), listed_name="x")})
    assert not links.find_missing_vectors()


def test_a_vector_that_comes_too_late_is_not_taken(links: VectorLinks) -> None:
    """The tool has changed, or left, while it was made."""
    links.follow({1: TOOLS[1], 3: replace(TOOLS[3], name="other")})
    links.link(found(2, 3))
    assert 1 in links.vectors
    assert 2 not in links.vectors
    assert 3 not in links.vectors


def test_a_vector_that_was_taken_out_is_missing_again(links: VectorLinks) -> None:
    """Whoever did it."""
    links.vectors.update((), np.empty((0, 4), np.float32), [1])
    assert links.find_missing_vectors().keys() == {hash_of(TOOLS[1]), hash_of(TOOLS[3])}


def test_a_side_car_brings_back_what_it_was_given(links: VectorLinks) -> None:
    """For tools that still read so; damaged rows and other tools' ids bring nothing."""
    links.link(found(3))
    kept = links.sidecar("fake")
    fresh = VectorLinks(VectorIndex(4))
    vectors = kept.vectors.copy()
    vectors[kept.ids.tolist().index(3)] = 0
    fresh.follow(TOOLS | {2: replace(TOOLS[2], description="New.")})
    fresh.take_over(Sidecar("fake", kept.ids, kept.hashes, vectors))
    ids, rows = fresh.vectors.take([1, 2, 3])
    assert ids == [1]
    assert (rows == E[1:2]).all()


def test_an_id_that_belongs_to_another_tool_now_gets_nothing() -> None:
    """As in a catalog that was made anew beside an old side-car."""
    links = VectorLinks(VectorIndex(4))
    links.follow({1: replace(TOOLS[2], id=1)})
    links.take_over(Sidecar("fake", np.array([1]), [hash_of(TOOLS[1])], E[1:2]))
    assert len(links.vectors) == 0


def test_the_revision_tells_of_changes(links: VectorLinks) -> None:
    """Looking at the same tools again is none."""
    before = links.revision
    links.follow(dict(TOOLS))
    links.link({})
    assert links.revision == before
    links.link(found(3))
    assert links.revision > before
    before = links.revision
    links.follow({})
    assert links.revision > before


def test_stored_bytes_are_the_same_vector() -> None:
    """Damaged ones are none."""
    data = to_bytes(E[2])
    restored = from_bytes(data, 4)
    assert restored is not None
    assert (restored == E[2]).all()
    assert data == bytes(8) + b"\0\0\x80\x3f" + bytes(4)
    for damaged in (data[:-1], data * 2, bytes(16), b"\xff" * 16, b""):
        assert from_bytes(damaged, 4) is None
