"""Which other words may stand for a word of the query."""

from smart_mcp_proxy.search.engines.variants import Vocabulary, form_compounds, same_in_meaning
from smart_mcp_proxy.search.text import terms


def stem(word: str) -> str:
    return terms(word)[-1]


def names(known: str, word: str) -> set[tuple[str, ...]]:
    """What stands for `word` among the known words."""
    return {variant.terms for variant in Vocabulary(dict.fromkeys(terms(known))).variants(stem(word))}


def test_the_thesaurus_works_both_ways_and_never_names_the_word_itself() -> None:
    """Every word of a group is found by every other one."""
    assert stem("remove") in same_in_meaning(stem("delete"))
    assert stem("delete") in same_in_meaning(stem("remove"))
    assert stem("kubernetes") in same_in_meaning("k8s")
    assert stem("delete") not in same_in_meaning(stem("delete"))
    assert same_in_meaning("zyzzyva") == ()


def test_groups_are_not_joined_through_a_word_of_two_meanings() -> None:
    """`order` means sorting and buying; sorting is not buying."""
    assert {"sort", "buy"} <= set(same_in_meaning("order"))
    assert "buy" not in same_in_meaning("sort")


def test_only_known_words_stand_for_another() -> None:
    """The catalog decides which synonyms are of use."""
    assert names("remove weather", "delete") == {("remov",)}


def test_slips_and_parts_are_looked_for_only_where_the_word_is_unknown() -> None:
    """A word of the catalog means itself."""
    assert names("weather", "wheather") == {("weather",)}
    assert names("weather wheather", "wheather") == set()
    assert names("file system", "filesystem") == {("file", "system")}
    assert names("file system filesystem", "filesystem") == set()


def test_a_slip_keeps_the_first_letter_and_needs_a_long_word() -> None:
    """Two slips, another initial, or a short word: rather nothing than something else."""
    assert names("weather", "wexthor") == set()
    assert names("weather", "leather") == set()
    assert names("mail", "maul") == set()


def test_neighbours_join_with_and_without_the_final_e() -> None:
    """The stem of `webpage` has lost the e that `page` keeps."""
    assert form_compounds("web", "page") == ("webpage", "webpag")
    assert form_compounds("file", "system") == ("filesystem",)


def test_a_changed_vocabulary_equals_one_made_anew() -> None:
    """Nothing of what is gone is found, and all that is new."""
    before, after = "weather forecast calendar invoice", "weather playlist calender forecasts invoices"
    changed = Vocabulary(dict.fromkeys(terms(before))).replace_terms(
        dict.fromkeys(terms(after)), {*terms(before), *terms(after)}
    )
    fresh = Vocabulary(dict.fromkeys(terms(after)))
    for word in ("wheather", "forecst", "calendat", "invoicee", "playlst", "playlists"):
        assert changed.variants(stem(word)) == fresh.variants(stem(word))
    assert changed.variants(stem("playlst"))
    assert changed.replace_terms({}, terms(after)).variants(stem("playlst")) == []
