"""What an entry's `oauth` may say."""

import json
from typing import Any

import pytest

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers import (
    OAuthOptions,
    ServerConfig,
    collect_secrets,
    expand,
    load_servers,
    mask_entry,
    read_oauth,
    warnings_about,
)

TRADE = {"token_url": "https://i.example/t", "audience": "https://h/mcp"}


def entry(oauth: Any, **others: Any) -> ServerConfig:
    """A server whose entry has this `oauth`."""
    loaded = load_servers(json.dumps({"mcpServers": {"web": {"url": "https://h/mcp", "oauth": oauth, **others}}}))
    if not loaded.usable:
        raise ConfigError(str(loaded.problems[0]))
    return loaded.servers["web"]


def test_everything_may_be_left_out() -> None:
    """`true` and an empty object ask the server for everything."""
    for oauth in (True, {}):
        assert read_oauth("web", entry(oauth).oauth or {}) == OAuthOptions()


def test_every_option_is_understood() -> None:
    """Scopes as a list or as OAuth writes them."""
    oauth = {
        "client_id": "c",
        "client_secret": "s",
        "scopes": "a b",
        "redirect_port": 8765,
        "issuer": "https://i.example",
    }
    oauth |= {
        "client_metadata_url": "https://me.example/c.json",
        "resource": "https://r.example/",
        "grant": "client_credentials",
    }
    assert read_oauth("web", entry(oauth).oauth or {}) == OAuthOptions(
        grant="client_credentials",
        client_id="c",
        client_secret="s",
        scopes=("a", "b"),
        redirect_port=8765,
        client_metadata_url="https://me.example/c.json",
        resource="https://r.example/",
        issuer="https://i.example",
    )
    assert read_oauth("web", {"scopes": ["a", "b"]}).scopes == ("a", "b")
    traded = read_oauth("web", {"grant": "jwt_bearer", "assertion_file": "/run/token"})
    assert (traded.assertion_file, traded.client_id) == ("/run/token", "")


@pytest.mark.parametrize(
    ("oauth", "words"),
    [
        ({"grant": "password"}, "'oauth.grant' is text. Expected one of authorization_code, client_"),
        ({"grant": "client_credentials", "client_id": "c"}, "without a client"),
        ({"client_secret": "hunter2"}, "'oauth.client_secret' without 'oauth.client_id'"),
        ({"private_key": "hunter2"}, "'oauth.private_key' without 'oauth.client_id'"),
        ({"client_id": "c", "private_key": "hunter2"}, "'oauth.private_key' with the grant 'authorization_code'"),
        (
            {"grant": "client_credentials", "client_id": "c", "client_secret": "hunter2", "private_key": "hunter2"},
            "with two proofs",
        ),
        ({"grant": "jwt_bearer"}, "without a token to trade"),
        ({"idp_token_endpoint": "https://i.example/t"}, "'oauth.idp_token_endpoint' with the grant"),
        (
            {"grant": "jwt_bearer", "assertion_file": "/a", "client_id": "c", "idp_client_secret": "hunter2"},
            "lacks its address or a client",
        ),
        (
            {"grant": "jwt_bearer", "assertion_file": "/a", "idp_client_id": "c", "idp_token_endpoint": "https://i/t"},
            "lacks its address or a client",
        ),
        ({"assertion_file": "/a"}, "'oauth.assertion_file' with the grant 'authorization_code'"),
        ({"redirect_port": 0}, "'oauth.redirect_port' is 0"),
        ({"redirect_port": 65536}, "'oauth.redirect_port' is 65536"),
        ({"scopes": 5}, "'oauth.scopes' is 5"),
        ({"client_metadata_url": "http://me.example/c.json"}, "'oauth.client_metadata_url' cannot be used"),
        ({"client_metadata_url": "https://me.example/"}, "'oauth.client_metadata_url' cannot be used"),
        ({"resource": "https://r.example/#part"}, "'oauth.resource' cannot be used"),
        ({"issuer": "javascript:alert(1)"}, "'oauth.issuer' cannot be used"),
        ({"exchange": {"token_url": "https://i.example/t"}}, "'oauth.exchange' without 'audience'"),
        ({"exchange": TRADE | {"client_secret": "hunter2"}}, "'oauth.exchange.client_secret' without 'client_id'"),
        ({"exchange": TRADE | {"issuer": "https://a.example"}}, "'oauth.exchange.issuer' without 'issuer_token_url'"),
        ({"exchange": TRADE | {"issuer_client_id": "c"}}, "'oauth.exchange.issuer_client_id' without 'issuer'"),
        ({"exchange": TRADE | {"token_url": "ftp://i.example"}}, "'oauth.exchange.token_url' cannot be used"),
        (
            {"exchange": TRADE | {"issuer": "https://a.example", "issuer_token_url": "a.example"}},
            "'oauth.exchange.issuer_token_url' cannot be used",
        ),
        ({"exchange": TRADE | {"audiences": "x"}}, "keys under 'oauth.exchange' that are not known: audiences"),
        ({"exchange": TRADE, "per_user": True}, "both 'oauth.per_user' and 'oauth.exchange'"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(oauth: dict[str, Any], words: str) -> None:
    """Server and field are named, no value that could be a secret is."""
    with pytest.raises(ConfigError, match="Server 'web'") as caught:
        entry(oauth)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_two_ways_to_sign_in_are_one_too_many() -> None:
    """A token of one's own and OAuth would both be the Authorization header."""
    for other in ({"headers": {"authorization": "Bearer x"}}, {"authorization_token": "x"}):
        with pytest.raises(ConfigError, match="both 'oauth' and an Authorization header"):
            entry(True, **other)


def test_an_unknown_option_is_a_warning() -> None:
    """It names the key with its path."""
    loaded = load_servers(json.dumps({"mcpServers": {"web": {"url": "https://h/mcp", "oauth": {"scope": "a"}}}}))
    assert "'oauth.scope'" in str(loaded.problems[0])
    assert "web" in loaded.servers


def test_a_secret_comes_from_the_environment_and_is_hidden() -> None:
    """Placeholders are filled in at connect; the secret counts as one wherever it was written."""
    oauth = {"client_id": "${ID}", "client_secret": "${env:SECRET}", "scopes": ["${S:-read}"], "redirect_port": 99}
    config = entry(oauth)
    expanded = expand(config, {"ID": "the-client", "SECRET": "the-secret"})
    assert expanded.oauth == {
        "client_id": "the-client",
        "client_secret": "the-secret",
        "scopes": ["read"],
        "redirect_port": 99,
    }
    assert "the-secret" in collect_secrets(expanded)
    assert "the-secret" not in repr(expanded)
    assert config.oauth == oauth
    assert "literal-secret" in collect_secrets(entry({"client_id": "c", "client_secret": "literal-secret"}))
    program = {"grant": "client_credentials", "client_id": "c", "private_key": "${env:KEY}", "kid": "1"}
    signing = expand(entry(program), {"KEY": "-----BEGIN\nkey"})
    assert signing.oauth == program | {"private_key": "-----BEGIN\nkey"}
    assert "-----BEGIN\nkey" in collect_secrets(signing)
    assert "-----BEGIN" not in repr(read_oauth("web", signing.oauth or {}))
    with pytest.raises(ConfigError, match=r"oauth\.client_secret"):
        expand(config, {"ID": "the-client"})
    with pytest.raises(ConfigError, match=r"oauth\.issuer"):
        expand(entry({"issuer": "${I}"}), {"I": "ftp://x"})


def test_secrets_of_a_trade_are_hidden_as_well() -> None:
    """Those at the provider, and those at the server's authorization server."""
    trade = TRADE | {"client_id": "us", "client_secret": "${env:AT_PROVIDER}", "issuer": "https://a.example"}
    trade |= {"issuer_token_url": "https://a.example/t", "issuer_client_id": "us", "issuer_client_secret": "at-issuer"}
    expanded = expand(entry({"exchange": trade}), {"AT_PROVIDER": "at-provider"})
    assert {"at-provider", "at-issuer"} <= set(collect_secrets(expanded))
    for shown in (repr(expanded), repr(read_oauth("web", expanded.oauth or {}))):
        assert "at-provider" not in shown and "at-issuer" not in shown
    masked = json.dumps(mask_entry({"url": "https://h/mcp", "oauth": {"exchange": trade}}))
    assert "at-issuer" not in masked
    assert masked.count("https://a.example") == 2


def test_who_approves_an_entry_is_told_which_file_it_gives_away() -> None:
    """And to whom; an entry that does not wait warns of nothing."""
    oauth = {"grant": "jwt_bearer", "assertion_file": "/run/token", "issuer": "https://auth.example"}
    entry = {"url": "https://x.example/mcp", "oauth": oauth}
    assert warnings_about(entry) == []
    assert warnings_about(entry | {"quarantined": True}) == [
        "oauth.assertion_file names the file /run/token: once you approve, the token in it is sent to https://auth.example."
    ]
    through = {"oauth": oauth | {"idp_token_endpoint": "https://idp.example/token"}, "quarantined": True}
    assert [each.rpartition(" ")[2] for each in warnings_about(through)] == ["https://idp.example/token."]
