"""The commands put together, and what becomes of their errors.

A command's file is imported when the command is typed, so that `--help` and a mistyped word cost a tenth of a second.
"""

import os
import shlex
import sys

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError, UnusedCliTokensError

from smart_mcp_proxy import __version__
from smart_mcp_proxy.cli.commands.machine.help_pages import HelpConsole
from smart_mcp_proxy.cli.exit_codes import EXIT_INTERRUPTED

COMMANDS = {
    "serve": ("operate.serve", "Start the gateway, over stdio or HTTP."),
    "status": ("operate.status", "Show the gateways that run, and the clients that share them."),
    "stop": ("operate.stop", "Stop the gateway in the background, once calls under way are answered."),
    "init": ("servers.init", "Find the servers that your MCP clients have, and take over those you want."),
    "connect": ("servers.connect", "Make MCP clients use the gateway."),
    "disconnect": ("servers.disconnect", "Take the gateway out of MCP clients again."),
    "attach": ("servers.attach", "Carry messages between stdio and a gateway that runs."),
    "demo": ("operate.demo_command", "Try a search on bundled sample servers, without network or configuration."),
    "search": ("catalog.search", "Find tools by what they do."),
    "call": ("catalog.call", "Call a tool."),
    "check": ("catalog.check", "Check that tools can be called as they were approved, for cron and CI."),
    "tool": ("catalog.tool", "List tools, look at one, forget what was learned about it."),
    "server": ("servers.server", "List servers, add and change them, read what they log."),
    "login": ("servers.server_login", "Sign in to all servers that wait for it, or to one."),
    "approve": ("catalog.approve", "Show and approve tools that wait for you."),
    "block": ("catalog.block", "Keep a tool from agents, whatever its definition becomes."),
    "scan": ("catalog.scan", "Look for attacks on agents in tool definitions."),
    "token": ("operate.token", "Make, list and revoke tokens for agents that connect over HTTP."),
    "eval": ("catalog.evaluate", "Measure how good the answers are."),
    "ui": ("machine.ui", "Open the page on which you see and decide what the gateway does."),
    "activity": ("operate.activity", "See what agents searched and called, and export it."),
    "stats": ("figures.stats", "See what the gateway served and saved."),
    "data": ("operate.data", "Copy the catalog to a database and back, back it up, restore it."),
    "doctor": ("operate.doctor", "Check the whole set-up and say what to repair."),
    "config": ("servers.config", "Show the settings in force and the file the servers come from."),
    "service": ("machine.service", "Run the gateway over HTTP as a service of your own user."),
    "man": ("machine.man", "Show the manual page, or off a terminal write it as it is."),
    "completion": ("machine.completion", "Print a script by which bash, zsh or fish completes commands and names."),
}
"""Each command's module below `cli.commands`, imported when the command is typed, and its summary; a test holds the
summaries equal to what the commands say themselves."""

_HELP = "One search tool in front of all your MCP servers."
_EXAMPLES = """\
Examples:
  mcpproxy demo "mix two colors"           a first try, nothing to set up
  mcpproxy init                            take over the servers your clients have
  mcpproxy connect --all --write           make the clients use the gateway
  mcpproxy serve --http                    one endpoint for all your servers
  mcpproxy search "create an issue" --why  what an agent would find
  mcpproxy call todo:add_task title=Milk   call a tool by hand
  mcpproxy doctor                          what is wrong, how to repair it

Without a command: an overview on a terminal, else the server on stdio.
Each command has examples: mcpproxy COMMAND --help"""


def build_app() -> App:
    """The command line's grammar."""
    app = App(
        name="mcpproxy",
        help=_HELP,
        help_epilogue=_EXAMPLES,
        help_format="plaintext",
        version=__version__,
        console=HelpConsole(),
        default_parameter=Parameter(negative=(), show_default=False),
        print_error=False,
        exit_on_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for place, (name, (module, summary)) in enumerate(COMMANDS.items()):
        app.command(f"smart_mcp_proxy.cli.commands.{module}:app", name=name, help=summary, sort_key=place)
    return app


def main() -> int:
    """Runs the command in `sys.argv`; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A tool's description may hold characters that the terminal's encoding does not have.
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _run(sys.argv[1:])
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        status = 1
    return status if _is_all_written() else status or 1


def _is_all_written() -> bool:
    """Flush stdout; False if it cannot be written, and then drop the rest, or the last flush fails."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _run(words: list[str]) -> int:
    # Here and not above: the grammar alone answers --help.
    from smart_mcp_proxy.cli.support.failure import UsageError, exit_status, report
    from smart_mcp_proxy.cli.support.opening import opening
    from smart_mcp_proxy.errors import ProxyError

    try:
        _require_utf8(words)
        if not words:
            from smart_mcp_proxy.cli.commands.operate.overview import run_without_command

            return run_without_command()
        if words[:2] == ["completion", "candidates"]:
            return _show_candidates(words[2:])
        _require_known(words)
        try:
            status = build_app()(words)
        except CycloptsError as exc:
            error = UsageError(_in_words(exc))
            helps = _for_programs(exc, words) or [*(exc.command_chain or ()), "--help"]
            error.add_note(shlex.join(["mcpproxy", *helps]))
            raise error from exc
        return int(status or 0)
    except ProxyError as error:
        opening.refuse(str(error))
        if isinstance(error, UsageError) or error.error_code == "invalid_request":
            chain, *_ = build_app().parse_commands(words)
            error.add_note(" ".join(["mcpproxy", *chain, "--help"]))  # where nothing more precise was said
        report(error, as_json="--json" in words)
        return exit_status(error)


def _in_words(error: CycloptsError) -> str:
    """The message of the grammar, in one line and without its own terms."""
    if isinstance(error, UnusedCliTokensError):
        return f"{shlex.join(error.unused_tokens or ())} is more than this command takes."
    return " ".join(str(error).split())


def _for_programs(error: CycloptsError, words: list[str]) -> list[str]:
    """The words with `--json`, where another program's option for that is not known; empty otherwise."""
    from smart_mcp_proxy.cli.commands.machine.near_misses import with_json

    option = error.token.keyword if isinstance(error, UnknownOptionError) else None
    return with_json(words) if option and with_json([option]) != [option] else []


def _require_known(words: list[str]) -> None:
    """Raises UsageError where the words are near a command, or another program's; names the one meant."""
    from smart_mcp_proxy.cli.commands.machine.near_misses import UPGRADES, explain_upgrade, guess_command
    from smart_mcp_proxy.cli.support.failure import UsageError

    if words[0].lower() in UPGRADES:
        error = UsageError(f"There is no command '{words[0]}'.", hint=explain_upgrade(sys.prefix))
        error.add_note("mcpproxy --version")
        raise error
    if command := guess_command(words, COMMANDS):
        typed = shlex.join(words[:2] if words[0] in COMMANDS else words[:1])
        error = UsageError(f"There is no command '{typed}'. Did you mean '{command}'?")
        error.add_note(f"mcpproxy {command}")
        raise error


def _show_candidates(words: list[str]) -> int:
    """Prints what a shell may complete the last of these words to, a line each."""
    from smart_mcp_proxy.cli.commands.machine.candidates import candidates
    from smart_mcp_proxy.cli.support.output import show

    if found := candidates(build_app(), words[1:] if words[:1] == ["--"] else words):
        show("\n".join(found))
    return 0


def _require_utf8(words: list[str]) -> None:
    """Raises UsageError where a word holds bytes that are not UTF-8: nothing could store or send it."""
    from smart_mcp_proxy.cli.support.failure import UsageError

    for word in words:
        if not word.isascii() and any("\ud800" <= character <= "\udfff" for character in word):
            error = UsageError(f"The argument {word!a} is not text in UTF-8.", hint="Type it in UTF-8.")
            error.add_note("mcpproxy --help")
            raise error
