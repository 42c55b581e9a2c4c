"""Errors of the command line, each with the next command to type, and questions that Ctrl-C ends."""

import getpass
import io
import re
import select
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from smart_mcp_proxy.cli.support.output import OutputError, clean, indent_lines, say, show_json
from smart_mcp_proxy.errors import ConfigError, ProxyError, RequestError
from smart_mcp_proxy.names import shell_word

_Error = TypeVar("_Error", bound=ProxyError)
_NEXT = {
    "config_invalid": "mcpproxy doctor",
    "token_exists": "mcpproxy token list",
    "token_not_found": "mcpproxy token list",
    "server_exists": "mcpproxy server list",
    "revision_conflict": "mcpproxy server list",
    "tool_not_found": "mcpproxy tool list",
    "profile_not_found": "mcpproxy config show",
    "server_not_found": "mcpproxy server list",
    "upstream_failed": "mcpproxy server list",
    "upstream_auth": "mcpproxy server list",
    "upstream_timeout": "mcpproxy server list",
}
"""The command that helps after each kind of error."""
_LOOK_S = 0.2
"""Seconds that an interrupt may go unnoticed while a question is open."""
_COMMAND = re.compile(r": (mcpproxy [^\n]+)\Z")


class UsageError(RequestError):
    """The command line cannot be understood; exit code 2."""

    code = "usage"


@contextmanager
def next_step(command: str) -> Iterator[None]:
    """Names the command that helps if what is done inside fails."""
    try:
        yield
    except ProxyError as error:
        error.add_note(command)
        raise


def add_next_step(error: _Error, command: str) -> _Error:
    """Note the command that helps with an error; returns the error, to be raised."""
    error.add_note(command)
    return error


def require_agreed(question: str, deed: str, command: str, hint: str = "") -> None:
    """Passes if the person at the terminal agrees.

    Args:
        question: Yes or no.
        deed: Verb and object of what is asked about.
        command: The one that helps where nobody can be asked.
        hint: For that case.

    Raises:
        UsageError: There is nobody to ask.
        ProxyError: The answer is no.
    """
    if not sys.stdin.isatty():
        message = f"This asks before it {deed}, and there is no terminal to ask on."
        raise add_next_step(UsageError(message, hint=hint), command)
    if ask_line(f"{question} [y/N]").strip().lower() not in ("y", "yes"):
        raise ProxyError("Nothing is changed.", code="cancelled")


def ask_line(question: str) -> str:
    """Ask a question in one line; returns the answer, empty at the end of the input."""
    with _interruptible():
        say(question)
        # A signal that comes between Python's last look for one and the system's read would wait for Enter.
        with suppress(io.UnsupportedOperation):  # a terminal that is no file
            while sys.stdin.isatty() and not select.select([sys.stdin], [], [], _LOOK_S)[0]:
                pass
        return sys.stdin.readline()


def ask_secret(question: str) -> str:
    """Ask for a value that is not shown while it is typed."""
    with _interruptible():
        return getpass.getpass(clean(question), stream=sys.stderr)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt here: an event loop would go on waiting for the answer."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        say()  # what follows begins a line
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def exit_status(error: ProxyError) -> int:
    """2 where the user's words, settings or files are at fault, else 1."""
    return 2 if isinstance(error, ConfigError | UsageError) else 1


def report(error: ProxyError, *, as_json: bool) -> None:
    """Print a failure to stderr, the next command last; also as JSON to stdout if asked for."""
    if as_json:
        with suppress(OutputError):  # it is told on stderr all the same
            show_json({"error": error.to_dict()})
    say(f"error: {indent_lines(error.message)}", style="red")
    if hint := _hint(error):
        say(indent_lines(hint))
    if isinstance(schema := (error.data or {}).get("input_schema"), Mapping):
        for line in _parameters(schema):
            say(f"  {indent_lines(line)}")
    say(f"Next: {_next_command(error)}")


def _hint(error: ProxyError) -> str:
    """Hint for a person, where the gateway's own is meant for an agent."""
    if error.error_code == "invalid_arguments":
        return "The server was not called. Its parameters:"
    if error.error_code == "tool_not_found" and "did_you_mean" not in (error.data or {}):
        return ""
    return error.hint


def _next_command(error: ProxyError) -> str:
    near = (error.data or {}).get("did_you_mean")
    if near:
        return f"mcpproxy tool show {shell_word(near[0])}"
    notes: list[str] = getattr(error, "__notes__", [])
    if notes:
        return notes[0]
    mends = extract_command(error.hint) if error.error_code == "upstream_auth" else ""
    return mends or _NEXT.get(error.error_code, "mcpproxy doctor")


def extract_command(hint: str) -> str:
    """The command that a hint ends with; empty if it ends with words."""
    found = _COMMAND.search(hint)
    return found[1] if found else ""


def _parameters(schema: Mapping[str, Any]) -> list[str]:
    """Return a line for each parameter that a tool takes."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, Mapping):
        return []
    lines = []
    for name, value in properties.items():
        facts = value if isinstance(value, Mapping) else {}
        need = "required" if isinstance(required, list) and name in required else "optional"
        kind = facts.get("type")
        kinds = ", ".join(str(one) for one in (kind if isinstance(kind, list) else [kind, need]) if one)
        lines.append(f"{name} ({kinds})  {facts.get('description') or ''}".rstrip())
    return lines
