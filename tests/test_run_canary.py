"""What looks for the secret of the whole run finds it."""

import base64
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import run_canary


@pytest.mark.parametrize("before", ["", "a", "bc", "def"])
@pytest.mark.parametrize("spelled", [str, lambda text: base64.b64encode(text.encode()).decode()])
def test_it_is_found_wherever_it_stands_in_plain_or_in_base64(
    before: str, spelled: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far into the text."""
    assert callable(spelled)
    text = f"said {spelled(f'{before}{run_canary.CANARY} and more')} so"
    monkeypatch.setattr(run_canary, "leaks", [])
    run_canary.look("here", text)
    assert len(run_canary.leaks) == 1
    with TemporaryDirectory() as name:  # gone before the whole run is searched
        log = Path(name) / "deep" / "log"
        log.parent.mkdir()
        log.write_bytes(b"\xff" + text.encode())
        (Path(name) / "other").write_text(text[::-1])
        assert list(run_canary.found_in_files(Path(name))) == [str(log)]


def test_each_server_is_trusted_with_it_once_and_nothing_else_changes() -> None:
    """Where a process or an address is configured; what is no entry is left to the check of the configuration."""
    servers = {"a": {"command": "x", "env": {"B": "1"}}, "b": {"url": "http://b.example"}, "c": {"args": []}, "d": 1}
    given = json.dumps(run_canary.entrusted(servers))
    assert given.count(run_canary.CANARY) == 2
    assert '"B": "1"' in given
