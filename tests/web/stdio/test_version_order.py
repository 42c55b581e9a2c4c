"""Versions of programs that meet: which of them takes the place of the other's gateway."""

from itertools import pairwise

from smart_mcp_proxy.web.stdio.joined import rank_version


def test_versions_have_the_order_of_python_packages() -> None:
    """A newer pre-release and a post-release are newer, and no older release replaces them."""
    ordered = (
        *("no version", "0.9", "1.2.0.dev3", "1.2.0a1", "1.2.0b1.dev2", "1.2.0b1", "1.2.0b2", "1.2.0rc1", "1.2.0"),
        *("1.2.0.post1.dev1", "1.2.0.post1", "1.2.1", "1.3.0.dev1", "1.3.0rc1", "1.3.0rc10", "1.10", "2.0.0.post1"),
    )
    for older, newer in pairwise(ordered):
        assert rank_version(older) < rank_version(newer), (older, newer)


def test_spellings_of_one_version_replace_each_other_in_neither_direction() -> None:
    """Nor do builds of it."""
    assert rank_version("1.2") == rank_version("1.2.0") == rank_version("1.2.0+g1234")
    assert rank_version("10") != rank_version("1")
