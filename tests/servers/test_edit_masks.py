"""Secrets of a server's entry: hidden from who reads it, kept where who changes it sends the mask back."""

import json
from typing import Any

import pytest
from growth import assert_growth
from hypothesis import example, given, settings
from hypothesis import strategies as st

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.servers import ServerConfig, collect_secrets
from smart_mcp_proxy.servers.edit_masks import MASK, mask_entry, unmask_entry

CANARY = "canary-5f1d7c0e9b"
ENTRY: dict[str, Any] = {
    "command": "npx",
    "args": [
        "-y",
        "server",
        f"--token={CANARY}",
        "--api-key",
        CANARY,
        f"https://user:{CANARY}@example.com/x?key={CANARY}",
        f"PASSWORD={CANARY}",
        "ghp_0123456789abcdefghij" + CANARY.replace("-", ""),
    ],
    "env": {"A": CANARY, "REF": "${env:A}", "BEARER": "Bearer ${A}", "DEFAULT": f"${{A:-{CANARY}}}", "N": 12345678},
    "headers": {"X-Anything": CANARY},
    "url": f"https://u:{CANARY}@example.com/s/{CANARY}0123456789/mcp?a={CANARY}&ref=${{A}}#{CANARY}",
    "oauth": {"client_id": "public", "client_secret": CANARY, "scopes": ["read"]},
    "authorization_token": CANARY,
    "unknown": {"apiKey": CANARY, "nested": [{"password": CANARY, "plain": "seen"}]},
    "timeout": 5000,
    "disabled": False,
}


def test_no_secret_is_shown_wherever_it_stands() -> None:
    """Values of env and headers, arguments, addresses, defaults of references, keys that sound like secrets."""
    shown = json.dumps(mask_entry(ENTRY))
    assert CANARY not in shown and CANARY.replace("-", "") not in shown and "12345678" not in shown


def test_what_is_no_secret_stays_readable() -> None:
    """Names, references, ordinary arguments and addresses are what a reviewer needs to see."""
    shown = mask_entry(ENTRY)
    assert shown["command"] == "npx"
    assert shown["args"][:5] == ["-y", "server", f"--token={MASK}", "--api-key", MASK]
    assert shown["args"][5] == f"https://{MASK}@example.com/x?key={MASK}"
    assert shown["env"] == {"A": MASK, "REF": "${env:A}", "BEARER": "Bearer ${A}", "DEFAULT": "${A:-***}", "N": MASK}
    assert shown["url"] == f"https://{MASK}@example.com/s/{MASK}/mcp?a={MASK}&ref=${{A}}#{MASK}"
    assert shown["oauth"] == {"client_id": "public", "client_secret": MASK, "scopes": ["read"]}
    assert (shown["timeout"], shown["disabled"]) == (5000, False)
    assert shown["unknown"]["nested"] == [{"password": MASK, "plain": "seen"}]


def test_an_entry_that_is_sent_back_as_shown_is_the_stored_one() -> None:
    """Nothing is overwritten by its mask."""
    assert unmask_entry(mask_entry(ENTRY), ENTRY) == ENTRY


def test_a_mask_stands_for_what_is_stored_in_its_own_place_only() -> None:
    """It cannot be used to move a secret into another field, or to make one up."""
    moved: list[dict[str, Any]] = [
        {"env": {"B": MASK}},
        {"headers": {"A": MASK}},
        {"args": [f"--password={MASK}"]},
        {"url": f"https://evil.example/?a={MASK}"},
        {"command": MASK},
    ]
    for entry in moved:
        with pytest.raises(RequestError, match="mask") as caught:
            unmask_entry(entry, ENTRY)
        assert CANARY not in str(caught.value)


def test_arguments_keep_their_secrets_when_others_come_and_go() -> None:
    """An array is sent whole; each mask in it finds what it stands for."""
    sent = ["--verbose", "--api-key", MASK, f"--token={MASK}"]
    assert unmask_entry({"args": sent}, ENTRY)["args"] == ["--verbose", "--api-key", CANARY, f"--token={CANARY}"]


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--header", f"Authorization: Bearer {CANARY}"], ["--header", f"Authorization: {MASK}"]),
        (["-H", f"X-Team:{CANARY}"], ["-H", f"X-Team:{MASK}"]),
        ([f"--header=X-Team: {CANARY}"], [f"--header=X-Team: {MASK}"]),
        (["--header", "Authorization:Bearer ${T}"], ["--header", "Authorization:Bearer ${T}"]),
        (["-u", f"bob:{CANARY}"], ["-u", MASK]),
        ([f"--user=bob:{CANARY}"], [f"--user={MASK}"]),
        (["-u", "server.py"], ["-u", "server.py"]),
        (["-e", f"KEY_ID={CANARY}"], ["-e", f"KEY_ID={MASK}"]),
        ([f"Server=db;Password={CANARY}"], [f"Server=db;Password={MASK}"]),
        (["--db", f"Server=db,Pwd={CANARY},App=x"], ["--db", f"Server=db,Pwd={MASK},App=x"]),
        ([f"Name=x;AccountKey={CANARY}==;App=y"], [f"Name=x;AccountKey={MASK};App=y"]),
        ([f"jdbc:sqlserver://db:1433;password={CANARY},x;app=y"], [f"jdbc:sqlserver://db:1433;password={MASK};app=y"]),
        ([f"Note: token: {CANARY}"], [f"Note: token: {MASK}"]),
        ([f"say basic {CANARY}"], [f"say basic {MASK}"]),
        (["https://auth.example.com:8443/mcp"], ["https://auth.example.com:8443/mcp"]),
    ],
)
def test_secrets_are_known_by_the_words_around_them(args: list[str], shown: list[str]) -> None:
    """Headers, users with passwords, connection strings; what only refers to a secret stays readable."""
    assert mask_entry({"args": args}) == {"args": shown}
    assert unmask_entry({"args": shown}, {"args": args}) == {"args": args}


@pytest.mark.parametrize(
    "sent",
    [[MASK], ["--note", MASK], [MASK, "--token"], ["--token", "-x", MASK], ["--token", "x", MASK], ["--note=x", MASK]],
    ids=str,
)
def test_a_mask_is_not_moved_to_where_its_value_would_be_read(sent: list[str]) -> None:
    """The reply would show it."""
    with pytest.raises(RequestError, match="mask") as caught:
        unmask_entry({"args": sent}, {"args": ["--token", CANARY, "--pin", 5]})
    assert CANARY not in str(caught.value)


FIRST, SECOND = "canary-first-1", "canary-second-2"


@pytest.mark.parametrize(
    ("stored", "sent", "filled"),
    [
        (
            ["--key", FIRST, "--key", SECOND],
            ["-v", "--key", MASK, "--key", MASK],
            ["-v", "--key", FIRST, "--key", SECOND],
        ),
        (["--key", FIRST, "--token", SECOND], ["--token", MASK], ["--token", SECOND]),
        (["--key", FIRST, "--token", SECOND], ["--token", MASK, "--key", MASK], ["--token", SECOND, "--key", FIRST]),
        (["--key", FIRST, "--key", FIRST], ["--key", MASK], ["--key", FIRST]),
        (["-e", f"KEY={FIRST}", "-e", f"PASSWORD={SECOND}"], ["-e", f"PASSWORD={MASK}"], ["-e", f"PASSWORD={SECOND}"]),
        (
            ["--api-key", 1234, "--token", FIRST],
            ["--api-key", MASK, "--token", MASK],
            ["--api-key", 1234, "--token", FIRST],
        ),
        (
            [{"token": FIRST, "at": "a"}, {"token": SECOND, "at": "b"}],
            [{"token": MASK, "at": "b"}],
            [{"token": SECOND, "at": "b"}],
        ),
        (
            [{"token": FIRST, "at": "a"}, {"token": SECOND, "at": "b"}],
            [{"token": MASK, "at": "a"}, {"token": MASK, "at": "c"}],
            [{"token": FIRST, "at": "a"}, {"token": SECOND, "at": "c"}],
        ),
    ],
    ids=str,
)
def test_each_mask_in_a_list_keeps_the_secret_of_its_own_option(
    stored: list[Any], sent: list[Any], filled: list[Any]
) -> None:
    """Wherever it stands now, and whatever stands around it."""
    assert unmask_entry({"args": sent}, {"args": stored}) == {"args": filled}


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ([FIRST, "x", SECOND], [MASK]),
        (["--key", FIRST, "--key", SECOND], ["--key", MASK]),
        (["--key", FIRST, "--key", SECOND], ["--key", MASK, "--key", MASK, "--key", MASK]),
        ([f"--key={FIRST}", f"--key={SECOND}"], [f"--key={MASK}"]),
        (["-e", f"KEY={FIRST}", "-i", f"KEY={SECOND}"], [f"KEY={MASK}"]),
        ([{"token": FIRST, "at": "a"}, {"token": SECOND, "at": "b"}], [{"token": MASK, "at": "c"}]),
        (
            [{"token": FIRST, "at": "a"}, {"token": SECOND, "at": "b"}],
            [{"token": MASK, "at": "b"}, {"token": MASK, "at": "c"}],
        ),
    ],
    ids=str,
)
def test_a_mask_that_could_stand_for_two_secrets_is_refused(stored: list[Any], sent: list[Any]) -> None:
    """A guess would start the server with the wrong one."""
    field = "args" if str(stored[0])[0] in "-{" else "tokens"
    with pytest.raises(RequestError, match="mask") as caught:
        unmask_entry({field: sent}, {field: stored})
    assert FIRST not in str(caught.value) and SECOND not in str(caught.value)


def test_the_refusal_of_a_mask_says_what_to_send_instead() -> None:
    """Which element, and what is stored alike."""
    with pytest.raises(RequestError) as caught:
        unmask_entry({"args": ["-v", "--key", MASK]}, {"args": ["--key", FIRST, "--key", SECOND]})
    assert caught.value.message == "args[2] holds the mask ***, and 2 stored values are shown like that."
    assert "whole value" in caught.value.hint


@given(st.lists(st.sampled_from([MASK, f"--token={MASK}", f"A: {MASK}", "--token", "--note", "-H", "-u", "x"])))
def test_no_list_of_arguments_gets_a_secret_shown(sent: list[str]) -> None:
    """Whatever is sent is refused, or shown as it was sent."""
    stored = {"args": ["--token", CANARY, f"--token={CANARY}", "-H", f"A: {CANARY}", "--password", 1234567890]}
    try:
        shown = mask_entry(unmask_entry({"args": sent}, stored))
    except RequestError:
        return
    assert CANARY not in str(shown) and "1234567890" not in str(shown)


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "piece", "after"), [("password=", ";a ", ""), ("", "token", ""), ("", "a;", " "), ("auth=", " ", "x")]
)
def test_the_cost_of_masking_a_text_grows_with_its_length(before: str, piece: str, after: str) -> None:
    """Ten times the length, 25 times the cost at most: also where the text is made to be slow."""

    def mask(chars: int) -> None:
        mask_entry({"args": [before + piece * (chars // len(piece)) + after]})

    assert_growth(mask, 5_000, 50_000, at_most=25)


TEXTS = st.text(st.sampled_from("ab-=/:?&@#${}*."), max_size=12) | st.sampled_from(
    [MASK, "--token", "${A}", "https://a:b@c"]
)
ENTRIES = st.dictionaries(
    st.sampled_from(["env", "args", "url", "token", "x"]),
    st.recursive(
        TEXTS | st.integers() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    ),
    max_size=4,
)


@settings(max_examples=300)
@example({"args": "a://?"})
@given(ENTRIES)
@pytest.mark.long  # many generated examples
def test_masking_and_filling_in_is_the_identity_for_any_entry(entry: dict[str, Any]) -> None:
    """Also where entries are odd, or hold what looks like a mask already."""
    assert unmask_entry(mask_entry(entry), entry) == entry


@pytest.mark.parametrize(
    ("name", "value", "is_shown"),
    [
        ("TZ", "Europe/Berlin", True),
        ("MEMORY_FILE_PATH", "/home/me/memory.json", True),
        ("LOG_LEVEL", "debug", True),
        ("DATA_DIR", "~/data", True),
        ("API_TOKEN", "/home/me/x", False),
        ("GITHUB_TOKEN_FILE", "/run/secrets/gh", False),
        ("SIGNING_KEY_PATH", "/keys/a.pem", False),
        ("DATA_DIR", "hunter2", False),
        ("DATA_DIR", "/h/ghp_0123456789abcdef0123", False),
        ("DATA_DIR", "https://user:secret@h.example/x", False),
        ("HOME_PATH", "/a/0123456789abcdef0123456789", False),
        ("LOG_LEVEL", "token=abc123", False),
        ("NAME", "/home/me", False),
    ],
)
def test_plain_variables_are_shown_and_secrets_are_not(name: str, value: str, is_shown: bool) -> None:
    """A time zone or a folder behind `***` hides what is wrong; what may be a secret stays hidden, in headers too."""
    assert mask_entry({"env": {name: value}}) == {"env": {name: value if is_shown else MASK}}
    assert mask_entry({"headers": {name: value}}) == {"headers": {name: MASK}}
    config = ServerConfig("s", "stdio", command="x", env={name: value})
    assert (value in collect_secrets(config)) is not is_shown
    entry = {"env": {name: value}}
    assert unmask_entry(mask_entry(entry), entry) == entry
