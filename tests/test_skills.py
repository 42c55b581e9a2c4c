"""Entries of skills, and the URIs that skills have at the gateway."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.gateway.visibility.uri_templates import gateway_skill_uri, gateway_uri, split_gateway_uri
from smart_mcp_proxy.skills import files_of, is_inside, root_of, skill_problem

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
    files = files_of(entry())
    assert files is not None and list(files) == ["skill://a/b/SKILL.md", "skill://a/b/x/y.md"]
    assert files_of(entry(resources="dynamic")) is None


@pytest.mark.parametrize(
    "odd", [None, [], "x", {}, {"uri": "skill://a/SKILL.md"}, entry(_meta=7), entry(uri="a/SKILL.md")]
)
def test_what_is_no_entry_has_a_problem(odd: Any) -> None:
    """Said in a sentence."""
    assert skill_problem(odd)


def test_a_file_is_inside_its_directory_alone() -> None:
    """Neither the directory itself, nor one whose name only begins alike."""
    root = root_of("skill://a/b/SKILL.md")
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
