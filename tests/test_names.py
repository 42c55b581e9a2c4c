"""Tool names: legal, short enough, and never the same for two tools."""

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.names import RESERVED_NAMES, build_listed_name, parse_canonical, shell_word

LEGAL = re.compile(r"[A-Za-z0-9_-]+")
ANY = st.text(st.characters(), min_size=1, max_size=40)
TRICKY = st.text("ab_-:é .", min_size=1, max_size=8)
"""Few letters, so that keys are alike."""
PLAIN = st.from_regex(r"[a-z0-9]([a-z0-9-]|_(?!_)){0,12}[a-z0-9]", fullmatch=True)
LIMITS = st.integers(10, 200)


def keys(part: st.SearchStrategy[str]) -> st.SearchStrategy[ToolKey]:
    return st.builds(ToolKey, part, part)


@given(key=keys(ANY), limit=LIMITS)
@settings(max_examples=150, deadline=None)
def test_any_key_gets_a_legal_name_within_the_limit(key: ToolKey, limit: int) -> None:
    """Any text, surrogates and controls included."""
    name = build_listed_name(key, limit)
    assert LEGAL.fullmatch(name)
    assert len(name) <= limit


@pytest.mark.long  # a third of a second of processor time
@given(found=st.lists(keys(TRICKY) | keys(ANY), unique=True, max_size=30), limit=LIMITS)
@settings(max_examples=150, deadline=None)
def test_different_keys_get_different_names(found: list[ToolKey], limit: int) -> None:
    """However alike they are, and in whatever order they come."""
    taken: set[str] = set()
    for key in found:
        name = build_listed_name(key, limit, taken)
        assert name not in taken
        taken.add(name)
    assert taken.isdisjoint(RESERVED_NAMES)


@pytest.mark.long  # a third of a second of processor time
@given(key=keys(PLAIN), others=st.lists(keys(TRICKY) | keys(PLAIN), max_size=10))
@settings(max_examples=60, deadline=None)
def test_a_plain_name_does_not_depend_on_what_else_is_there(key: ToolKey, others: list[ToolKey]) -> None:
    """`server__tool`, whoever came first."""
    taken = {build_listed_name(other, 60) for other in others if other != key}
    assert build_listed_name(key, 60, taken) == f"{key.server}__{key.tool}"


@given(key=keys(ANY), limit=LIMITS)
@settings(deadline=None)
def test_a_name_is_the_same_every_time(key: ToolKey, limit: int) -> None:
    """It is a function of the key as long as it is free."""
    assert build_listed_name(key, limit) == build_listed_name(key, limit)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ToolKey("a", "b__c"), ToolKey("a__b", "c")),
        (ToolKey("a_", "b"), ToolKey("a", "_b")),
        (ToolKey("a b", "c"), ToolKey("a_b", "c")),
        (ToolKey("a:b", "c"), ToolKey("a", "b:c")),
        (ToolKey("é", "c"), ToolKey("è", "c")),
        (ToolKey("s", "x" * 80 + "1"), ToolKey("s", "x" * 80 + "2")),
    ],
)
def test_alike_keys_are_told_apart_without_looking(one: ToolKey, other: ToolKey) -> None:
    """Also in processes that do not know each other's names."""
    assert build_listed_name(one, 60) != build_listed_name(other, 60)


@given(key=keys(ANY), limit=LIMITS)
@settings(max_examples=100, deadline=None)
def test_a_tool_cannot_be_called_like_anothers_listed_name(key: ToolKey, limit: int) -> None:
    """Else who came first would decide, and a server could choose its names so that another's are taken."""
    name = build_listed_name(key, limit)
    server, separator, tool = name.partition("__")
    if separator and server and tool and (server, tool) != key:
        assert build_listed_name(ToolKey(server, tool), limit) != name


@pytest.mark.parametrize(
    ("server", "tool", "limit", "beginning"),
    [
        ("a-server-with-a-very-long-name", "create_issue", 30, "a-server-w__create_is_"),
        ("a-server-with-a-very-long-name", "get", 30, "a-server-with-a-__get_"),
        ("git", "a_tool_with_a_name_that_is_very_long", 30, "git__a_tool_with_a_na_"),
        ("company.tools", "très_long_nom_d_outil", 30, "company_to__tr_s_long_"),
        ("server", "long_tool_name", 15, "server_"),
    ],
)
def test_a_shortened_name_keeps_a_part_of_both(server: str, tool: str, limit: int, beginning: str) -> None:
    """A model can tell what the tool is for, and whose it is; the hash tells the rest apart."""
    name = build_listed_name(ToolKey(server, tool), limit)
    assert name.startswith(beginning) and len(name) == len(beginning) + 8 <= limit


def test_a_date_at_the_end_of_a_name_is_no_suffix() -> None:
    """Such tools are listed as they are called."""
    assert build_listed_name(ToolKey("web", "search_20250305"), 60) == "web__search_20250305"
    assert build_listed_name(ToolKey("web", "search_deadbeef"), 60) != "web__search_deadbeef"


@pytest.mark.long  # a third of a second of processor time
@given(found=st.lists(keys(st.text("aAbB_-é漢字", min_size=1, max_size=100)), unique=True, min_size=2, max_size=8))
@settings(max_examples=100, deadline=None)
def test_names_do_not_depend_on_who_comes_first(found: list[ToolKey]) -> None:
    """Case twins, CJK, names far beyond the limit, and keys that differ only in where the server's name ends."""
    found = list(dict.fromkeys([*found, *(twin for key in found for twin in twins(key))]))

    def named(order: list[ToolKey]) -> dict[ToolKey, str]:
        names: dict[ToolKey, str] = {}
        for key in order:
            names[key] = build_listed_name(key, 60, set(names.values()))
        return names

    names = named(found)
    assert len(set(names.values())) == len(found)
    assert named(found[::-1]) == names


def twins(key: ToolKey) -> list[ToolKey]:
    """Keys that are easily taken for this one."""
    server, tool = key
    shifted = [ToolKey(server + tool[:1], tool[1:])] if len(tool) > 1 else []
    return [ToolKey(server.swapcase(), tool), ToolKey(server, tool.swapcase()), ToolKey(server, tool * 81), *shifted]


def test_a_taken_name_is_not_given_twice() -> None:
    """The plain form is left to the one that has it, and so is every form with a suffix."""
    key = ToolKey("a", "b")
    taken: set[str] = set()
    for _ in range(5):
        name = build_listed_name(key, 10, taken)
        assert name not in taken
        taken.add(name)
    assert "a__b" in taken


@pytest.mark.parametrize("reserved", sorted(RESERVED_NAMES))
def test_the_gateways_own_names_are_nobodys(reserved: str) -> None:
    """Whatever a server and its tools are called."""
    for at in range(1, len(reserved)):
        for key in (ToolKey(reserved[:at], reserved[at:]), ToolKey(reserved[:at].rstrip("_"), reserved[at:])):
            assert build_listed_name(key, 60) not in RESERVED_NAMES


@given(server=ANY.filter(lambda text: ":" not in text), tool=ANY)
@settings(deadline=None)
def test_a_canonical_name_is_read_back(server: str, tool: str) -> None:
    """A server's name has no colon; a tool's may have any."""
    key = ToolKey(server, tool)
    assert parse_canonical(str(key)) == key


@pytest.mark.parametrize("name", ["", ":", "a:", ":b", "plain", "a__b"])
def test_what_is_not_canonical_is_no_key(name: str) -> None:
    """Both parts must be there."""
    assert parse_canonical(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "up:tool",
        "up:x$(touch /tmp/pwn)",
        "up:it's; rm -rf ~",
        "up:`id`",
        "a b",
        "",
        "b\x1b[2K\\'\n\u202e",
        "\U000e0041\x9b",
    ],
)
def test_a_suggested_name_is_one_word_of_a_shell_and_commands_no_terminal(name: str) -> None:
    """The shell takes it for what the server called it."""
    word = shell_word(name)
    assert word.isprintable()
    done = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], capture_output=True, env={"LC_ALL": "C.UTF-8"}, check=True
    )
    assert done.stdout.decode() == name
