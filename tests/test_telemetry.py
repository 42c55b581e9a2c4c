"""Logs that hide secrets, on stderr alone, and background work that reports how it ends."""

import asyncio
import base64
import json
import logging
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.telemetry import (
    configure_logging,
    fields,
    get_logger,
    has_secret,
    printable,
    redact,
    secrets_hidden,
    spawn,
    traced_in,
)

Written = Callable[[], str]


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Written:
    """What came to stderr, and nothing to stdout."""

    def read() -> str:
        out, err = capsys.readouterr()
        assert out == "", "stdout belongs to the protocol"
        return err

    return read


def test_secrets_are_hidden_while_they_are_in_use() -> None:
    """Wherever they stand in a text, and no longer than that."""
    with secrets_hidden(["hunter22", "s3cret-token"]):
        assert redact("hunter22 and s3cret-token, xhunter22x") == "[hidden] and [hidden], x[hidden]x"
    assert redact("hunter22") == "hunter22"


def test_a_plain_word_among_the_secrets_is_found_only_where_it_is_hidden() -> None:
    """All values of `env` are secrets; what cannot be shown otherwise is not kept back for such a word."""
    with secrets_hidden(["production", "hunter22", "correct-horse-battery-staple"]):
        assert redact("in production") == "in [hidden]" and not has_secret("in production")
        assert has_secret("xhunter22x") and has_secret("correct-horse-battery-staple")
    assert not has_secret("hunter22")


def test_a_secret_stays_hidden_until_its_last_user_is_gone() -> None:
    """Two servers may share one token."""
    with secrets_hidden(["hunter22"]):
        with secrets_hidden(["hunter22"]):
            pass
        assert redact("hunter22") == "[hidden]"


@pytest.mark.parametrize(
    "written",
    [
        'p"a+s/wörd=1',
        "p%22a%2Bs/w%C3%B6rd%3D1",
        "p%22a%2Bs%2Fw%C3%B6rd%3D1",
        r"p\"a+s/wörd=1",
        r"p\"a+s/w\u00f6rd=1",
        r"p\\\"a+s/w\\u00f6rd=1",
        "cCJhK3Mvd8O2cmQ9MQ==",
    ],
)
def test_a_secret_is_hidden_however_it_is_written(written: str) -> None:
    """In addresses, in JSON, in JSON inside JSON, and in base64 up to its last characters."""
    with secrets_hidden(['p"a+s/wörd=1']):
        assert re.fullmatch(r"before \[hidden\].{0,4} after", redact(f"before {written} after"))
    assert redact(written) == written


def test_secrets_are_uncovered_after_a_failure_too() -> None:
    """The block's own error passes through."""
    with pytest.raises(KeyError), secrets_hidden(["hunter22"]):
        raise KeyError
    assert redact("hunter22") == "hunter22"


def test_short_values_are_left_alone() -> None:
    """`1` and `true` are in every sentence."""
    with secrets_hidden(["12345", "", "123456"]):
        assert redact("12345 123456") == "12345 [hidden]"


@pytest.mark.parametrize("secrets", [["abcdef", "abcdefgh"], ["abcdefgh", "abcdef"]])
def test_the_rest_of_a_longer_secret_does_not_show(secrets: list[str]) -> None:
    """Where one begins like another."""
    with secrets_hidden(secrets):
        assert redact("abcdefgh abcdef") == "[hidden] [hidden]"


def test_lines_for_people_say_time_level_and_room(written: Written) -> None:
    """With secrets hidden in the text, the arguments and the traceback."""
    configure_logging("INFO")
    with secrets_hidden(["hunter22"]):
        try:
            raise ValueError("bad hunter22")
        except ValueError:
            get_logger("upstream").exception("lost %s", "hunter22")
    get_logger("upstream").debug("not at this level")
    text = written()
    first = text.splitlines()[0].split(" ", 1)
    assert len(first[0]) == len("12:30:01")
    assert first[1] == "ERROR upstream: lost [hidden]"
    assert "ValueError: bad [hidden]" in text
    assert "hunter22" not in text
    assert "not at this level" not in text


@pytest.mark.parametrize("secret", ["hunter22", 'with "quotes"', "with\\backslash", "two\nlines\tand tab", "päßwörd"])
def test_json_lines_are_one_object_each_without_secrets(written: Written, secret: str) -> None:
    """Also secrets that JSON spells with escapes."""
    configure_logging("DEBUG", style="json")
    with secrets_hidden([secret]):
        get_logger("search").debug("é %s", secret)
        try:
            raise ValueError(f"bad {secret}")
        except ValueError:
            get_logger("search").exception("failed\nbadly")
    text = written()
    quiet, failed = map(json.loads, text.splitlines())
    assert isinstance(quiet.pop("ts"), float)
    assert quiet == {"level": "DEBUG", "logger": "mcpproxy.search", "event": "é [hidden]"}
    assert failed["event"] == "failed\nbadly"
    assert "ValueError: bad [hidden]" in failed["exception"]
    assert json.dumps(secret)[1:-1] not in text


def test_a_json_line_has_its_facts_as_members_and_no_secret_in_them(written: Written) -> None:
    """A query asks for `server`, not for words of a sentence; what is within it is no JSON inside a string."""
    configure_logging("INFO", style="json")
    with secrets_hidden(["hunter22"]):
        states = {"github": "ready", "x hunter22": ["a hunter22", 7, None, True]}
        get_logger("upstream").warning("server %s", "github", extra=fields(server="github", states=states))
    line = json.loads(written())
    assert (line["event"], line["server"]) == ("server github", "github")
    assert line["states"] == {"github": "ready", "x [hidden]": ["a [hidden]", 7, None, True]}
    assert "trace_id" not in line


def test_a_json_line_names_the_trace_that_it_belongs_to(written: Written) -> None:
    """From a line of the log to its trace, and back."""
    configure_logging("INFO", style="json")
    token = traced_in.set("ab" * 16)
    try:
        get_logger("upstream").warning("late")
    finally:
        traced_in.reset(token)
    assert json.loads(written())["trace_id"] == "ab" * 16


def test_a_line_for_people_is_the_same_with_facts(written: Written) -> None:
    """They are in the sentence already."""
    configure_logging("INFO")
    get_logger("upstream").warning("server %s", "github", extra=fields(server="github"))
    assert written().endswith(" WARNING upstream: server github\n")


HOSTILE = "a\n12:30:01 ERROR gateway: forged\r\x1b[2J\x9b31m\u202edesrever\u2028b\x00"


def test_text_from_elsewhere_cannot_forge_lines_or_command_a_terminal() -> None:
    """Control characters and marks that reverse text are spelled out; all other text stays."""
    assert printable(HOSTILE) == r"a\n12:30:01 ERROR gateway: forged\r\x1b[2J\x9b31m\u202edesrever\u2028b\x00"
    assert printable("päßwörd 天気 👍🏽 \\n") == "päßwörd 天気 👍🏽 \\n"


def test_a_log_line_for_people_is_one_line_whatever_it_holds(written: Written) -> None:
    """The lines of an exception below it are indented, so that none of them passes for one of the log."""
    configure_logging("INFO")
    with secrets_hidden(["two\nlines"]):
        get_logger("upstream").warning("%s, two\nlines", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        get_logger("upstream").exception("failed")
    lines = written().split("\n")
    assert lines[0].endswith(r"\u2028b\x00, [hidden]")
    assert lines[-1] == ""
    assert [line for line in lines[1:-1] if not line.startswith("  ")] == [lines[1]]
    assert lines[1].endswith("ERROR upstream: failed")
    assert "\x1b" not in "".join(lines)


def test_a_json_line_commands_no_terminal_and_loses_nothing(written: Written) -> None:
    """JSON itself leaves some control characters as they are."""
    configure_logging("INFO", style="json")
    get_logger("upstream").warning("%s", HOSTILE)
    text = written()
    assert json.loads(text)["event"] == HOSTILE
    assert text.rstrip("\n").isprintable()


def test_a_log_file_takes_any_text(written: Written, tmp_path: Path) -> None:
    """Half a character, as some servers write it, included."""
    configure_logging("INFO", file=tmp_path / "log")
    get_logger("upstream").warning("half \ud83d")
    assert "half \\ud83d" in (tmp_path / "log").read_text()
    assert "half" in written()


def test_libraries_are_heard_from_warnings_up(written: Written) -> None:
    """Whatever level ours is."""
    configure_logging("DEBUG")
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("trouble")
    assert written().endswith("WARNING some.library: trouble\n")


def test_a_log_file_gets_the_same_lines(written: Written, tmp_path: Path) -> None:
    """Appended, so that a restart keeps what was there."""
    file = tmp_path / "gateway.log"
    file.write_text("before\n", "utf-8")
    configure_logging("INFO", file=file)
    get_logger("web").info("é")
    before, line = file.read_text("utf-8").splitlines()
    assert before == "before"
    assert line.endswith("INFO web: é")
    assert written().strip() == line


@pytest.mark.parametrize("name", ["", "missing/gateway.log"])
def test_a_log_file_that_cannot_be_opened_is_reported_and_left_out(written: Written, tmp_path: Path, name: str) -> None:
    """The gateway serves without it."""
    configure_logging("INFO", file=tmp_path / name)
    get_logger("web").info("still here")
    first, second = written().splitlines()
    assert f"WARNING telemetry: log file {tmp_path / name} cannot be opened: " in first
    assert second.endswith("still here")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_log_file_on_a_full_disk_is_reported_once(written: Written) -> None:
    """Lines go on to stderr; what they hide stays hidden."""
    configure_logging("INFO", file=Path("/dev/full"))
    with secrets_hidden(["trusted-word-1"]):
        for number in range(3):
            get_logger("web").info("line %d of %s", number, "trusted-word-1")
    with suppress(OSError):  # what it has not taken, it does not take at the end either
        logging.getLogger().handlers[-1].close()
    lines = written().splitlines()
    assert [" telemetry: " in line for line in lines] == [False, True, False, False]
    assert "log file /dev/full cannot be written: No space left on device" in lines[1]
    assert "trusted-word-1" not in "".join(lines)


@pytest.mark.long  # a third of a second of processor time
def test_a_pipe_that_nobody_reads_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, written: Written) -> None:
    """F64: lines that do not fit are left out, whole or but for their beginning, and counted once there is room."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with os.fdopen(reader, "rb", buffering=0) as log, os.fdopen(writer, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        configure_logging("INFO")
        monkeypatch.undo()
        logged = 0
        for _ in range(30_000):
            get_logger("web").info("line %d %s", logged, "x" * 100)
            logged += 1
        early = log.read(1 << 22).splitlines()
        get_logger("web").info("and on")
        late = log.read(1 << 22).splitlines()
    whole = [line for line in early if line.endswith(b"x" * 100)]
    assert 0 < len(whole) < logged
    assert [int(line.split()[4]) for line in whole] == list(range(len(whole)))
    (told,) = [int(line.split()[0][1:]) for line in late if b"are missing here" in line]
    assert logged - told - len(whole) in (0, 1), "one may be torn"
    assert late[-1].endswith(b"INFO web: and on")
    assert written() == ""


async def ends_with(error: BaseException | None) -> None:
    """Work that ends this way."""
    if error is not None:
        raise error


async def watched(work: Any) -> None:
    """Runs background work to its end."""
    task = spawn(work, "the work")
    with anyio.fail_after(20):
        await asyncio.wait([task])
        await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
async def test_background_work_that_crashes_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """By name, with its traceback, although nobody waits for it."""
    await watched(ends_with(ValueError("no such lamp")))
    (line,) = caplog.records
    assert (line.levelname, line.getMessage()) == ("ERROR", "background task the work ended: no such lamp")
    assert line.exc_info is not None


@pytest.mark.anyio
@pytest.mark.parametrize("error", [None, asyncio.CancelledError()], ids=["done", "cancelled"])
async def test_background_work_that_ends_as_it_should_says_nothing(
    caplog: pytest.LogCaptureFixture, error: BaseException | None
) -> None:
    """A result or a cancellation is no crash."""
    await watched(ends_with(error))
    assert caplog.records == []


@pytest.mark.parametrize("secret", ["hunter22", "s3cret/+~?>", "wörd-wörd-1", "x" * 9, "ÿþý?>=<;:ÿ"])
@pytest.mark.parametrize("before", ["", "u", "u:", "Basic u:", "\N{BULLET}"])
@pytest.mark.parametrize("after", ["", "!", "!!", "\N{BULLET} and more"])
def test_a_secret_inside_a_longer_text_in_base64_is_hidden(secret: str, before: str, after: str) -> None:
    """Wherever in it the secret begins, in both alphabets; no whole byte of it is left."""
    whole = f"{before}{secret}{after}".encode()
    with secrets_hidden([secret]):
        for written in (base64.b64encode(whole).decode(), base64.urlsafe_b64encode(whole).decode()):
            hidden = redact(written)
            assert hidden.count("[hidden]") == 1
            first, last = hidden.split("[hidden]")
            assert len(first) <= -(-len(before.encode()) * 8 // 6)
            assert len(last.rstrip("=")) <= -(-len(after.encode()) * 8 // 6) + 1


def test_a_secret_in_hex_is_hidden() -> None:
    """In small and large letters; other text in hex is not."""
    with secrets_hidden(["hunter22"]):
        assert redact(b"u:hunter22!".hex()) == "753a[hidden]21"
        assert redact(b"u:hunter22!".hex().upper()) == "753A[hidden]21"
        assert redact(b"u:hunter23!".hex()) == b"u:hunter23!".hex()
