"""URIs of the gateway and templates of URIs: what goes out comes back, and no template takes long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.gateway.visibility.uri_templates import (
    expand_template,
    gateway_template,
    gateway_uri,
    match,
    split_gateway_uri,
    variables,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(texts, texts)
def test_a_gateway_uri_leads_back_to_server_and_uri(server: str, uri: str) -> None:
    """Whatever characters either holds; the URI itself is plain ASCII."""
    shown = gateway_uri(server, uri)
    assert shown.isascii()
    assert split_gateway_uri(shown) == (server, uri)


@pytest.mark.parametrize("uri", ["file:///x", "mcpproxy://", "mcpproxy://fx", "mcpproxy://fx/", "mcpproxy:///x", ""])
def test_other_uris_are_none_of_the_gateways(uri: str) -> None:
    """A server and something behind it are needed."""
    assert split_gateway_uri(uri) is None


@pytest.mark.long  # a third of a second of processor time
@given(st.lists(st.sampled_from(["a", "/", "{x}", "{+y}", "{?q}", "é ", "%2F"]), max_size=8), st.data())
def test_a_filled_template_fits_it_and_leads_to_the_servers_own(parts: list[str], data: st.DataObject) -> None:
    """What an agent fills into the gateway's template stands in the server's in the same places."""
    template = "".join(parts)
    count = sum(part.startswith("{") for part in parts)
    values = tuple(data.draw(st.text("bcd", max_size=3)) for _ in range(count))
    shown = gateway_template("fx", template)
    found = match(shown, expand_template(shown, values))
    assert found is not None
    assert expand_template(template, found) == expand_template(template, values)


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("a/{x}/b", "a/1/b", ("1",)),
        ("a/{x}/b", "a/1/2/b", ("1/2",)),
        ("a/{x}/b", "a/1/c", None),
        ("ab{x}ba", "aba", None),
        ("{x}", "", ("",)),
        ("plain", "plain", ()),
        ("plain", "plainer", None),
    ],
)
def test_a_template_fits_or_not(template: str, uri: str, values: tuple[str, ...] | None) -> None:
    """Beginning and end never overlap; without expressions only the same text fits."""
    assert match(template, uri) == values


def test_a_template_of_many_expressions_is_matched_without_going_back() -> None:
    """A server cannot hold the gateway up with one: a matcher that goes back would not end within a lifetime."""
    assert match("{a}x" * 2_000 + "y", "x" * 20_000) is None


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("file:///{path}", ["path"]),
        ("x://{+path}/{#part}{.ext}{/a,b}{;c}{?d,e*}{&f:3}{d}", ["path", "part", "ext", "a", "b", "c", "d", "e", "f"]),
        ("x://{}/{a", []),
    ],
)
def test_the_variables_of_a_template_are_named_once_without_operators(template: str, names: list[str]) -> None:
    """In the order of their first expressions."""
    assert variables(template) == names
