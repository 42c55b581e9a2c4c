"""The operator's token: made once, whole, for the owner's eyes only."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.web.rest import operator_token


def test_the_first_use_makes_it_and_every_later_one_finds_it(tmp_path: Path) -> None:
    """In a file of mode 0600; nothing else is left in the directory."""
    folder = tmp_path / "data"
    token = operator_token(folder)
    assert len(token) >= 43 and operator_token(folder) == token
    assert [(path.name, path.stat().st_mode & 0o777) for path in folder.iterdir()] == [("operator.token", 0o600)]


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    """None of them reads half a token, or one that another has replaced."""
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(operator_token, [tmp_path] * 64))
    assert tokens == {operator_token(tmp_path)}


@pytest.mark.parametrize(("text", "mode"), [("known-to-others", 0o644), ("", 0o600), ("  \n", 0o600)])
def test_a_token_that_others_could_read_or_that_is_none_is_replaced(tmp_path: Path, text: str, mode: int) -> None:
    """It proves nothing any more."""
    file = tmp_path / "operator.token"
    file.write_text(text)
    file.chmod(mode)
    token = operator_token(tmp_path)
    assert token.strip() and token not in ("known-to-others", "")
    assert file.stat().st_mode & 0o777 == 0o600 and file.read_text().strip() == token


def test_a_data_directory_that_cannot_hold_it_is_named(tmp_path: Path) -> None:
    """With what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        operator_token(tmp_path / "file")
    os.mkdir(tmp_path / "operator.token")
    with pytest.raises(ConfigError, match="cannot be used"):
        operator_token(tmp_path)
