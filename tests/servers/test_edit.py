"""A change of the server file touches what it changes, and nothing else that a person wrote."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers.edit import is_same, rewrite
from smart_mcp_proxy.servers.edit_servers import list_changed_fields, merge
from smart_mcp_proxy.servers.jsonc import parse_jsonc

FILE = """\
{
  // my servers
  "mcpServers": {
    // source control
    "git": {"command": "uvx", "args": ["a", "b"], "env": {"A": "1"}}, // keep
    "time": { /* old */
      "command": "uvx"
    }
  },
  "inputs": [1,2],   "other": "\\u00e9"
}
"""


def read(text: str) -> Any:
    return json.loads(json.dumps(parse_jsonc(text.encode(), "test")))


def edited(text: str, change: Any) -> str:
    value = read(text)
    change(value)
    after = rewrite(text, value)
    assert is_same(read(after), value)
    return after


def test_a_scalar_is_replaced_in_its_place() -> None:
    """The line's other words, its comment and all other lines stay."""
    after = edited(FILE, lambda value: value["mcpServers"]["git"]["env"].update(A="2"))
    assert after == FILE.replace('"A": "1"', '"A": "2"')


def test_a_member_is_added_in_the_style_of_its_neighbours() -> None:
    """On the same line where all stand on one, else on a line of its own with the same indent."""
    after = edited(FILE, lambda value: value["mcpServers"]["git"]["env"].update(B="2"))
    assert after == FILE.replace('{"A": "1"}', '{"A": "1", "B": "2"}')
    after = edited(FILE, lambda value: value["mcpServers"].update(new={"url": "http://x"}))
    new = ',\n    "new": {\n      "url": "http://x"\n    }\n  },\n  "inputs"'
    assert after == FILE.replace('\n  },\n  "inputs"', new)


def test_a_member_that_goes_takes_its_line_and_its_comma() -> None:
    """The comments around it are not ours to judge."""
    after = edited(FILE, lambda value: value["mcpServers"].pop("git"))
    assert '    // source control\n    // keep\n    "time"' in after
    after = edited(FILE, lambda value: value["mcpServers"].pop("time"))
    assert after == FILE.replace('}}, // keep\n    "time": { /* old */\n      "command": "uvx"\n    }', "}} // keep")


def test_arrays_are_changed_where_they_differ() -> None:
    """Elements are removed, changed and added without a look at the others."""
    assert rewrite("[1, /* two */ 2, 3]", [1, 2]) == "[1, /* two */ 2]"
    assert rewrite("[1, /* two */ 2, 3]", [1, 5, 3, 4]) == "[1, /* two */ 5, 3, 4]"
    assert rewrite("[1, /* two */ 2, 3]", [2, 3]) == "[/* two */ 2, 3]"


@pytest.mark.parametrize(
    ("text", "value", "after"),
    [
        ("{}", {"a": 1}, '{\n  "a": 1\n}'),
        ("{ // none\n}", {"a": 1}, '{ // none\n  "a": 1\n}'),
        ('{\r\n\t"a": 1\r\n}', {"a": 1, "b": {"c": 2}}, '{\r\n\t"a": 1,\r\n\t"b": {\r\n\t\t"c": 2\r\n\t}\r\n}'),
        ('{"a": 1,}', {"a": 1, "b": 2}, '{"a": 1, "b": 2,}'),
        ('{"a": 1, "a": 2}', {"a": 3}, '{"a": 1, "a": 3}'),
        ('{"a": 1, "a": 2, "b": 3}', {"b": 3}, '{"b": 3}'),
        ('{"a": true}', {"a": 1}, '{"a": 1}'),
        ('{"a": 1}', {"a": "\ud800"}, '{"a": "\\ud800"}'),
        ('{"a": "é"}', {"a": "é", "b": "ü"}, '{"a": "é", "b": "ü"}'),
        ('{"//": "http://x", "b": 1}', {"//": "http://x"}, '{"//": "http://x"}'),
    ],
)
def test_odd_texts_stay_as_odd_as_they_were(text: str, value: Any, after: str) -> None:
    """Tabs, carriage returns, trailing commas, repeated keys, characters of all kinds."""
    assert rewrite(text, value) == after


def test_what_is_no_json_is_not_touched() -> None:
    """It is refused with line and column; so is what nobody can follow."""
    with pytest.raises(ConfigError, match="line 1, column 9"):
        rewrite('{"a": 1 "b": 2}', {})
    with pytest.raises(ConfigError, match="deeply"):
        rewrite("[" * 900 + "]" * 900, [])


KEYS = st.text(st.sampled_from('ab"\\/é'), max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, "", "x//y", "/*", 'q"', "ü\n"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def written(draw: st.DrawFn, value: Any, *, is_bare: bool = False) -> str:
    """`value` as somebody might have written it: with comments, blanks and trailing commas anywhere they may be."""

    def gap() -> str:
        return draw(st.sampled_from(["", "", " ", "\n", "\n\t", "\r\n  ", " /* c, } */ ", ' // c ] "\n']))

    def text(one: Any) -> str:
        if not isinstance(one, list | dict):
            return json.dumps(one, ensure_ascii=draw(st.booleans()))
        parts = (
            [json.dumps(key) + gap() + ":" + gap() + text(inner) for key, inner in one.items()]
            if isinstance(one, dict)
            else [text(inner) for inner in one]
        )
        body = ",".join(gap() + part + gap() for part in parts)
        body += draw(st.sampled_from(["", ","])) + gap() if parts else gap()
        return f"{{{body}}}" if isinstance(one, dict) else f"[{body}]"

    return text(value) if is_bare else gap() + text(value) + gap()


@given(st.data(), VALUES, VALUES)
@pytest.mark.long  # many generated examples
def test_the_rewritten_text_holds_the_new_value_and_every_text_is_its_own_rewriting(
    data: st.DataObject, old: Any, new: Any
) -> None:
    """Whatever was written and whatever it is to hold; nothing to change changes nothing."""
    text = data.draw(written(old))
    assert rewrite(text, old) == text
    after = rewrite(text, new)
    assert is_same(parse_jsonc(after.encode(), "test"), new)
    assert rewrite(after, new) == after


@given(st.data(), st.dictionaries(KEYS, VALUES, min_size=1, max_size=4), VALUES)
@pytest.mark.long  # many generated examples
def test_members_that_are_not_changed_keep_every_letter(data: st.DataObject, old: dict[str, Any], value: Any) -> None:
    """One member is changed, removed or added; the others' own texts are all there, in their order."""
    texts = {key: data.draw(written(inner, is_bare=True)) for key, inner in old.items()}
    members = ",\n".join(f"{json.dumps(key)}:{text}" for key, text in texts.items())
    key = data.draw(st.sampled_from([*old, "new"]))
    is_removed = key in old and data.draw(st.booleans())
    new = {name: inner for name, inner in old.items() if not (is_removed and name == key)}
    if not is_removed:
        new[key] = value
    after = rewrite("{" + members + "}", new)
    place = 0
    for name, text in texts.items():
        if name != key:
            place = after.index(f"{json.dumps(name)}:{text}", place) + len(text)


PATCHES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), PATCHES, max_size=3)


def without_nulls(value: Any) -> Any:
    return (
        {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
        if isinstance(value, dict)
        else value
    )


@pytest.mark.long  # a third of a second of processor time
@given(OBJECTS.map(without_nulls), OBJECTS)
def test_the_merge_law(entry: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7396: every key by its own rule, what the patch does not name stays, twice is once, inputs are untouched."""
    before = json.dumps([entry, patch])
    merged = merge(entry, patch)
    assert json.dumps([entry, patch]) == before
    assert merge(merged, patch) == merged
    for key in entry.keys() | patch.keys():
        if key not in patch:
            assert merged[key] == entry[key]
        elif patch[key] is None:
            assert key not in merged
        elif isinstance(patch[key], dict):
            assert merged[key] == merge(entry.get(key), patch[key])
        else:
            assert merged[key] == patch[key]
    assert merge(entry, {}) == entry
    assert list_changed_fields(entry, entry) == []
    assert bool(list_changed_fields(entry, merged)) == (not is_same(entry, merged))


def test_changed_fields_are_named_by_path_and_without_values() -> None:
    """A field that is new or gone is named like one that is different."""
    old = {"command": "a", "env": {"TOKEN": "x", "B": "y"}, "args": ["1"]}
    new = {"command": "a", "env": {"TOKEN": "z"}, "args": ["2"], "limits": {"burst": 1}, "oauth": {}}
    assert list_changed_fields(old, new) == ["args", "env.B", "env.TOKEN", "limits.burst", "oauth"]
