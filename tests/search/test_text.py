"""How text becomes search terms."""

import re
from pathlib import Path

import pytest
import snowballstemmer
from hypothesis import given
from hypothesis import strategies as st
from snowballstemmer.english_stemmer import EnglishStemmer

from smart_mcp_proxy.search.text import QUERY_LIMIT_CHARS, content_words, has_terms, is_one_slip, split_literals, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read_file", ["read", "file"]),
        ("read-file", ["read", "file"]),
        ("readFile", ["read", "file", "readfil"]),
        ("HTTPServer", ["http", "server", "httpserver"]),
        ("list IDs", ["list", "id"]),
        ("s3", ["s", "3", "s3"]),
        ("searching the repositories", ["search", "repositori"]),
        ("\uff27\uff49\uff54\uff28\uff55\uff42", ["git", "hub", "github"]),
        ("what's the user's S3?", ["user", "s", "3", "s3"]),
        ("don\u2019t they're", []),
        ("Straße", ["strass"]),
        ("天気予報", ["天気", "気予", "予報"]),
        ("天", ["天"]),
        ("read\x00file\x1b", ["read", "file"]),
        ("", []),
        (" \t\n", []),
        ("what is the", []),
        ("🎉🎉 👩‍💻", []),
    ],
)
def test_text_is_split_folded_and_stemmed(text: str, expected: list[str]) -> None:
    """Names split at case, underscore, hyphen and digit; CJK gives character pairs; what is no word gives nothing."""
    assert terms(text) == expected


@given(st.text(alphabet=st.characters(), max_size=200))
def test_any_text_gives_terms_without_an_exception(text: str) -> None:
    """Surrogates, combining marks and unassigned characters are as harmless as letters."""
    assert all(terms(text))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("Could you please read /tmp/notes.txt for me?", "read tmp notes txt"),
        ("what's on the up-to-date list", "what's up-to-date list"),
        ("what is it", ""),
        ("\x00 🎉", ""),
        ("路线 查找", "路线 查找"),
    ],
)
def test_content_words_are_those_that_name_something_as_they_are_written(query: str, words: str) -> None:
    """Without the frame of the request and without punctuation."""
    assert content_words(query) == words


def test_the_rest_of_an_overlong_text_is_not_read() -> None:
    """What follows the limit changes nothing, also where normalisation makes the text longer."""
    padding = "a " * (QUERY_LIMIT_CHARS // 2)
    assert terms(padding + "weather") == []
    assert len(terms("\ufdfa" * 50_000)) <= QUERY_LIMIT_CHARS


def test_of_a_query_of_100_kb_only_the_part_below_the_limit_is_stemmed() -> None:
    """Distinct words defeat the cache; the limit still bounds the work."""
    query = " ".join(f"w{number}ord" for number in range(12_000))
    assert len(terms(query)) <= QUERY_LIMIT_CHARS
    assert terms(query) == terms(query[:QUERY_LIMIT_CHARS])


def test_words_have_the_same_stem_with_and_without_the_stemmer_in_c() -> None:
    """An index that one machine made is asked by another."""
    golden = Path(__file__).parents[1] / "golden_search"
    texts = [file.read_text(encoding="utf-8") for file in (golden / "tools.jsonl", golden / "queries.jsonl")]
    words = {word.lower() for text in texts for word in re.findall(r"[^\W\d_]+", text)}
    fast, plain = snowballstemmer.stemmer("english"), EnglishStemmer()
    assert type(fast) is not type(plain)
    assert len(words) > 3_000
    assert {word: fast.stemWord(word) for word in words} == {word: plain.stemWord(word) for word in words}


@pytest.mark.parametrize(
    "literal",
    [
        "1234567890",
        "'/root/pdf/WebArena.pdf'",
        "https://example.com/a?b=1",
        "bob.b@example.co.uk",
        '"My Report"',
        "`x y`",
        "~/notes/a.md",
        "550e8400-e29b-41d4-a716-446655440000",
        "dQw4w9WgXcQ",
        "192.168.1.1",
        "2026-11-25",
        "10:30",
        "$500",
        "C:\\Users\\me",
    ],
)
def test_a_literal_is_no_part_of_what_is_needed(literal: str) -> None:
    """Nothing else is lost with it."""
    plain, literals = split_literals(f"Get what belongs to {literal} for me")
    assert (plain.split(), literals) == (["Get", "what", "belongs", "to", "for", "me"], literal)


@pytest.mark.parametrize(
    "query",
    [
        "S3 and EC2",
        "base64, mp3, k8s, GPT-4",
        "what's in it, don't ask",
        "TCP/IP and/or read/write",
        "the 2FA of a 3D web3",
    ],
)
def test_names_with_digits_and_apostrophes_are_no_literals(query: str) -> None:
    """They name what is needed."""
    assert split_literals(query) == (query, "")


@given(st.text(max_size=300))
def test_a_text_is_split_without_loss(text: str) -> None:
    """Whatever it is: the literals are pieces of it, and no more is cut than they are."""
    plain, literals = split_literals(text)
    assert len(plain) <= len(text) + 1 and all(piece in text for piece in literals.split(" "))


@pytest.mark.parametrize("unit", ["a", "1a", '"', "'a ", "/a", "a-", "a.b@", "0x", "1-", "a:/"])
def test_literals_are_looked_for_in_linear_work(unit: str) -> None:
    """Of a long text the first 4,000 characters are read, and no pattern looks twice at all of them."""
    plain, literals = split_literals(unit * 100_000)
    assert len(plain) + len(literals) <= 3 * QUERY_LIMIT_CHARS


def slips(word: str) -> set[str]:
    """The word itself, and with a letter left out, inserted, changed, or swapped with the next one."""
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    return {
        word,
        *(head + tail[1:] for head, tail in cuts),
        *(head + letter + tail for head, tail in cuts for letter in "abc"),
        *(head + letter + tail[1:] for head, tail in cuts if tail for letter in "abc"),
        *(head + tail[1] + tail[0] + tail[2:] for head, tail in cuts if len(tail) > 1),
    }


@given(st.text("abc", max_size=8), st.text("abc", max_size=8), st.data())
def test_one_slip_is_one_letter_or_two_neighbours(word: str, other: str, data: st.DataObject) -> None:
    """Wherever it is in a word of whatever length, in both directions."""
    for near in (other, data.draw(st.sampled_from(sorted(slips(word))))):
        assert is_one_slip(word, near) == is_one_slip(near, word) == (near in slips(word))


WORDS = [
    "possibility",
    "hoping",
    "dying",
    "skies",
    "relational",
    "sensitivity",
    "early",
    "queries",
    "abilities",
    "conditional",
    "luxuriate",
    "GitHub",
    "read_file",
    "S3",
    "the",
    "what's",
    "happy",
    "ﬁle",
    "天気予報",
    "Straße",
    "7",
]


@given(st.lists(st.sampled_from(WORDS), max_size=3), st.lists(st.sampled_from(WORDS), max_size=3))
def test_a_text_has_the_terms_that_it_is_made_of(text: list[str], wanted: list[str]) -> None:
    """The quick look beforehand passes over no text that has them."""
    sought = set(terms(" ".join(wanted)))
    assert has_terms(" ".join(text), sought) == (sought <= set(terms(" ".join(text))))
