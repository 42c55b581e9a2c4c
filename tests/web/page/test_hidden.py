"""Text as a person may safely see it, and forms made of schemas."""

import pytest
from markupsafe import Markup

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.policy.scanner.findings import escape_unsafe
from smart_mcp_proxy.web.page.arguments import build_form_fields, parse_form_arguments
from smart_mcp_proxy.web.page.hidden import has_hidden, render_rest_text, visible
from smart_mcp_proxy.web.page.visit import Form

ORDINARY = 'Plain — “quoted” text, ünïcödé, 日本語, עברית, 🙂, a < b & "c"\nsecond line'


def test_ordinary_text_of_any_script_stays_as_it_is() -> None:
    """But for what is markup."""
    assert visible(ORDINARY) == Markup.escape(ORDINARY)
    assert render_rest_text(escape_unsafe(ORDINARY)) == Markup.escape(ORDINARY)
    assert not has_hidden(ORDINARY)


@pytest.mark.parametrize(
    ("char", "name"),
    [
        ("\u202e", "U+202E"),
        ("\u200b", "U+200B"),
        ("\u00ad", "U+00AD"),
        ("\u3164", "U+3164"),
        ("\ufe0f", "U+FE0F"),
        ("\U000e0041", "U+E0041"),
        ("\x00", "U+0000"),
        ("\x85", "U+0085"),
        ("\u00a0", "U+00A0"),
        ("\u2028", "U+2028"),
        ("\ue000", "U+E000"),
        ("\ud800", "U+D800"),
        ("\r", "U+000D"),
    ],
)
def test_what_hides_is_named(char: str, name: str) -> None:
    """Where it stands, whether it comes as it is or spelled out by REST."""
    for shown in (visible(f"a{char}b"), render_rest_text(escape_unsafe(f"a{char}b"))):
        assert f">{name}</span>b" in shown and shown.startswith("a<span") and char not in shown
    assert has_hidden(char)


def test_a_backslash_is_no_escape() -> None:
    """What looks like one in the definition is shown as it was written."""
    text = r"\u202e \n \\ C:\new"
    assert render_rest_text(escape_unsafe(text)) == text


def test_long_text_is_cut_and_counted() -> None:
    """And a long run of hidden characters is counted, with what it says."""
    assert visible("x" * 5_000, 10) == Markup('xxxxxxxxxx <span class="cut">and 4,990 more characters</span>')
    tags = "".join(chr(0xE0000 + ord(char)) for char in "<b>ignore all</b>")
    assert "17 hidden characters that say: &lt;b&gt;ignore all&lt;/b&gt;" in visible(tags)


SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "share": {"type": "number", "default": 0.5},
        "is_on": {"type": "boolean"},
        "mode": {"enum": ["a", 1, None]},
        "body": {"type": "string"},
        "name": {"type": "string", "default": "x\u202e"},
        "more": {"type": ["array", "null"]},
        "any": True,
    },
    "required": ["mode", "missing"],
}


def test_a_form_has_a_field_for_each_argument() -> None:
    """Those that are required in front; a default that hides something is not typed for anybody."""
    fields = {field.key: field for field in build_form_fields(SCHEMA)}
    assert next(iter(fields)) == "mode" and fields["mode"].is_required and not fields["body"].is_required
    kinds = {key: field.kind for key, field in fields.items()}
    assert kinds == {
        "mode": "choice",
        "count": "integer",
        "share": "number",
        "is_on": "boolean",
        "body": "long",
        "name": "text",
        "more": "json",
        "any": "json",
    }
    assert (fields["share"].default, fields["name"].default) == ("0.5", "")
    assert fields["mode"].choices == ('"a"', "1", "null")
    assert (
        build_form_fields(None) == build_form_fields({"properties": []}) == build_form_fields({"type": "object"}) == ()
    )


def test_what_was_typed_becomes_arguments_of_their_types() -> None:
    """Empty fields are not sent; arguments as JSON count in place of them."""
    fields = {field.key: field for field in build_form_fields(SCHEMA)}
    typed = {"count": "3", "share": "1e2", "is_on": "false", "mode": "null", "body": " a ", "more": "[1]", "any": ""}
    form = Form([(fields[key].name, text) for key, text in typed.items()])
    found = parse_form_arguments(form, tuple(fields.values()))
    assert found == {"count": 3, "share": 100.0, "is_on": False, "mode": None, "body": " a ", "more": [1]}
    whole = Form([("json", '{"x": {"y": 1}}'), (fields["count"].name, "3")])
    assert parse_form_arguments(whole, tuple(fields.values())) == {"x": {"y": 1}}
    for key, text in (("count", "1.0"), ("count", "true"), ("share", "NaN"), ("more", "[")):
        with pytest.raises(RequestError):
            parse_form_arguments(Form([(fields[key].name, text)]), tuple(fields.values()))
