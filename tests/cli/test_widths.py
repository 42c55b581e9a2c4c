"""Every command at several widths of a terminal, and in a pipe: words stay whole, and nothing is padded."""

import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

import pytest
from cli_runs import PROGRAM, Run, environment, some_servers
from cyclopts import App

from smart_mcp_proxy.cli.app import COMMANDS, build_app, main

TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
COMMAND = re.compile(r"mcpproxy |journalctl|loginctl|^ +\{.+\}$|^\s*(complete|compdef|set|local|found|COMPREPLY|if) ")
"""Lines that are copied as they stand."""

SHOWN = [
    ["demo", "mix two colors"],
    ["search", "add a task", "--why"],
    ["search", "add a task"],
    ["call", "todo:list_tasks"],
    ["tool", "list"],
    ["tool", "show", "todo:add_task"],
    ["server", "list"],
    ["server", "show", "todo"],
    ["login"],
    ["approve", "--list"],
    ["scan"],
    ["token", "list"],
    ["activity", "list"],
    ["doctor"],
    ["config", "show"],
    ["config", "show", "--origin"],
    ["config", "path"],
    ["service", "status"],
    ["upstream", "list"],
    ["call", "todo:nothing_like_it"],
]
HELP = [[name, "--help"] for name in COMMANDS] + [
    ["--help"],
    ["server", "add", "--help"],
    ["activity", "list", "--help"],
]
RAW = {("call", "todo:list_tasks"), ("server", "show", "todo"), ("tool", "show", "todo:add_task")}
"""Results as servers and files have them: they are not ours to break."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with servers that have been listed."""
    made = tmp_path_factory.mktemp("widths")
    (made / "mcp_config.json").write_text(json.dumps(some_servers("todo", "colors")))
    subprocess.run([*PROGRAM, "tool", "list"], cwd=made, env=environment(made / "d"), check=True, capture_output=True)
    yield made


def read_whole(terminal: int) -> str:
    """What was written to the other end until nobody has that any more."""
    said = b""
    with suppress(OSError):  # this is how its end is told
        while chunk := os.read(terminal, 65_536):
            said += chunk
    # What a progress bar wrote is overwritten by it.
    return re.sub(r"(?s)\x1b\[\?25l.*?\x1b\[\?25h", "", said.decode())


def read_terminal(words: list[str], folder: Path, columns: int) -> str:
    """What a terminal of this width is sent, both streams."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = environment(folder / "d") | {"TERM": "xterm"}
    env.pop("COLUMNS", None)
    process = subprocess.Popen([*PROGRAM, *words], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = read_whole(ours)
    process.wait(30)
    os.close(ours)
    return said


def at_terminal(words: list[str], folder: Path, columns: int) -> list[str]:
    """The same line by line, without what commands the terminal."""
    return TERMINAL.sub("", read_terminal(words, folder, columns)).splitlines()


def is_breakable(line: str, columns: int) -> bool:
    """Whether a line that is too long could have been broken between two of its words."""
    return len(line) > columns and len(line.split()) > 1 and not COMMAND.search(line)


def unindented(lines: list[str]) -> list[str]:
    """Examples of a help page that do not stand apart from its text."""
    examples = lines[lines.index("Examples:") + 1 :]
    shown = examples[: examples.index("")] if "" in examples else examples
    return [line for line in shown if not line.startswith("  ")]


def assert_fits(words: list[str], lines: list[str], columns: int) -> None:
    """A word, and a command to copy, may be longer."""
    assert lines
    assert "Traceback" not in "\n".join(lines)
    if tuple(words) not in RAW:
        assert [line for line in lines if is_breakable(line, columns)] == []
    if "--help" in words:
        assert unindented(lines) == []


BY_ITSELF = [[], ["tool", "list"], ["--help"]]
"""What is looked at in a process of its own in CI; the other commands find the width of a terminal as these do."""


@pytest.mark.long  # a process each
@pytest.mark.parametrize("columns", [60, *(pytest.param(more, marks=pytest.mark.soak) for more in (40, 80, 200))])
@pytest.mark.parametrize(
    "words",
    [words if words in BY_ITSELF else pytest.param(words, marks=pytest.mark.soak) for words in [[], *SHOWN, *HELP]],
    ids=" ".join,
)
def test_no_line_is_longer_than_the_terminal_where_words_can_be_broken(
    folder: Path, words: list[str], columns: int
) -> None:
    """Whatever the terminal's width."""
    assert_fits(words, at_terminal(words, folder, columns), columns)


@pytest.mark.long  # some of them start servers
@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_no_line_is_longer_than_a_narrow_terminal(
    home: Path, folder: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in this process, where COLUMNS says the width: that of its own streams is another."""
    ours, theirs = pty.openpty()
    for name, text in {"COLUMNS": "40", "TERM": "xterm", "MCPPROXY_DATA_DIR": str(folder / "d")}.items():
        monkeypatch.setenv(name, text)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["mcpproxy", *words])
    with ThreadPoolExecutor() as threads, open(theirs, "w", buffering=1) as terminal:
        said = threads.submit(read_whole, ours)
        with monkeypatch.context() as patch:
            for stream in ("stdout", "stderr"):
                patch.setattr(sys, stream, terminal)
            main()
    os.close(ours)
    assert_fits(words, TERMINAL.sub("", said.result()).splitlines(), 40)


@pytest.mark.long  # two processes
def test_no_color_leaves_the_colours_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As https://no-color.org has it: bold and dim text stay."""
    colour = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7])(?:;\d+)*m")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colour.search(read_terminal(["server", "list"], folder, 80))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(read_terminal(["server", "list"], folder, 80))


@pytest.mark.long  # some of them start servers
@pytest.mark.parametrize("words", [*SHOWN, HELP[0]], ids=" ".join)
def test_a_pipe_gets_no_trailing_blanks(
    run: Run, folder: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On either stream, and no colours."""
    monkeypatch.chdir(folder)
    done = run(*words, DATA_DIR=str(folder / "d"))
    lines = (done.out + done.err).splitlines()
    assert lines
    assert [line for line in lines if line != line.rstrip()] == []
    assert "\x1b" not in done.out + done.err


def pages(app: App, *words: str) -> Iterator[tuple[str, ...]]:
    """The words of every command, the group's before those in it."""
    yield words
    for name in app:
        if not name.startswith("-"):
            yield from pages(app[name], *words, name)


def command_in(line: str) -> list[str] | None:
    """The words of our own command in a line of examples; None if it holds none."""
    found = re.search(r"(?:^|[ (])mcpproxy ([^|>)]*)", line)
    return shlex.split(found[1]) if found else None


@pytest.mark.long  # half a second of work and more
def test_every_example_of_every_help_page_fits_or_is_a_command_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 60 columns; what is too long for them is accepted by the grammar, remarks would not be."""
    monkeypatch.setenv("COLUMNS", "60")
    app = build_app()
    found = [*pages(app)]
    assert len(found) > 50
    for words in found:
        app([*words, "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert "Examples:" not in lines or unindented(lines) == [], words
        for line in lines:
            assert line == line.rstrip(), words
            assert "\x1b" not in line, words
            if len(line) > 60 and (command := command_in(line)) is not None:
                app.parse_args(command)
            else:
                assert not is_breakable(line, 60), (words, line)


def test_a_line_that_could_be_broken_is_seen() -> None:
    """The measure itself."""
    assert is_breakable("one two three", 8)
    assert not is_breakable("one two three", 13)
    assert not is_breakable("http://" + "x" * 80, 20)
    assert not is_breakable("Next: mcpproxy server logs with-a-long-name", 20)
