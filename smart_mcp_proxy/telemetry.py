"""Logs on stderr (stdout belongs to the protocol), limits for noise, background tasks, activity."""

import asyncio
import base64
import fcntl
import json
import logging
import os
import random
import re
import select
import stat
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal, TextIO, TypeVar
from urllib.parse import quote, quote_plus

import msgspec

LINES: Final = 5
WINDOW_S: Final = 60.0
"""Seconds within which the log takes `LINES` lines of one place in a library's code."""
_MOST_PLACES: Final = 256
_GONE: Final = frozenset({"ClientDisconnect", "ClosedResourceError", "BrokenResourceError", "ConnectionResetError"})
"""Errors that a library raises where its client has left. By name: to log is no reason to import what raises them."""

T = TypeVar("T")

LOGGER_NAME = "mcpproxy"
_HIDDEN = "[hidden]"
_SECRET_MIN_CHARS = 6
"""Shorter values ("1", "true") would blank out half of every sentence."""

_UNLIKELY_CHARS = 20
"""Length of a value that nobody comes upon by chance."""

_INSIDE_MIN_BYTES = 8
"""Least bytes of a value that is looked for inside a longer text in base64: of a shorter one too few characters are
left to be told from others."""
_FOREIGN_CHARS = (0, 2, 3)
"""Characters at the start of a value in base64 that no, one or two bytes before it have a part in."""

_URL_SAFE = str.maketrans("+/", "-_")
_PIPE_BYTES = 1024 * 1024
"""Some 10,000 lines: a reader that was busy for a moment misses none."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Terminal commands, ends of lines, and marks that reverse the direction of text."""

_FIELDS = "fields"
traced_in: ContextVar[str] = ContextVar("traced_in", default="")
"""Id of the trace that the present request is recorded in; JSON lines have it."""

_secrets: dict[str, int] = {}
"""Every spelling of the secrets in use, and how often it was asked to be hidden."""
_spelled: tuple[str, ...] = ()
"""The same, longest first: one secret may be the beginning of another."""
_tasks: set[asyncio.Task[Any]] = set()
_random = random.Random(os.urandom(32))


class _Place:
    """A line of code that logs."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.lines = 0
        self.left_out = 0


class NoiseFilter(logging.Filter):
    """Lets a library log so much a minute per place in code; leaving clients are not logged.

    Anybody who reaches the port can send requests that are none, and leave before they are answered: what libraries
    log about it would fill a disk. Lines of the gateway's own all pass.

    Args:
        own: The gateway's own loggers begin with this name.
        clock: Monotonic seconds.
    """

    def __init__(self, own: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._own = own
        self._clock = clock
        self._places: dict[tuple[str, int], _Place] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is logged; decided once for all handlers."""
        told: bool | None = getattr(record, "is_told", None)
        if told is None:
            is_own = record.name == self._own or record.name.startswith(f"{self._own}.")
            told = record.is_told = is_own or self._is_worth_it(record)
        return told

    def _is_worth_it(self, record: logging.LogRecord) -> bool:
        exc = record.exc_info[1] if record.exc_info else None
        if exc is not None and type(exc).__name__ in _GONE:
            return False
        now_s, key = self._clock(), (record.pathname, record.lineno)
        place = self._places.get(key)
        if place is None:
            if len(self._places) == _MOST_PLACES:
                self._places.clear()
            place = self._places[key] = _Place(now_s)
        if now_s - place.began_s >= WINDOW_S:
            if place.left_out:
                _add(record, f"({place.left_out:,} more like this were left out)")
            place.began_s, place.lines, place.left_out = now_s, 0, 0
        if place.lines == LINES:
            place.left_out += 1
            return False
        place.lines += 1
        if place.lines == LINES:
            _add(record, f"(more like this are only counted for {WINDOW_S:.0f} s)")
        return True


def _add(record: logging.LogRecord, words: str) -> None:
    # A filter runs outside of what logging itself guards: a line that cannot be formatted is left to its handlers.
    with suppress(TypeError, ValueError, KeyError):
        record.msg, record.args = f"{record.getMessage()} {words}", None


def get_logger(room: str) -> logging.Logger:
    """The logger of one room, below the common one."""
    return logging.getLogger(f"{LOGGER_NAME}.{room}")


def fields(**facts: Any) -> dict[str, Any]:
    """The `extra` of a log call: facts that are members of their own in a JSON line, beside the sentence.

    Args:
        **facts: Named like nothing that each line has: ts, level, logger, event, exception, trace_id.
    """
    return {_FIELDS: facts}


def redact(text: str) -> str:
    """`text` without any of the secret values in use, also if written in base64, hex, JSON or an address."""
    for secret in _spelled:  # replaced as a whole, never changed: logs come from all threads
        text = text.replace(secret, _HIDDEN)
    return text


def has_secret(text: str) -> bool:
    """Whether a secret value in use stands in `text`, however it is written.

    For what cannot be shown without it: a short value without a digit, like `production`, may be anybody's word.
    """
    return any(word in text for word in _spelled if len(word) >= _UNLIKELY_CHARS or any(map(str.isdigit, word)))


def _spellings(secret: str) -> set[str]:
    """Common spellings of a value."""
    raw = secret.encode("utf-8", "surrogateescape")
    in_base64 = set(_in_base64(raw))
    in_json = json.dumps(secret)[1:-1]
    unescaped = json.dumps(secret, ensure_ascii=False)[1:-1]
    addresses = {quote(raw), quote(raw, safe=""), quote_plus(raw)}
    return {
        secret,
        in_json,
        unescaped,
        json.dumps(in_json)[1:-1],
        raw.hex(),
        raw.hex().upper(),
        *in_base64,
        *(word.translate(_URL_SAFE) for word in in_base64),
        *addresses,
    }


def _in_base64(raw: bytes) -> Iterator[str]:
    """Spellings of a value in base64, alone or inside a longer text."""
    for before in range(3 if len(raw) >= _INSIDE_MIN_BYTES else 1):
        text = base64.b64encode(bytes(before) + raw).decode()
        yield text[_FOREIGN_CHARS[before] : (before + len(raw)) * 8 // 6]


def _count(spellings: list[str], change: int) -> None:
    global _spelled  # noqa: PLW0603
    for word in spellings:
        _secrets[word] = _secrets.get(word, 0) + change
        if not _secrets[word]:
            del _secrets[word]
    _spelled = tuple(sorted(_secrets, key=len, reverse=True))


def printable(text: str) -> str:
    """`text` on one line without terminal commands: control characters as `\\x1b`."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


@contextmanager
def secrets_hidden(values: Iterator[str] | list[str] | tuple[str, ...]) -> Iterator[None]:
    """While open, hide these values in `redact()` and logs (not those under 6 characters)."""
    hidden = [word for value in values if len(value) >= _SECRET_MIN_CHARS for word in _spellings(value)]
    _count(hidden, 1)
    try:
        yield
    finally:
        _count(hidden, -1)


class _ConsoleFormatter(logging.Formatter):
    """`12:30:01 WARNING upstream: text`, one line each, secrets hidden; exceptions below."""

    def format(self, record: logging.LogRecord) -> str:
        room = record.name.removeprefix(f"{LOGGER_NAME}.")
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        # Hidden first: a secret may hold characters that are spelled out.
        lines = [f"{clock} {record.levelname} {room}: {printable(redact(record.getMessage()))}"]
        if record.exc_info:
            # Indented, so that no line in an error's text can pass for one of the log.
            trace = redact(self.formatException(record.exc_info)).splitlines()
            lines += [f"  {printable(line)}" for line in trace]
        return "\n".join(lines)


class _JsonFormatter(logging.Formatter):
    """Formats records as JSON lines: ts, level, logger, event, fields, trace id and exception."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "ts": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            "event": redact(record.getMessage()),
            **_redact_field(getattr(record, _FIELDS, {})),
        }
        if trace := traced_in.get():
            event["trace_id"] = trace
        if record.exc_info:
            event["exception"] = redact(self.formatException(record.exc_info))
        text = json.dumps(event, ensure_ascii=False)  # hidden before this: JSON spells some characters otherwise
        return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _redact_field(value: Any) -> Any:
    """A field's value without secrets, whatever it is made of; JSON holds it in any case."""
    if isinstance(value, Mapping):
        return {redact(str(key)): _redact_field(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redact_field(one) for one in value]
    return value if isinstance(value, int | float | None) else redact(str(value))


class _LogFile(logging.FileHandler):
    """A log file; that its disk is full is said once, on stderr, and disturbs nobody."""

    _is_told = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (as logging has it)
        """Count a line that could not be written; logging's own traceback would show secrets."""
        exc = sys.exception()
        if not isinstance(exc, OSError):
            super().handleError(record)
        elif not self._is_told:
            self._is_told = True
            get_logger("telemetry").warning("log file %s cannot be written: %s", self.baseFilename, exc.strerror)


class _Console(logging.StreamHandler[TextIO]):
    """Our stderr; a pipe is never waited for, as the event loop would wait with it.

    Lines that do not fit into it are left out; the next one that does says how many they were.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._left_out = 0
        self._is_torn = False
        self._pipe = _prepare_pipe(stream)
        self._room = select.poll()
        if self._pipe is not None:
            self._room.register(self._pipe, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, or counts it."""
        if self._pipe is None:
            super().emit(record)
            return
        line = self.format(record)
        if self._left_out:
            line = f"({self._left_out} lines of the log are missing here: nobody read them)\n{line}"
        data = b"\n" * self._is_torn + line.encode("utf-8", "backslashreplace") + b"\n"
        written = 0
        with suppress(OSError):  # nobody will ever read it
            while written < len(data) and self._room.poll(0):
                # A pipe that has room has room for so much.
                written += os.write(self._pipe, data[written : written + select.PIPE_BUF])
        if written:
            self._left_out, self._is_torn = 0, written < len(data)
        else:
            self._left_out += 1


def _prepare_pipe(stream: TextIO) -> int | None:
    """Descriptor of a stream that ends in a pipe; enlarged to a megabyte where possible."""
    try:
        descriptor = stream.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (OSError, ValueError):  # no file, or closed
        return None
    if is_pipe and hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # this user's share of pipe memory is used up
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return descriptor if is_pipe else None


def configure_logging(level: str, *, file: Path | None = None, style: Literal["console", "json"] = "console") -> None:
    """Send logs to stderr, and to `file` if given; libraries log from WARNING up.

    Args:
        level: DEBUG, INFO, WARNING or ERROR.
        file: Appended to; one that cannot be opened is reported once and left out.
        style: Lines for people or JSON lines.
    """
    formatter: logging.Formatter = _JsonFormatter() if style == "json" else _ConsoleFormatter()
    handlers: list[logging.Handler] = [_Console(sys.stderr)]
    problem: OSError | None = None
    if file is not None:
        try:
            handlers.append(_LogFile(file, encoding="utf-8", errors="backslashreplace"))
        except OSError as exc:
            problem = exc
    noise = NoiseFilter(LOGGER_NAME)
    for handler in handlers:
        handler.setFormatter(formatter)
        handler.addFilter(noise)
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(logging.WARNING)
    logging.getLogger(LOGGER_NAME).setLevel(level)
    if problem is not None:
        get_logger("telemetry").warning("log file %s cannot be opened: %s", file, problem.strerror)


def spawn(work: Coroutine[Any, Any, T], name: str, *, is_awaited: bool = False) -> asyncio.Task[T]:
    """Starts background work; a crash is logged, never lost.

    The one place where tasks begin: a task started elsewhere can vanish with its exception.

    Args:
        work: What is done.
        name: Of the task.
        is_awaited: Whoever waits for it is told of its crash; the log is not.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    if not is_awaited:
        task.add_done_callback(_report_end)
    return task


def _report_end(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (exc := task.exception()) is not None:
        get_logger("tasks").error("background task %s ended: %s", task.get_name(), exc, exc_info=exc)


async def await_shielded(work: asyncio.Future[T]) -> T:
    """The result of work that goes on when its waiter is cancelled.

    As with `asyncio.shield`, which logs the error of work without a waiter as forgotten, from Python 3.14 on.
    """
    if not work.done():
        await asyncio.wait([work])
    return work.result()


ActivityKind = Literal["search", "call", "approval", "config", "session", "question", "access"]


def new_activity_id() -> str:
    """Activity id of 28 hex digits: milliseconds, then 64 random bits; ordered by time."""
    return f"{time.time_ns() // 1_000_000:012x}{_random.getrandbits(64):016x}"


class Activity(msgspec.Struct, frozen=True):
    """Activity record: search, call, approval, configuration, session, question or access.

    Attributes:
        kind: What happened.
        principal: On whose behalf.
        subject: The query, or the canonical name of the tool or server.
        outcome: `ok`, `tool_error`, or an error code.
        duration_ms: From request to answer.
        at_s: Seconds since the epoch, for people; records are ordered by when they were stored.
        detail: Small facts: the names found, the reason an agent gave.
        id: The record's own; made here, so that what belongs to it can name it before it is stored.
        session: A short digest of the caller's session, empty where it has none.
        server: Configured name, empty where there is none.
        tool: The tool's own name, empty where there is none.
        digest: Of the exact definition called.
        delivery: Of a failed call: whether the server may have carried it out.
        arguments: What the policy lets be kept of a call's arguments; None where that is nothing.
        parent: Id of the record that this one is a part of, empty where it stands alone.
    """

    kind: ActivityKind
    principal: str
    subject: str
    outcome: str
    duration_ms: float
    at_s: float
    detail: Mapping[str, Any] = msgspec.field(default_factory=dict)
    id: str = msgspec.field(default_factory=new_activity_id)
    session: str = ""
    server: str = ""
    tool: str = ""
    digest: str = ""
    delivery: str = ""
    arguments: Any = None
    parent: str = ""
