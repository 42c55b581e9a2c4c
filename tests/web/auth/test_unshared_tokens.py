"""Tokens that gateways on one database do not have in common: one sentence at the start."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.auth.auth import own_token, warn_of_unshared_tokens

DATABASE = {"database_url": SecretStr("postgresql://db/x")}
AGENTS, OPERATOR = {"auth_token": SecretStr("agents-own")}, {"operator_token": SecretStr("operators-own")}
KEY = {"secret_key": SecretStr("k" * 32)}


def sentence(tokens: str, variables: str) -> str:
    return (
        f"this gateway alone knows {tokens} in {{folder}}: set {variables}, or MCPPROXY_SECRET_KEY (or _FILE), "
        "to the same on all that share the database"
    )


THE_AGENTS = sentence("the agents' token", "MCPPROXY_AUTH_TOKEN")
THE_OPERATORS = sentence("the operator's token", "MCPPROXY_OPERATOR_TOKEN")
BOTH = sentence("the agents' token and the operator's token", "MCPPROXY_AUTH_TOKEN and MCPPROXY_OPERATOR_TOKEN")


@pytest.mark.parametrize(
    ("host", "given", "said"),
    [
        ("0.0.0.0", DATABASE, BOTH),
        ("0.0.0.0", DATABASE | AGENTS, THE_OPERATORS),
        ("127.0.0.1", DATABASE, THE_OPERATORS),
        ("0.0.0.0", DATABASE | OPERATOR, THE_AGENTS),
        ("0.0.0.0", DATABASE | AGENTS | OPERATOR, None),
        ("127.0.0.1", DATABASE | OPERATOR, None),
        ("0.0.0.0", DATABASE | KEY, None),
        ("0.0.0.0", {}, None),
    ],
    ids=["both", "operator", "operator-loopback", "agents", "given", "given-loopback", "key", "no-database"],
)
def test_each_token_that_is_this_gateways_alone_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, given: dict[str, SecretStr], said: str | None
) -> None:
    """With what to set; nothing is said where all have the same, or there is no other gateway."""
    settings = Settings(data_dir=tmp_path, host=host, **given)  # type: ignore[arg-type]  # each a secret
    warn_of_unshared_tokens(settings, own_token(settings))
    assert caplog.messages == ([] if said is None else [said.format(folder=tmp_path)])
