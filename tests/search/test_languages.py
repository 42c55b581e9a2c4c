"""The language of queries and definitions."""

import pytest

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.search.engines.bm25f import Bm25fEngine
from smart_mcp_proxy.search.languages import detect_language

IN = {
    "English": "List all the files in my project without showing their contents",
    "German": "zeige mir die Server in meinem Abonnement",
    "Spanish": "listar todas las bases de datos de la cuenta",
    "French": "affiche les fichiers de la semaine dans un tableau",
    "Chinese": "\u67e5\u627e\u65b0\u5bbf\u5fa1\u82d1\u9644\u8fd1\u7684\u9910\u5385",
    "Japanese": "\u8fd1\u304f\u306e\u30ec\u30b9\u30c8\u30e9\u30f3\u3092\u63a2\u3059",
    "Korean": "\uadfc\ucc98 \uc2dd\ub2f9 \ucc3e\uae30",
}


@pytest.mark.parametrize("language", IN)
def test_a_text_is_told_by_script_or_function_words(language: str) -> None:
    """By what names nothing, so that technical terms do not count."""
    assert detect_language([IN[language]]) == language


@pytest.mark.parametrize("text", ["", "create_issue", "kubernetes pods", "12 34", "die()", "\ud800", "le chat"])
def test_what_has_no_function_words_has_no_language(text: str) -> None:
    """One function word may be a name, a unit or a slip."""
    assert detect_language([text]) is None


def index_of(*descriptions: str) -> SearchIndex:
    index = SearchIndex(Bm25fEngine())
    index.update([Document(at, "s", f"tool_{at}", "", text) for at, text in enumerate(descriptions, 1)])
    return index


@pytest.mark.parametrize("query", [IN["German"], IN["Chinese"], "pr\u00fcfen Datei existiert"])
def test_an_answer_names_the_language_of_the_definitions_where_the_query_is_in_another(query: str) -> None:
    """Agents translate well, if they know into what."""
    index = index_of("Find the restaurants that are near to a place.", "List the servers of a subscription.")
    assert index.search(query, limit=5).language == "English"


@pytest.mark.parametrize(
    "query", [IN["English"], "xyzzy", "servers", "unknownword", "list servers", "how long until christmas"]
)
def test_a_query_in_the_same_language_or_in_none_gets_no_such_word(query: str) -> None:
    """Nor does one that fits."""
    assert index_of("List the servers of a subscription.", "Read the file.").search(query, limit=5).language is None


def test_definitions_in_another_language_are_named_as_such() -> None:
    """The catalog decides, not English."""
    index = index_of("Liest die Datei mit dem Namen und zeigt sie an.", "Listet die Server von einem Konto auf.")
    assert index.search("show me the weather for all of my places", limit=5).language == "German"


def test_the_language_is_that_of_the_definitions_as_they_are_now() -> None:
    """Also where it was asked for before they changed."""
    index = index_of("Find the restaurants that are near to a place.")
    assert index.search(IN["Chinese"], limit=5).language == "English"
    index.update([Document(1, "s", "tool_1", "", "Liest die Datei mit dem Namen und zeigt sie an.")])
    assert index.search(IN["Chinese"], limit=5).language == "German"
