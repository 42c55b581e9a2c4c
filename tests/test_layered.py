"""Mappings whose versions share what they have in common: they equal plain dicts, whatever was done to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.layered import Layered

keys = st.integers(0, 40)
steps = st.lists(st.tuples(st.dictionaries(keys, st.integers()), st.lists(keys, max_size=9)), max_size=12)


@given(steps)
@pytest.mark.long  # many generated examples
def test_every_version_equals_a_dict_that_went_the_same_way(
    given_steps: list[tuple[dict[int, int], list[int]]],
) -> None:
    """Look-ups, length, iteration and what is in it; the versions before stay as they were."""
    versions: list[tuple[Layered[int, int], dict[int, int]]] = [(Layered(), {})]
    for entries, gone in given_steps:
        mapping, model = versions[-1]
        if len(versions) % 3 == 0:
            assert mapping.whole() == model  # what the next versions build on
        model = {key: value for key, value in model.items() if key not in gone} | entries
        versions.append((mapping.apply_changes(entries, gone), model))
    for mapping, model in versions:
        assert mapping == model
        assert sorted(mapping) == sorted(model)
        assert len(mapping) == len(model)
        assert sorted(mapping.items()) == sorted(model.items())
        assert sorted(mapping.values()) == sorted(model.values())
        assert (len(mapping.values()), len(mapping.items()), len(mapping.keys())) == (len(model),) * 3
        asked = {41, 7, 0, 30, 12}
        assert mapping.count(asked) == len(model.keys() & asked)
        assert mapping.whole() == model
        assert mapping.whole() is mapping.whole()
        for key in range(42):
            assert (key in mapping, mapping.get(key), mapping.get(key, -1)) == (
                key in model,
                model.get(key),
                model.get(key, -1),
            )
            if key not in model:
                with pytest.raises(KeyError):
                    mapping[key]


def test_the_next_version_copies_few_entries() -> None:
    """Of ten thousand, one change carries what has gathered, which stays below a few hundred."""
    mapping = Layered({number: number for number in range(10_000)})
    most = 0
    for number in range(1_000):
        mapping = mapping.apply_changes({number: -number}, [])
        most = max(most, len(mapping._over))
    assert most <= 401
    assert len(mapping) == 10_000
    assert repr(mapping).startswith("<Layered 10000 entries")
