"""The operator's token: made once, whole, for the owner's eyes only."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.rest import operator_token


def at(folder: Path, **more: Any) -> Settings:
    """Settings with this data directory."""
    return Settings(data_dir=folder, **more)


def test_gateways_with_one_secret_key_have_one_token(tmp_path: Path) -> None:
    """Each on its machine, in its own file; it replaces one from before, and another key makes another one."""
    shared = {"database_url": "postgresql://db/x", "secret_key": SecretStr("k" * 32)}
    before = operator_token(at(tmp_path / "a"))
    first, second = (operator_token(at(tmp_path / name, **shared)) for name in "ab")
    assert first == second != before
    assert (tmp_path / "a" / "operator.token").read_text().strip() == first
    assert operator_token(at(tmp_path / "a", **shared | {"secret_key": SecretStr("l" * 32)})) != first
    assert operator_token(at(tmp_path / "a", operator_token=SecretStr("mine"))) == "mine"


def test_the_first_use_makes_it_and_every_later_one_finds_it(tmp_path: Path) -> None:
    """In a file of mode 0600; nothing else is left in the directory."""
    folder = tmp_path / "data"
    token = operator_token(at(folder))
    assert len(token) >= 43 and operator_token(at(folder)) == token
    assert [(path.name, path.stat().st_mode & 0o777) for path in folder.iterdir()] == [("operator.token", 0o600)]


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    """None of them reads half a token, or one that another has replaced."""
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(operator_token, [at(tmp_path)] * 64))
    assert tokens == {operator_token(at(tmp_path))}


@pytest.mark.parametrize(("text", "mode"), [("known-to-others", 0o644), ("", 0o600), ("  \n", 0o600)])
def test_a_token_that_others_could_read_or_that_is_none_is_replaced(tmp_path: Path, text: str, mode: int) -> None:
    """It proves nothing any more."""
    file = tmp_path / "operator.token"
    file.write_text(text)
    file.chmod(mode)
    token = operator_token(at(tmp_path))
    assert token.strip() and token not in ("known-to-others", "")
    assert file.stat().st_mode & 0o777 == 0o600 and file.read_text().strip() == token


def test_a_data_directory_that_cannot_hold_it_is_named(tmp_path: Path) -> None:
    """With what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        operator_token(at(tmp_path / "file"))
    os.mkdir(tmp_path / "operator.token")
    with pytest.raises(ConfigError, match="cannot be used"):
        operator_token(at(tmp_path))
