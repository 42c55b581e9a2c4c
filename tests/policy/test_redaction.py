"""What of a request is written down: never a value by default, never a known secret, by no policy."""

import json
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smart_mcp_proxy.policy.redaction import (
    HIDDEN,
    NODES_LIMIT,
    TEXT_LIMIT_CHARS,
    ArgumentsKept,
    mask_text,
    redact_arguments,
    short_digest,
)
from smart_mcp_proxy.telemetry import secrets_hidden

CANARY = "canary-7h3-p4ssw0rd"
POLICIES = get_args(ArgumentsKept)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)


def test_each_policy_keeps_what_its_name_says() -> None:
    """Nothing, names with types and sizes, values without what looks secret, everything."""
    arguments = {"title": "Buy milk", "password": "hunter2!", "tags": ["a", "b"], "n": 3, "deep": {"x": 2.5, "y": None}}
    assert redact_arguments(arguments, "none") is None
    assert redact_arguments(arguments, "shape") == {
        "title": "string(8)",
        "password": "string(8)",
        "tags": "array(2)",
        "n": "integer",
        "deep": {"x": "number", "y": "null"},
    }
    assert redact_arguments(arguments, "redacted") == arguments | {"password": HIDDEN}
    assert redact_arguments(arguments, "full") == arguments


@pytest.mark.parametrize("kept", POLICIES)
def test_a_secret_that_the_gateway_knows_is_kept_by_no_policy(kept: ArgumentsKept) -> None:
    """Wherever it stands: in a value, a name, a list, the depth, in a long text, behind quotes."""
    long_text = "x " * (TEXT_LIMIT_CHARS["full"] // 2 - 4) + CANARY
    arguments: dict[str, Any] = {
        "plain": CANARY,
        "inside": f'say "{CANARY}" aloud',
        CANARY: 1,
        f"name {CANARY}": {"deep": [{"deeper": [CANARY, [CANARY]]}]},
        "long": long_text,
        "number": 123456789,
    }
    with secrets_hidden([CANARY, "123456789"]):
        text = json.dumps(redact_arguments(arguments, kept))
    assert CANARY not in text
    assert "123456789" not in text


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("kept", ["none", "shape"])
@given(value=json_values)
def test_the_default_keeps_no_value_at_all(kept: ArgumentsKept, value: Any) -> None:
    """Two calls that differ only in values of the same type and size look the same."""
    secret = "q" * 17
    found = json.dumps(redact_arguments({"a": [value, secret], "b": secret, "c": {"d": secret}}, kept))
    assert secret not in found


@pytest.mark.parametrize(
    "secret",
    [
        "sk-abcdefghijklmnopqrstuv",
        "ghp_abcdefghijklmnopqrstuvwx",
        "github_pat_11ABCDEFG0abcdefghijk",
        "glpat-abcdefghijklmnopqrst",
        "xoxb-1234567890-abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA-abcdefghijklmnopqrstuvwxyz12345",
        "mcpp_abcdefghijklmnopqrstuvwx",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.abc-DEF_123",
        "9f86d081884c7d659a2feaa0c55ad015",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    ],
)
def test_what_looks_like_a_secret_is_hidden_in_text(secret: str) -> None:
    """By its issuer's prefix, or because it looks random; the words around it stay."""
    assert mask_text(f"use {secret} for it", 200) == f"use {HIDDEN} for it"
    assert redact_arguments({"note": f"use {secret} for it"}, "redacted") == {"note": f"use {HIDDEN} for it"}


HARMLESS = "internationalizations"
"""Too long a word to be passed over unread, and no secret."""

FRAGMENTS = (
    *(
        "xoxb-abcdefghij",
        "sk-abcdefghijklmnop",
        "AKIAABCDEFGHIJKLMNOP",
        "mcpp_abcdefghijklmnop",
        "eyJabcdefgh.abcdefgh.",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "ftp://me",
        "@",
        "Bearer",
        "BASIC",
        "abcdefgh",
        "token",
        "PASSWORD",
        "api_key",
        "=",
    ),
    *(":", "a", "1", "\u017f", "\u212a", " ", "\t", "\n", "\x1f", "create an issue"),
)


@example("Bearer abcdefgh").via("no long word, no sign but the word")
@example("BASIC abcdefgh").via("no long word, no sign but the word")
@example("xoxb-abcdefghij").via("the shortest word that is a secret")
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join) | st.text(max_size=60))
def test_a_short_text_is_masked_as_it_is_in_a_longer_one(text: str) -> None:
    """What is looked at less closely, because it cannot hold a secret, hides no less than what is read in full."""
    assert mask_text(f"{HARMLESS} {text}", 1_000) == f"{HARMLESS} {mask_text(text, 1_000)}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://joe:s3cr3t@db/x", f"postgres://{HIDDEN}@db/x"),
        ("Authorization: Bearer abcdefgh", f"Authorization: Bearer {HIDDEN}"),
        ("password=hunter2 please", f"{HIDDEN} please"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", HIDDEN),
        ("create an issue about the login page", "create an issue about the login page"),
        ("résumé of 2026-11-21, 14:03", "résumé of 2026-11-21, 14:03"),
    ],
)
def test_secrets_in_the_company_of_their_names_are_hidden_and_prose_stays(text: str, shown: str) -> None:
    """A log that hides everything helps nobody."""
    assert mask_text(text, 200) == shown


@pytest.mark.parametrize(
    "name", ["password", "dbPassword", "api_key", "apiKey", "access_token", "Authorization", "cookie", "client_secret"]
)
def test_a_parameter_whose_name_promises_a_secret_is_hidden(name: str) -> None:
    """Whatever its value looks like, also a whole object."""
    assert redact_arguments({name: "x"}, "redacted") == {name: HIDDEN}
    assert redact_arguments({name: {"a": 1}}, "redacted") == {name: HIDDEN}


def test_a_secret_that_a_cut_would_halve_is_not_shown_by_half() -> None:
    """Text is searched further than it is kept."""
    secret = "A1" * 60
    for start in range(700, 830, 7):
        text = mask_text("y " * (start // 2) + secret, 200)
        assert "A1" not in text


@pytest.mark.parametrize("kept", POLICIES)
def test_huge_and_deep_arguments_cost_the_log_little(kept: ArgumentsKept) -> None:
    """Their record is bounded whatever was sent."""
    deep: Any = "end"
    for _ in range(300):
        deep = {"next": [deep]}
    arguments = {"deep": deep, "wide": {str(n): n for n in range(20_000)}, "list": list(range(20_000))}
    found = redact_arguments(arguments, kept)
    assert len(json.dumps(found)) < 40 * (NODES_LIMIT.get(kept, 1) + 10)


def test_what_json_readers_choke_on_is_written_as_text() -> None:
    """Half a character, and integers beyond 64 bits."""
    found = redact_arguments({"half \ud800": "\ud800", "big": 10**30}, "full")
    assert found == {"half ?": "?", "big": str(10**30)}


def test_sessions_can_be_told_apart_but_not_used() -> None:
    """Eight digits of a digest, the same for the same session."""
    assert short_digest("one") == short_digest("one") != short_digest("two")
    assert len(short_digest("one" * 1000)) == 8
