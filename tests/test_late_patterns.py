"""A late pattern is the pattern that `re` makes, from its first use on."""

import re

import pytest

from smart_mcp_proxy.late_patterns import compile_late


def test_nothing_is_compiled_before_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """And then once, whichever method is called."""
    made: list[str] = []
    compile_now = re.compile
    monkeypatch.setattr(re, "compile", lambda text, flags=0: made.append(text) or compile_now(text, flags))
    late = compile_late(r"(?P<word>[a-z]+)-\d", re.IGNORECASE)
    assert made == []
    assert late.sub("x", "a-1, B-2") == "x, x"
    assert [found["word"] for found in late.finditer("a-1, B-2")] == ["a", "B"]
    assert late.match("A-1") and late.fullmatch("A-1") and late.search("-a-1") and not late.match("-")
    assert (late.findall("a-1"), late.split("_a-1_"), late.subn("", "a-1")) == (["a"], ["_", "a", "_"], ("", 1))
    assert made == [r"(?P<word>[a-z]+)-\d"]


def test_what_a_pattern_says_of_itself_is_said() -> None:
    """Its text, flags and groups; it has nothing else."""
    late = compile_late("(a)(b)", re.IGNORECASE)
    assert (late.pattern, late.groups, late.flags & re.IGNORECASE) == ("(a)(b)", 2, re.IGNORECASE)
    with pytest.raises(AttributeError):
        late.matches  # noqa: B018  # type: ignore[attr-defined]
