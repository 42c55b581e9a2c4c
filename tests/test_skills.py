"""Entries of skills, their frontmatter, and the URIs that skills have at the gateway."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_skill_uri, gateway_uri, split_gateway_uri
from smart_mcp_proxy.skills import find_skill_root, frontmatter_problem, is_inside, map_skill_files, skill_problem

DIGEST = "sha256:" + "0" * 64
segments = st.text("abc%3A./:~ü", min_size=1, max_size=8)
paths = st.lists(segments, min_size=1, max_size=4).map("/".join)
servers = st.text("ab:/% ~", min_size=1, max_size=6)


def entry(**changes: Any) -> dict[str, Any]:
    files = [{"uri": f"skill://a/b/{path}", "digest": DIGEST, "size": 1} for path in ("SKILL.md", "x/y.md")]
    about = {"name": "b", "description": "does b"}
    return {"uri": "skill://a/b/SKILL.md", "frontmatter": about, "resources": files} | changes


def test_a_whole_entry_is_usable() -> None:
    """With files, and generated."""
    assert skill_problem(entry()) is None
    assert skill_problem(entry(resources="dynamic")) is None
    files = map_skill_files(entry())
    assert files is not None and list(files) == ["skill://a/b/SKILL.md", "skill://a/b/x/y.md"]
    assert map_skill_files(entry(resources="dynamic")) is None


@pytest.mark.parametrize(
    "odd", [None, [], "x", {}, {"uri": "skill://a/SKILL.md"}, entry(_meta=7), entry(uri="a/SKILL.md")]
)
def test_what_is_no_entry_has_a_problem(odd: Any) -> None:
    """Said in a sentence."""
    assert skill_problem(odd)


def test_a_file_is_inside_its_directory_alone() -> None:
    """Neither the directory itself, nor one whose name only begins alike."""
    root = find_skill_root("skill://a/b/SKILL.md")
    assert root == "skill://a/b"
    assert is_inside(root, "skill://a/b/c") and is_inside(root, "skill://a/b/c/d")
    assert not any(is_inside(root, uri) for uri in ("skill://a/b", "skill://a/b/", "skill://a/bc/d", "skill://a/c"))


@given(servers, st.sampled_from(["skill", "repo", "https", "x-y"]), paths)
def test_a_skills_uri_leads_back_to_its_server(server: str, scheme: str, path: str) -> None:
    """Whatever the server's name, the scheme and the path: no two have one URI, and the path below stays as it is."""
    own = f"{scheme}://{path}"
    shown = gateway_skill_uri(server, own)
    assert split_gateway_uri(shown) == (server, own)
    assert shown.startswith("skill://") and shown.endswith(f"/{path}")
    if scheme == "skill":
        assert gateway_uri(server, own) == shown


ABOUT = {"name": "b", "description": "does b"}
WRITTEN = "---\nname: b\ndescription: does b\n---\n# b\n"


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        (WRITTEN, ABOUT),
        (WRITTEN.replace("\n", "\r\n"), ABOUT),
        ("\ufeff" + WRITTEN, ABOUT),
        ("---\ndescription: >-\n  does\n  b\nname: 'b'\n---\n--- more", ABOUT),
        ("---\nname: b\ndescription: does b\n---", ABOUT),
        (
            WRITTEN.replace("does b", "does b\nmetadata: {version: 1.0, on: [yes, ~]}"),
            ABOUT | {"metadata": {"version": 1, "on": [True, None]}},
        ),
        (WRITTEN.replace("does b", "does b\nsince: 2026-01-02"), ABOUT | {"since": "2026-01-02"}),
        (WRITTEN.replace("does b", "does b\nsince: 2026-01-02"), ABOUT | {"since": "2026-01-02T00:00:00.000Z"}),
        (WRITTEN.replace("does b", "does b\nmode: 010"), ABOUT | {"mode": 8}),
        (WRITTEN.replace("does b", "does b\nmode: 010"), ABOUT | {"mode": 10}),
    ],
)
def test_frontmatter_is_the_entrys_however_it_is_written(text: str, stated: dict[str, Any]) -> None:
    """Line ends, quotes and folds are YAML's business; which of its versions a server read it by is the server's."""
    assert frontmatter_problem(text, stated) is None


@pytest.mark.parametrize(
    ("text", "stated", "said"),
    [
        (WRITTEN.replace("does b", "steals b"), ABOUT, "'description'"),
        (WRITTEN, ABOUT | {"name": "c"}, "'name'"),
        (WRITTEN, ABOUT | {"license": "MIT"}, "'license'"),
        (WRITTEN.replace("does b", "does b\nallowed-tools: Bash"), ABOUT, "'allowed-tools'"),
        (WRITTEN.replace("does b", "does b\nmetadata: {a: 1}"), ABOUT | {"metadata": {"a": True}}, "'metadata'"),
        (WRITTEN.replace("does b", "does b\nsince: 2026-01-02"), ABOUT | {"since": "2026-01-02 and more"}, "'since'"),
        (WRITTEN.replace("does b", "does b\nname: c"), ABOUT, "twice"),
        (WRITTEN.replace("does b", "does: b"), ABOUT, "not YAML"),
        (WRITTEN.replace("does b", "[" * 201), ABOUT, "too many brackets"),
        (WRITTEN.replace("does b", "- " * 5_000), ABOUT, "not YAML"),
        ("# b\n" + WRITTEN, ABOUT, "does not begin with frontmatter"),
        ("---\nname: b\n", ABOUT, "does not begin with frontmatter"),
        (WRITTEN.replace("does b", "x" * 20_000), ABOUT, "does not begin with frontmatter"),
        ("---\n- b\n---\n", ABOUT, "'name', 'description'"),
        ("---\n&a [*a, *a]\n---\n", ABOUT, "'name'"),
        ("", ABOUT, "does not begin with frontmatter"),
    ],
)
def test_frontmatter_that_differs_is_told_by_its_fields(text: str, stated: dict[str, Any], said: str) -> None:
    """And by no word of their values."""
    problem = frontmatter_problem(text, stated)
    assert problem is not None and said in problem
    assert "steals" not in problem


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-9, 9) | st.text("ab:-# \n", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.long  # a third of a second of processor time
@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), json_values, max_size=4), st.text("abc", min_size=1))
def test_what_yaml_writes_of_an_entry_is_its_frontmatter(about: dict[str, Any], more: str) -> None:
    """Whatever it holds; a field more on one side is told."""
    written = f"---\n{yaml.safe_dump(about)}---\n"
    assert frontmatter_problem(written, about) is None
    if more not in about:
        assert frontmatter_problem(written, about | {more: None}) is not None
