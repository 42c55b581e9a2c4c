"""Pages that the code writes: one for each client and each error code, with the facts of the code."""

import sys
from pathlib import Path

import pytest
from documents import ROOT

from smart_mcp_proxy.client_files import KNOWN_CLIENTS
from smart_mcp_proxy.errors import ProxyError, RateLimitedError

sys.path.insert(0, str(ROOT / "scripts"))
import regenerate_docs
from pages import error_codes, error_pages

CLIENTS = ROOT / "docs" / "clients"
ERRORS = ROOT / "docs" / "errors"


def subclasses(base: type[ProxyError]) -> set[type[ProxyError]]:
    """All error classes that are imported here."""
    return {base} | {each for child in base.__subclasses__() for each in subclasses(child)}


def test_every_client_has_a_page_with_its_file_and_its_entry() -> None:
    """As `mcpproxy connect` writes it."""
    assert {page.stem for page in CLIENTS.glob("*.md")} == {client.name for client in KNOWN_CLIENTS} | {"index"}
    for client in KNOWN_CLIENTS:
        text = (CLIENTS / f"{client.name}.md").read_text("utf-8")
        assert f"# {client.title}\n" in text
        assert all(path in text for path in (*client.linux, *client.mac))
        assert "mcpproxy" in text and "## What was tried" in text


@pytest.mark.long  # a third of a second of processor time
def test_the_generated_parts_are_those_of_the_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting, a client or an error that changes shows in README and docs, or this fails."""
    monkeypatch.setattr(sys, "argv", ["scripts/regenerate_docs.py", "--check"])  # `make docs` runs the program itself
    assert regenerate_docs.main() == 0, capsys.readouterr().out


@pytest.mark.long  # a third of a second of processor time
def test_every_code_that_a_class_states_has_a_page() -> None:
    """With its status; the syntax trees miss none that is there at run time."""
    codes = error_codes.codes()
    for each in subclasses(ProxyError):
        if each.__module__.startswith("smart_mcp_proxy"):
            assert str(each.http_status) in {fact.http for fact in codes[each.code]}, each
            assert (ERRORS / f"{each.code}.md").exists()


@pytest.mark.parametrize(
    ("code", "http", "fault"),
    [
        ("breaker_open", "502", "upstream"),  # given by `code=`
        ("invalid_request_state", "400", "caller"),  # by a constant
        ("resource_not_found", "400", "caller"),  # by a formatted string
        ("code_error", "400", "caller"),  # by a helper's parameter
        ("too_large", "413", "caller"),  # by a class outside of errors.py
        ("rate_limited", str(RateLimitedError.http_status), "upstream"),  # by two classes
    ],
)
def test_codes_are_found_however_they_are_given(code: str, http: str, fault: str) -> None:
    """Each way that the package has."""
    assert (http, fault) in {(fact.http, fact.fault) for fact in error_codes.codes()[code]}
    assert f"| {http} |" in (ERRORS / f"{code}.md").read_text("utf-8")


def test_a_code_without_words_stops_the_generator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who adds an error says what it means and what to do."""
    words = tmp_path / "errors.toml"
    words.write_text(error_pages.WORDS.read_text("utf-8").replace("[usage]", "[usages]"))
    monkeypatch.setattr(error_pages, "WORDS", words)
    with pytest.raises(SystemExit, match="usage, usages"):
        error_pages.error_pages()


def test_a_page_of_a_client_that_is_gone_is_noticed() -> None:
    """It would stay for ever otherwise."""
    files = regenerate_docs.generated()
    assert regenerate_docs.strangers(files) == []
    gone = CLIENTS / "zed.md"
    assert regenerate_docs.strangers({path: text for path, text in files.items() if path != gone}) == [gone]
