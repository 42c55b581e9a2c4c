"""Under which circumstances the answers of the last start are those of this one."""

import json
import os
import sys
from pathlib import Path

import pytest
from full_disks import full_disk

from smart_mcp_proxy import greeting
from smart_mcp_proxy.desktop.places import words_for_stdio
from smart_mcp_proxy.greeting.eras import StdioEras
from smart_mcp_proxy.greeting.record import KEPT, GreetingRecord

ERAS = StdioEras("heeding", "MCPPROXY_ROUTING_TYPE=AUTO")
KNOWN = {"initialize": {"2025-11-25": '{"protocolVersion":"2025-11-25"}'}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a server file, beside the data directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mcp_config.json").write_text("{}")
    monkeypatch.chdir(folder)
    return folder


def record(project: Path, *words: str, **settings: str) -> GreetingRecord:
    """Of a start with these words and settings."""
    environ = {"HOME": "/h", "PATH": "/p", "MCPPROXY_DATA_DIR": str(project.parent / "data")}
    return GreetingRecord(list(words), environ | {f"MCPPROXY_{name}": text for name, text in settings.items()})


def test_the_answers_of_a_start_are_there_at_the_next(project: Path) -> None:
    """Only this user can read them, and nothing is written that is there."""
    first = record(project)
    assert first.load() is None
    assert first.save(KNOWN, "gate", ERAS)
    assert record(project).load() == (KNOWN, "gate", ERAS)
    assert not record(project).save(KNOWN, "gate", ERAS)
    assert os.stat(first.path).st_mode & 0o777 == 0o600
    assert os.stat(project.parent / "data" / "run").st_mode & 0o777 == 0o700


def test_they_hold_for_the_same_words_settings_and_server_file_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only changes the log changes no answer."""
    record(project).save(KNOWN, "gate", ERAS)
    assert record(project, LOG_LEVEL="DEBUG").load() is not None
    assert record(project, "serve").load() is not None
    assert record(project, "serve", "--profile", "p").load() is None
    assert record(project, TOP_K="banana").load() is None
    assert record(project, CONFIG_PATH="none.json").load() is None
    (project.parent / "other").mkdir()
    monkeypatch.chdir(project.parent / "other")
    assert record(project).load() is None
    monkeypatch.chdir(project)
    assert record(project).load() is not None
    (project / "mcp_config.json").write_text('{"mcpServers": {}}')
    assert record(project).load() is None


def test_a_named_server_file_counts_wherever_the_client_starts_the_gateway(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each project of a client is a working directory of its own."""
    words = ("serve", "--config", str(project / "mcp_config.json"))
    record(project, *words).save(KNOWN, "gate", ERAS)
    (project.parent / "other").mkdir()
    monkeypatch.chdir(project.parent / "other")
    assert record(project, *words).load() is not None


@pytest.mark.parametrize("named", ["", "~/mcp_config.json"])
def test_the_server_file_is_found_as_the_settings_find_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """An empty path is none, and a client's file may say ~: what the file says now is what counts."""
    monkeypatch.setenv("HOME", str(project))
    record(project, CONFIG_PATH=named).save(KNOWN, "gate", ERAS)
    assert record(project, CONFIG_PATH=named).load() is not None
    (project / "mcp_config.json").write_text('{"mcpServers": {}}')
    assert record(project, CONFIG_PATH=named).load() is None


def test_nothing_is_kept_where_the_server_file_has_changed_since_the_start(project: Path) -> None:
    """The answers may be those of either."""
    first = record(project)
    (project / "mcp_config.json").write_text('{"mcpServers": {}}')
    assert not first.save(KNOWN, "gate", ERAS)


def test_another_program_makes_them_void(project: Path) -> None:
    """A part of it was updated."""
    first = record(project)
    first.save(KNOWN, "gate", ERAS)
    stored = json.loads(Path(first.path).read_text())
    part = next(each for each in stored["program"] if each.startswith(str(Path(greeting.__file__).parent)))
    stored["program"][part][0] += 1
    Path(first.path).write_text(json.dumps(stored))
    assert record(project).load() is None


def test_bytecode_that_is_written_first_changes_no_program(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder from which nobody has imported yet gets its bytecode beside it; a file that is replaced counts."""
    package = project / "package"
    (package / "greeting").mkdir(parents=True)
    module = package / "greeting" / "module.py"
    module.write_text("")
    monkeypatch.setattr(sys.modules[GreetingRecord.__module__], "__file__", str(package / "greeting" / "record.py"))
    record(project).save(KNOWN, "gate", ERAS)
    (package / "greeting" / "__pycache__").mkdir()
    assert record(project).load() is not None
    module.write_text("changed")
    assert record(project).load() is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"program": {}, "known": {"a": {"b": "x\\ny"}}, "name": "n"}']
)
def test_a_damaged_file_counts_as_none(project: Path, text: str) -> None:
    """The start is slower, and writes it anew."""
    first = record(project)
    first.save(KNOWN, "gate", ERAS)
    Path(first.path).write_text(text)
    assert record(project).load() is None
    assert record(project).save(KNOWN, "gate", ERAS)


def test_a_directory_that_cannot_be_written_costs_nothing(project: Path) -> None:
    """The next start is as slow as this one."""
    (project.parent / "data").write_text("a file")
    assert not record(project).save(KNOWN, "gate", ERAS)


def test_a_full_disk_leaves_no_part_of_a_record(project: Path) -> None:
    """Nothing would find it later."""
    with full_disk():
        assert not record(project).save(KNOWN, "gate", ERAS)
    assert list((project.parent / "data" / "run").iterdir()) == []


def test_the_oldest_records_are_removed(project: Path) -> None:
    """Each set of settings has one, and those that were killed meanwhile have left parts."""
    assert record(project).save(KNOWN, "gate", ERAS)
    part = Path(f"{record(project).path}.4711")
    part.touch()
    os.utime(part, (0, 0))
    for number in range(KEPT + 3):
        record(project, TOP_K=str(number)).save(KNOWN, "gate", ERAS)
    assert len(list((project.parent / "data" / "run").glob("greeting-*"))) == KEPT
    assert record(project, TOP_K=str(KEPT + 2)).load() is not None
    assert not part.exists()


@pytest.mark.parametrize(
    ("words", "settings", "is_for_stdio"),
    [
        ("", {}, True),
        ("serve", {}, True),
        ("serve --config x --profile p", {}, True),
        ("serve --config=x", {}, True),
        ("serve --passthrough x", {"TRANSPORT": "stdio"}, True),
        ("serve --config", {}, False),
        ("serve --http", {}, False),
        ("serve --help", {}, False),
        ("serve --json", {}, False),
        ("serve --chekc", {}, False),
        ("search x", {}, False),
        ("serve", {"TRANSPORT": "streamable-http"}, False),
        ("serve", {"MAX_MESSAGE_BYTES": "1024"}, False),
    ],
)
def test_only_a_server_on_stdio_is_greeted_for(words: str, settings: dict[str, str], is_for_stdio: bool) -> None:
    """Anything else is answered by whoever reads the words."""
    environ = {f"MCPPROXY_{name}": text for name, text in settings.items()}
    assert words_for_stdio(words.split(), environ) is is_for_stdio
