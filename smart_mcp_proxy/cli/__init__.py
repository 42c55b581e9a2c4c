"""The command line: `mcpproxy` and `python -m smart_mcp_proxy`."""

import os
import sys

from smart_mcp_proxy import __version__
from smart_mcp_proxy.cli.exit_codes import EXIT_CONFIG, EXIT_INTERRUPTED

__all__ = ["main"]

BACKGROUND = ["serve", "--background"]
"""The gateway that clients share, as the first of them starts it."""
LOADING_GC_THRESHOLD = 200_000
"""Allocations before a collection while modules are loaded: none of what they make is garbage, and going through it
again and again takes 0.3 s of a start. A command's own garbage is still collected."""


def main() -> None:
    """Runs the command in `sys.argv` and exits with its status."""
    _complete_streams()
    words = sys.argv[1:]
    if words == ["--version"]:
        sys.stdout.write(f"mcpproxy {__version__}\n")
        return
    if sys.platform == "win32":
        sys.stderr.write(
            "error: mcpproxy runs on Linux and macOS, not on Windows itself. Use it inside WSL (wsl --install).\n"
        )
        sys.exit(EXIT_CONFIG)
    if words == BACKGROUND:
        sys.exit(_serve_in_background())
    queued = None
    if is_serving := _is_serving(words):
        from smart_mcp_proxy.cli.support.sharing import serve_through_door

        environ = os.environ  # noqa: TID251  (the settings, whose home it is, take 0.15 s to import)
        status, queued = (None, None) if sys.stdin.isatty() else serve_through_door(words, environ)
        if status is not None:
            sys.exit(status)
    elif words[:1] == ["attach"]:
        from smart_mcp_proxy.desktop.http.attaching import attach_early

        if (status := attach_early(words, os.environ)) is not None:  # noqa: TID251  (as above)
            sys.exit(status)
    # Imported here so that `--version` and the demo servers below this package start without the commands' imports.
    import gc
    import signal

    # They take a second, in which there is nothing to close yet: a signal ends the process as it will end it later.
    at_interrupt = signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_INTERRUPTED))
    if is_serving:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        gc.disable()  # until everything is loaded, see web/collector.py
        # Before anything else is imported: the client is answered meanwhile, by a fork of what is here so far.
        from smart_mcp_proxy.cli.support.opening import opening

        opening.begin(words, queued)
    else:
        gc.set_threshold(LOADING_GC_THRESHOLD)
    from smart_mcp_proxy.cli.app import main as run

    if not is_serving:
        signal.signal(signal.SIGINT, at_interrupt)
        sys.exit(run())
    try:
        sys.exit(run())
    finally:
        opening.refuse("see its log.")  # where nobody has said why


def _complete_streams() -> None:
    """Opens the standard streams that the process was started without, on nothing.

    Else the next file to be opened, the catalog say, would take the number of one and get what is written there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _is_serving(words: list[str]) -> bool:
    """Whether these words start the gateway, which keeps these handlers until it opens something."""
    if not words:
        return not sys.stdin.isatty()
    return words[0] == "serve" and "--check" not in words


def _serve_in_background() -> int:
    """Serves at the socket that this process was started with; returns the exit status.

    Nobody types this: it does without the grammar of the command line, which takes 40 ms of which each client waits.
    """
    import gc
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):  # until something is open that has to be closed
        signal.signal(number, lambda *_: os._exit(0))
    gc.disable()  # until everything is loaded, see web/collector.py
    from smart_mcp_proxy.cli.support.loop import load_sparingly, run

    load_sparingly()
    from smart_mcp_proxy.cli.support.start import open_settings
    from smart_mcp_proxy.errors import ProxyError

    try:
        settings = open_settings(is_serving=True)
        from smart_mcp_proxy.cli.commands.operate.serving import serve_in_background

        return run(serve_in_background(settings))
    except ProxyError as error:
        from smart_mcp_proxy.cli.support.failure import exit_status, report

        report(error, as_json=False)
        return exit_status(error)
