"""Files with one token: whose they must be, and what becomes of those that are not."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.web.auth.token_files import load_or_create_token

HINT = "Remove it."


@pytest.fixture(params=[False, True], ids=["kept", "replaced"])
def replaces(request: pytest.FixtureRequest) -> bool:
    """Whether an unfit file is replaced."""
    return bool(request.param)


def test_it_is_made_once(tmp_path: Path, *, replaces: bool) -> None:
    """For the owner alone, and nothing is left beside it."""
    file = tmp_path / "folder" / "a.token"
    first = load_or_create_token(file, hint=HINT, replaces_unfit=replaces)
    second = load_or_create_token(file, hint=HINT, replaces_unfit=replaces)
    assert (first.is_new, second.is_new, first.value) == (True, False, second.value)
    assert len(first.value) >= 43 and first.value not in repr(first)
    assert [(path, path.stat().st_mode & 0o777) for path in file.parent.iterdir()] == [(file, 0o600)]


def test_a_link_is_not_followed(tmp_path: Path, *, replaces: bool) -> None:
    """Whoever could put it there would choose the token, or read it; neither it nor what it leads to is touched."""
    elsewhere = tmp_path / "elsewhere"
    for text in ("a-token-of-somebody-elses", ""):
        elsewhere.write_text(text)
        elsewhere.chmod(0o600)
        file = tmp_path / "a.token"
        file.unlink(missing_ok=True)
        file.symlink_to(elsewhere)
        with pytest.raises(ConfigError, match="cannot be used"):
            load_or_create_token(file, hint=HINT, replaces_unfit=replaces)
        assert file.is_symlink() and elsewhere.read_text() == text


def test_a_pipe_or_a_folder_is_no_token_file(tmp_path: Path, *, replaces: bool) -> None:
    """Nothing is waited for."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    for name in ("pipe", "folder"):
        with pytest.raises(ConfigError, match="it is no file"):
            load_or_create_token(tmp_path / name, hint=HINT, replaces_unfit=replaces)


def test_another_users_file_is_neither_used_nor_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replaces: bool
) -> None:
    """Its owner knows what is in it."""
    file = tmp_path / "a.token"
    kept = load_or_create_token(file, hint=HINT)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="another user") as caught:
        load_or_create_token(file, hint=HINT, replaces_unfit=replaces)
    assert caught.value.hint == HINT and kept.value not in str(caught.value)
    assert file.read_text().strip() == kept.value


@pytest.mark.parametrize(("text", "mode"), [("known-to-others", 0o644), ("", 0o600), ("two words", 0o600)])
def test_processes_that_replace_an_unfit_one_together_agree(tmp_path: Path, text: str, mode: int) -> None:
    """None removes what another has just made."""
    file = tmp_path / "a.token"
    for _ in range(20):
        file.write_text(text)
        file.chmod(mode)
        with ThreadPoolExecutor(8) as pool:
            kept = list(
                pool.map(
                    lambda read: read(), [partial(load_or_create_token, file, hint=HINT, replaces_unfit=True)] * 16
                )
            )
        assert len({one.value for one in kept}) == 1 and sum(one.is_new for one in kept) == 1
        assert kept[0].value != text and file.stat().st_mode & 0o777 == 0o600
