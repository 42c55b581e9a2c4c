"""Where rules come from can be opened: each `Source:` is a URL, an RFC, or a heading of the repository."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import ROOT

FOLDERS = ("smart_mcp_proxy", "tests", "scripts", "findings", "docs")
KINDS = {".py", ".toml", ".sh", ".md"}
MANIFESTS = (ROOT / "tests/interaction/requirements.toml", ROOT / "tests/proxying/requirements.toml")
FAULTS = ROOT / "docs/design/faults.md"
SOURCE = re.compile(r"(?<!class )(?<!-> )(?<![\w*`])Sources?:(?!\w)")
"""Not a class of that name, nor what a function returns, nor where it is spoken of."""
_NUMBERS = r"\d+(?:\.\d+)*"
URL = re.compile(r"https?://[a-z0-9][a-z0-9.-]*\.[a-z]{2,}(?:/[^\s;\"']*)?")
_PLACE = rf"sections? {_NUMBERS}(?:(?:, | and | to ){_NUMBERS})*|appendix [A-Z](?:\.\d+)*"
RFC = re.compile(rf"RFC \d{{3,5}}(?:, (?:{_PLACE}))?")
PATH = re.compile(r"([\w.-]+(?:/[\w.-]+)+)(?:#([\w-]+))?")
ONE = re.compile(rf"(?:{URL.pattern}|{RFC.pattern}|{PATH.pattern})")
ALL = re.compile(rf"Sources?:[\s#]+(?P<all>{ONE.pattern}(?:;[\s#]+{ONE.pattern})*)\.?(?=\"\"\"|\n|\)?$)")
"""All that is said behind the word, up to the end of its line or docstring; a line breaks behind `;` alone."""
FAULT = re.compile(r"(?<![\w.:%+='-])[BFHJKLMNT]\d{1,2}(?![\w'-]|:\d)")
"""A letter and a number, as lists of faults, findings and threats number theirs."""
NO_FAULTS = ("tests/search/", "tests/policy/scanner_set/", "smart_mcp_proxy/search/embedders/", "docs/design/faults.md")
"""There these are types of numbers, or texts of others."""
OTHER_CODES = {"F0"}
"""The beginning of an SQLSTATE."""
UNOPENED = re.compile(
    r"\b(?:contract|product)\.md|(?<![/'\"])\barchitecture\.md|\bseeds/|\bseed \d\b"
    r"|\bnotes/(?:clients|ecosystem|fastmcp|findings|reliability)\b|\b[Ii]ssue #?\d+[.:)]"
)
"""Papers that were there when this was built, and numbers of issues."""


def slugs(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def faults_of(references: str) -> list[str]:
    """Those of several references that cannot be opened."""
    return [one for one in re.split(r";[\s#]+", references) if not can_be_opened(one)]


def can_be_opened(reference: str) -> bool:
    """Whether it has the form of a URL or an RFC, or names a file here, of a page with one of its headings."""
    if URL.fullmatch(reference) or RFC.fullmatch(reference):
        return True
    if (match := PATH.fullmatch(reference)) is None:
        return False
    file, heading = ROOT / match[1], match[2]
    if not file.is_file():
        return False
    return heading in slugs(file.read_text("utf-8")) if file.suffix == ".md" else heading is None


def files() -> Iterator[tuple[str, str]]:
    """Path and text of what may name a source, but for this file."""
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in KINDS and file != Path(__file__) and "node_modules" not in file.parts:
                yield file.relative_to(ROOT).as_posix(), file.read_text("utf-8")


def sources(text: str) -> Iterator[tuple[int, str | None]]:
    """Line of each `Source:` and what it names; None where that is no list of references."""
    for found in SOURCE.finditer(text):
        match = ALL.match(text, found.start())
        yield text.count("\n", 0, found.start()) + 1, match and match["all"]


@pytest.mark.long  # a third of a second of processor time
def test_every_source_can_be_opened() -> None:
    """No paper that a reader does not have, and no heading that is not there."""
    bad = [
        f"{path}:{line}: {named}"
        for path, text in files()
        for line, named in sources(text)
        if named is None or faults_of(named)
    ]
    assert bad == []


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.parent.name)
def test_every_promise_comes_from_what_can_be_opened(manifest: Path) -> None:
    """The lists of promises name their sources in the same form."""
    rows = tomllib.loads(manifest.read_text("utf-8"))
    assert {id_: bad for id_, row in rows.items() if (bad := faults_of(row["source"]))} == {}


@pytest.mark.long  # a third of a second of processor time
def test_every_fault_that_is_named_is_in_the_list_and_the_reverse() -> None:
    """A name means something only where the list has it, and a line that no test names is none that holds."""
    defined = re.findall(r"^- \*\*([BF]\d\d)\*\* ", FAULTS.read_text("utf-8"), re.MULTILINE)
    named = {fault for path, text in files() if not path.startswith(NO_FAULTS) for fault in FAULT.findall(text)}
    assert len(defined) == len(set(defined))
    assert named - OTHER_CODES == set(defined)


@pytest.mark.long  # a third of a second of processor time
def test_no_paper_is_named_that_is_not_here() -> None:
    """Elsewhere neither."""
    assert [(path, found[0]) for path, text in files() if (found := UNOPENED.search(text))] == []


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ('"""Source: RFC 9110, section 15.5.1."""', True),
        ('"""Of a list. Source: RFC 7009, sections 2.1 and 2.2; RFC 3986, appendix B"""', True),
        ('"""Source: https://json-schema.org/draft/2020-12/json-schema-validation;\n    RFC 9449.\n    """', True),
        ("x = 1  # Source: docs/design/limits.md#listing", True),
        ('"""Source: docs/design/limits.md#nowhere"""', False),
        ('"""Source: docs/design/limits.md"""', False),
        ('"""Source: docs/design/nowhere.md#listing"""', False),
        ('"""Source: smart_mcp_proxy/pool.py"""', True),
        ('"""Source: smart_mcp_proxy/nowhere.py"""', False),
        ('"""Source: RFC 9110, 15.5.1."""', False),
        ('"""Source: RFC 9110, section 15.5.1: a bad request."""', False),
        ('"""Source: the SDK\'s own default."""', False),
        ('"""Source: issue 21."""', False),
    ],
)
def test_the_rule_finds_what_it_forbids(text: str, is_good: bool) -> None:
    """And takes what it allows."""
    ((_, named),) = sources(text)
    assert (named is not None and not faults_of(named)) is is_good


def test_headings_become_anchors_as_on_the_site() -> None:
    """Punctuation goes, a blank becomes a hyphen, and what stands in a block is no heading."""
    assert slugs("# The `proxy` tool's name\n```\n# no\n```\n## A  b-c, d") == {"the-proxy-tools-name", "a--b-c-d"}
