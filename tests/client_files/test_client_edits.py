"""Edits of client files as text: whatever is in them, all but our entry stays byte by byte."""

import json
import re
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.client_files.clients import TextFormat
from smart_mcp_proxy.client_files.texts import edit, parse
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers.jsonc import parse_jsonc

ENTRY = {"command": "/bin/mcpproxy", "args": ["serve"], "env": {"A": "x y"}}
NAMES = st.text("abcXYZ019_-", min_size=1, max_size=8)
WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\x85"), max_size=12
)
COMMENT = st.text("abc {}[]\"':,#/-", max_size=14)
WORD = re.compile(r"[^\s,{}]+")
EOL = st.sampled_from(["\n", "\r\n"])


@st.composite
def jsonc_files(draw: st.DrawFn) -> str:
    """An object with a section, foreign entries, comments, odd blanks and trailing commas."""
    eol, unit = draw(EOL), draw(st.sampled_from(["  ", "\t", "    "]))
    comment = COMMENT.map(lambda text: text.replace("*/", "").replace("/*", ""))

    def remark() -> str:
        kind = draw(st.sampled_from(["", "", f" // {draw(comment)}{eol}{unit}", f" /* {draw(comment)} */ "]))
        return kind.replace("*/ */", "*/")

    def joined(members: list[str], indent: str) -> str:
        tail = draw(st.sampled_from(["", ","])) if members else ""
        lines = [f"{eol}{indent}{unit}{member}" for member in members]
        return "{" + remark() + f",{remark()}".join(lines) + tail + remark() + eol + indent + "}"

    def entry() -> str:
        value = {"command": draw(WORDS), "args": draw(st.lists(WORDS, max_size=2)), "env": {"K": draw(WORDS)}}
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    names = draw(st.lists(NAMES, unique=True, max_size=4))
    section = joined([f"{json.dumps(name)}:{remark()}{entry()}" for name in names], unit)
    others = [f"{json.dumps('o' + name)}: {json.dumps(draw(WORDS))}" for name in draw(st.lists(NAMES, unique=True))]
    members = draw(st.permutations([*others, *([f'"mcpServers": {section}'] if draw(st.booleans()) else [])]))
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return mark + joined(list(members), "") + draw(st.sampled_from(["", eol]))


@st.composite
def toml_files(draw: st.DrawFn) -> str:
    """Tables, arrays of several lines and long texts that look like headings, with comments everywhere."""
    eol = draw(EOL)

    def remark() -> str:
        return draw(st.sampled_from(["", f" # {draw(COMMENT)}"]))

    def lines() -> list[str]:
        found = [f"command = {json.dumps(draw(WORDS), ensure_ascii=False)}{remark()}"]
        if draw(st.booleans()):
            found += ["args = [", f"  '[x]', {remark()}", f"  {json.dumps(draw(NAMES))}", "]"]
        if draw(st.booleans()):
            inner = draw(st.sampled_from(['# "quoted"', '\\"""', '""', "\u2028[mcp_servers.mcpproxy]", "'''"]))
            found += ['note = """', "[mcp_servers.mcpproxy]", inner, '"""', f"k = 1{remark()}"]
        if draw(st.booleans()):
            found.append(f"# {draw(COMMENT)}")
        return found

    out = [f"# {draw(COMMENT)}", f"model = {json.dumps(draw(NAMES))}{remark()}"]
    form = draw(st.sampled_from(["tables", "dotted", "inline"]))
    if form == "dotted":
        out += [f"mcp_servers.dotted.{key} = 'x'{remark()}" for key in ("command", "env.'A B'")]
    out.append("")
    if form == "inline":
        out += [f"[mcp_servers]{remark()}", f'inline = {{ command = "]" }}{remark()}', "short.args = [ # ]", '"["]', ""]
    for name in draw(st.lists(NAMES.filter(lambda name: name != "mcpproxy"), unique=True, max_size=3)):
        out += [f"[mcp_servers.{name}]{remark()}", *lines(), ""]
    if draw(st.booleans()):
        out += [f"[[list]]{remark()}", "a = 1", "", f"# {draw(COMMENT)}", "[tui]", "x = true"]
    return eol.join(out) + draw(st.sampled_from(["", eol, eol * 2]))


@st.composite
def yaml_files(draw: st.DrawFn) -> str:
    """Block and flow style, lists, long texts, comments and odd indents."""
    eol, unit = draw(EOL), draw(st.sampled_from(["  ", "    "]))

    def remark() -> str:
        return draw(st.sampled_from(["", f"  # {draw(COMMENT)}"]))

    def entry(name: str) -> list[str]:
        found = [f"{unit}{json.dumps(name)}:{remark()}", f"{unit * 2}cmd: {json.dumps(draw(NAMES))}{remark()}"]
        kind = draw(st.sampled_from(["list", "flow", "text", "none"]))
        if kind == "list":
            found += [f"{unit * 2}args:", f"{unit * 2}- {json.dumps(draw(NAMES))}{remark()}"]
        elif kind == "flow":
            found.append(f"{unit * 2}envs: {{A: {json.dumps(draw(NAMES))}}}{remark()}")
        elif kind == "text":
            found += [f"{unit * 2}note: |", f"{unit * 3}extensions:", f"{unit * 3}# no comment"]
        return [*found, f"{unit}# {draw(COMMENT)}"] if draw(st.booleans()) else found

    names = draw(st.lists(NAMES, unique=True, max_size=3))
    section = [line for name in names for line in entry(name)]
    flow = [f"{json.dumps(name)}: {{cmd: 'a # b', <<: *shared, at: 2024-01-01}}" for name in names]
    braces = draw(st.sampled_from(["{%s}", "{ %s }", "{%s,}", "{" + eol + "  %s" + eol + "}"]))
    if names:
        in_braces = ["common: &shared {type: stdio}", f"extensions: {braces % ', '.join(flow)}{remark()}"]
        heads = draw(st.sampled_from([[f"extensions:{remark()}", *section], in_braces]))
    else:
        heads = draw(st.sampled_from([[f"extensions: {{}}{remark()}"], [f"extensions:{remark()}"], []]))
    rest = [f"# {draw(COMMENT)}", f"MODE: {json.dumps(draw(NAMES))}{remark()}"]
    parts = [*heads, *rest] if draw(st.booleans()) else [*rest, *heads]
    is_open = parts[-1].endswith("no comment")  # a line end behind it would belong to the text
    return eol.join(["# head", *parts]) + (eol if is_open else draw(st.sampled_from(["", eol])))


def lines_of(text: str, language: TextFormat) -> list[str]:
    """The lines without a comma at their ends; without any in YAML, whose braces may hold all entries in one line."""
    lines = text.replace(",", "") if language == "yaml" else text
    return [line.rstrip(",").rstrip() for line in lines.splitlines() if line.strip()]


def is_inside(part: list[str], whole: list[str]) -> bool:
    """Whether `part` is left when some elements of `whole` are taken out."""
    rest = iter(whole)
    return all(each in rest for each in part)


def check(text: str, language: TextFormat, section: str, load: Any) -> None:
    """Our entry comes and goes; nothing else moves."""
    data = load(text)
    after = edit(text, language, (section,), {"mcpproxy": ENTRY}, "f")
    found = load(after)
    assert found[section]["mcpproxy"] == ENTRY
    assert list(found[section])[-1] == "mcpproxy"
    assert {key: value for key, value in found.items() if key != section} == {
        key: value for key, value in data.items() if key != section
    }
    assert edit(after, language, (section,), {"mcpproxy": ENTRY}, "f") == after
    gone = edit(after, language, (section,), {"mcpproxy": None}, "f")
    if data.get(section):
        assert load(gone) == data
        assert lines_of(gone, language) == lines_of(text, language)
    # Every word that is not ours is still there, in its order.
    assert is_inside(WORD.findall(text), WORD.findall(after))
    assert is_inside(WORD.findall(text), WORD.findall(gone))
    for comment in (line.strip() for line in text.splitlines() if line.strip().startswith(("#", "//"))):
        assert comment in after and comment in gone


COUNTS = [100, pytest.param(500, marks=pytest.mark.soak)]
"""How many random files are tried of each language."""


def check_many(files: st.SearchStrategy[str], count: int, language: TextFormat, section: str, load: Any) -> None:
    """So many of these files."""

    @settings(max_examples=count, deadline=None)
    @given(files)
    def check_one(text: str) -> None:
        check(text, language, section, load)

    check_one()


@pytest.mark.long
@pytest.mark.parametrize("count", COUNTS)
def test_a_random_json_file_keeps_comments_order_and_foreign_entries(count: int) -> None:
    """Each is at least what a person may have written."""
    check_many(jsonc_files(), count, "json", "mcpServers", lambda found: parse_jsonc(found.encode(), "f"))


@pytest.mark.long
@pytest.mark.parametrize("count", COUNTS)
def test_a_random_toml_file_keeps_comments_order_and_foreign_entries(count: int) -> None:
    """Whatever tables, arrays and texts it has."""
    check_many(toml_files(), count, "toml", "mcp_servers", tomllib.loads)


@pytest.mark.long
@pytest.mark.parametrize("count", COUNTS)
def test_a_random_yaml_file_keeps_comments_order_and_foreign_entries(count: int) -> None:
    """In block style and in braces."""
    check_many(yaml_files(), count, "yaml", "extensions", yaml.safe_load)


PLACES = [
    (
        "[mcp_servers]\nmcpproxy = {command = 'x'}\na = {command = 'y'}\n",
        "toml",
        "[mcp_servers]\na = {command = 'y'}\n",
    ),
    ("mcp_servers.mcpproxy.args = [ # ]\n  ']',\n]\nmodel = 1\n", "toml", "model = 1\n"),
    (
        "[mcp_servers]\nmcpproxy.command = 'x'\n# of a\na.command = 'y'\n",
        "toml",
        "[mcp_servers]\n# of a\na.command = 'y'\n",
    ),
    ("extensions: {mcpproxy: {cmd: x}, a: {b: 1}}\n", "yaml", "extensions: {a: {b: 1}}\n"),
    ("extensions: {a: {b: 1}, mcpproxy: {cmd: x}}\n", "yaml", "extensions: {a: {b: 1}}\n"),
    ("extensions: {a: 1, # one\n  mcpproxy: {}}\n", "yaml", "extensions: {a: 1, # one\n  }\n"),
    ("{a: {}, extensions: {mcpproxy: {cmd: x}}}\n", "yaml", "{a: {}, extensions: {}}\n"),
]


@pytest.mark.parametrize(("text", "language", "gone"), PLACES)
def test_our_entry_is_changed_and_taken_out_however_it_was_written(text: str, language: TextFormat, gone: str) -> None:
    """Inline tables, dotted keys and braces are not what is written here, but a person may have done it."""
    section = {"toml": "mcp_servers", "yaml": "extensions"}[language]
    changed = edit(text, language, (section,), {"mcpproxy": ENTRY}, "f")
    assert parse(changed, language, "f")[section]["mcpproxy"] == ENTRY
    assert edit(text, language, (section,), {"mcpproxy": None}, "f") == gone


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('{"mcpServers": {}, "mcpServers": {}}', "json"),
        ('{"mcpServers": {"a": {}, "a": {}}}', "json"),
        ('{"mcpServers": []}', "json"),
        ("[1]", "json"),
        ('{"mcpServers": {', "json"),
        ("a = 1\na = 2\n", "toml"),
        ("mcp_servers = { x = {} }\n", "toml"),
        ("mcp_servers = 3\n", "toml"),
        ("extensions: {}\nextensions: {}\n", "yaml"),
        ("extensions:\n  a: 1\n  a: 2\n", "yaml"),
        ("- a\n", "yaml"),
        ("a: [\n", "yaml"),
        ("a: 1\n---\nb: 2\n", "yaml"),
        ("extensions: {a: 1, b: 2 # secret\n  }\n", "yaml"),
    ],
)
def test_what_cannot_be_edited_is_refused_without_its_content(text: str, language: TextFormat) -> None:
    """Broken files, keys that are there twice, other shapes, and places that would lose a comment."""
    section = {"json": "mcpServers", "toml": "mcp_servers", "yaml": "extensions"}[language]
    with pytest.raises(ConfigError) as refused:
        edit(text, language, (section,), {"mcpproxy": ENTRY}, "the file")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("# mine\nx = nan\ny = [-inf, {z = +nan}]\n[mcp_servers.a]\ntimeout = inf\n", "toml"),
        ("x: .nan\nextensions:\n  a: {timeout: .inf}\n", "yaml"),
    ],
)
def test_numbers_that_are_none_are_kept(text: str, language: TextFormat) -> None:
    """Valid in both languages, and equal to nothing, not even to themselves."""
    section = {"toml": "mcp_servers", "yaml": "extensions"}[language]
    after = edit(text, language, (section,), {"mcpproxy": ENTRY}, "f")
    assert after.startswith(text) and parse(after, language, "f")[section]["mcpproxy"] == ENTRY
    assert edit(after, language, (section,), {"mcpproxy": None}, "f") == text


@pytest.mark.parametrize("text", ["mcp_servers = {}", "# mine\n'mcp_servers' = { a = {command = 'x'} } # of mine\n"])
def test_braces_of_toml_are_refused_with_what_to_write_instead(text: str) -> None:
    """TOML allows nothing to be added to them from elsewhere."""
    with pytest.raises(ConfigError) as refused:
        edit(text, "toml", ("mcp_servers",), {"mcpproxy": ENTRY}, "config.toml")
    assert f"line {1 + text.startswith('#')}: 'mcp_servers' is written in braces" in str(refused.value)
    assert "[mcp_servers.NAME]" in refused.value.hint


@pytest.mark.parametrize("language", ["json", "toml", "yaml"])
@pytest.mark.parametrize("text", ["", "\n", " \n\n", "\ufeff"])
def test_an_empty_file_gets_the_entry_alone(text: str, language: TextFormat) -> None:
    """Blanks and a byte order mark are not content."""
    section = {"json": "mcpServers", "toml": "mcp_servers", "yaml": "extensions"}[language]
    after = edit(text, language, (section,), {"mcpproxy": ENTRY}, "f")
    assert parse(after, language, "f") == {section: {"mcpproxy": ENTRY}}
