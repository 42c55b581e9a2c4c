"""Questions to the person at the terminal, which Ctrl-C ends at once."""

import getpass
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from smart_mcp_proxy.cli.support.output import clean, say


def ask_line(question: str) -> str:
    """Ask a question in one line; returns the answer, empty at the end of the input."""
    say(question)
    with _interruptible():
        return sys.stdin.readline()


def ask_secret(question: str) -> str:
    """Ask for a value that is not shown while it is typed."""
    with _interruptible():
        return getpass.getpass(clean(question), stream=sys.stderr)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt here: an event loop would note it and go on waiting for the answer."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        say()  # what follows begins a line
        raise
    finally:
        signal.signal(signal.SIGINT, before)
