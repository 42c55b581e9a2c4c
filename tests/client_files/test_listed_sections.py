"""Servers that stand in a list, each with its name: our entry goes in and out, and every other byte stays."""

import pytest

from smart_mcp_proxy.client_files.texts import edit, parse, read_section
from smart_mcp_proxy.errors import ConfigError

SECTION = ("mcpServers", "[]")
ENTRY = {"name": "mcpproxy", "command": "mcpproxy", "args": ["serve"]}
OTHER = {"name": "other", "command": "srv"}
BLOCKS = {
    "indented": "a: 1\nmcpServers:\n  # first\n  - name: other   # mine\n    command: srv\n\n# behind\nb: 2\n",
    "flush": "mcpServers:\n- name: other\n  command: srv\n- uses: some/reference\nrules: []\n",
    "no end of line": "mcpServers:\n  - command: srv\n    name: other",
    "in brackets": "mcpServers: [{name: other, command: srv}]\nb: 2\n",
    "in braces": '{"mcpServers": [{"name": "other", "command": "srv"}]}\n',
}


@pytest.mark.parametrize("text", BLOCKS.values(), ids=BLOCKS)
def test_an_entry_goes_in_and_out_of_a_list(text: str) -> None:
    """A second time changes nothing, a changed entry stays in its place, and the others are as they were."""
    added = edit(text, "yaml", SECTION, {"mcpproxy": ENTRY}, "the file")
    found = read_section(parse(added, "yaml", "x"), SECTION, "x")
    assert found == {"other": OTHER, "mcpproxy": ENTRY}
    assert edit(added, "yaml", SECTION, {"mcpproxy": ENTRY}, "the file") == added
    changed = edit(added, "yaml", SECTION, {"mcpproxy": {**ENTRY, "args": ["attach"]}}, "the file")
    assert read_section(parse(changed, "yaml", "x"), SECTION, "x")["mcpproxy"]["args"] == ["attach"]
    gone = edit(changed, "yaml", SECTION, {"mcpproxy": None}, "the file")
    assert gone.rstrip() == text.rstrip()


@pytest.mark.parametrize("text", ["", "a: 1\n", "mcpServers: []\n", "mcpServers:\na: 1\n"], ids=repr)
def test_an_entry_goes_into_a_list_that_is_not_there_or_empty(text: str) -> None:
    """And taking it out leaves no server."""
    added = edit(text, "yaml", SECTION, {"mcpproxy": ENTRY}, "the file")
    assert parse(added, "yaml", "x")["mcpServers"] == [ENTRY]
    gone = edit(added, "yaml", SECTION, {"mcpproxy": None}, "the file")
    assert read_section(parse(gone, "yaml", "x"), SECTION, "x") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mcpServers: {a: {command: x}}\n", "does not hold its servers in a list"),
        ("mcpServers: [{name: a, command: x}, {name: a, command: y}]\n", "two servers of one name"),
    ],
)
def test_a_list_that_cannot_be_edited_is_left_alone(text: str, words: str) -> None:
    """With what is wrong and what to do next."""
    with pytest.raises(ConfigError, match=words) as caught:
        edit(text, "yaml", SECTION, {"mcpproxy": ENTRY}, "the file")
    assert caught.value.hint


def test_an_entry_without_a_name_stays() -> None:
    """As a reference to another file has none."""
    text = "mcpServers:\n  - uses: some/reference\n  - name: mcpproxy\n    command: old\n"
    gone = edit(text, "yaml", SECTION, {"mcpproxy": None}, "the file")
    assert gone == "mcpServers:\n  - uses: some/reference\n"
