"""The first start ever: a client is answered before anything is loaded, or recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from smart_mcp_proxy.greeting.eras import stdio_eras
from smart_mcp_proxy.greeting.first import first_answers
from smart_mcp_proxy.greeting.record import GreetingRecord, default_answers
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

PLAIN = {"command": "x", "args": ["1"], "env": {"A": "${A}"}}


def asked(tmp_path: Path, entries: Any, *words: str, **environ: str) -> Any:
    (tmp_path / "servers.json").write_text(json.dumps(entries))
    given = {"MCPPROXY_DATA_DIR": str(tmp_path / "data"), **environ}
    return first_answers(["serve", "--config", str(tmp_path / "servers.json"), *words], given)


def test_a_plain_first_start_is_answered_as_the_gateway_would(tmp_path: Path) -> None:
    """With the servers that can be reached, and the settings that nobody has changed."""
    entries = {"mcpServers": {"b": PLAIN, "a": {"url": "http://localhost/mcp", "headers": {"X": "1"}}}}
    found = asked(tmp_path, entries, MCPPROXY_LOG_LEVEL="DEBUG")
    settings = Settings(data_dir=tmp_path / "data")
    reached = [name for name, each in load_servers(tmp_path / "servers.json").servers.items() if not each.is_off]
    eras = stdio_eras(settings.stdio_era, settings.routing_type)
    assert found == (*default_answers(reached, is_growing=settings.routing_type != "CALL_TOOL"), eras)
    assert asked(tmp_path, {"mcpServers": {}}) == (*default_answers(), eras)
    (tmp_path / "servers.json").unlink()
    assert first_answers(["serve"], {"MCPPROXY_DATA_DIR": str(tmp_path)}) == (*default_answers(), eras)


@pytest.mark.parametrize(
    "entries",
    [
        {"mcpServers": {"a": PLAIN}, "profiles": {}},
        {"mcpServers": {"a": PLAIN | {"disabled": True}}},
        {"mcpServers": {"a": PLAIN | {"pin": ["x"]}}},
        {"mcpServers": {"a": {"args": []}}},
        {"mcpServers": {"a b": PLAIN}},
        {"mcpServers": {"a": 1}},
        {"mcpServers": []},
        [],
    ],
)
def test_whatever_is_not_plain_waits_for_the_gateway(tmp_path: Path, entries: Any) -> None:
    """It may have more to say."""
    assert asked(tmp_path, entries) is None


def test_what_is_set_or_stored_waits_for_the_gateway(tmp_path: Path) -> None:
    """So does a profile, and a file that is none."""
    entries = {"mcpServers": {"a": PLAIN}}
    assert asked(tmp_path, entries, MCPPROXY_TOP_K="7") is None
    assert asked(tmp_path, entries, "--profile", "x") is None
    assert asked(tmp_path, entries) is not None
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "proxy.db").touch()
    assert asked(tmp_path, entries) is None
    (tmp_path / "data" / "proxy.db").unlink()
    (tmp_path / "servers.json").write_bytes(b"\xff{")
    assert first_answers(["serve", "--config", str(tmp_path / "servers.json")], {"HOME": str(tmp_path)}) is None


def test_a_server_file_that_is_touched_or_written_anew_is_the_same(tmp_path: Path) -> None:
    """Its content counts for the record, not its time, size or number."""
    path, environ = tmp_path / "servers.json", {"MCPPROXY_DATA_DIR": str(tmp_path / "data")}
    words = ["serve", "--config", str(path)]
    path.write_text("{}")
    GreetingRecord(words, environ).save(*default_answers(), stdio_eras("auto", "CALL_TOOL"))
    assert GreetingRecord(words, environ).load() is not None
    path.unlink()
    path.write_text("{}")
    assert GreetingRecord(words, environ).load() is not None
    path.write_text("{ }")
    assert GreetingRecord(words, environ).load() is None
