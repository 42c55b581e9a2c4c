"""Commands of ours, spelled so that they work as they are printed."""

import os
import shlex
import shutil
import sys

from smart_mcp_proxy.desktop.places import PREFIX, data_directory

_PIPX, _UV = "pipx install", "uv tool install"
_CACHES = {"/archive-v0/": _UV, "/builds-v0/": _UV, "/pipx/.cache/": _PIPX, "/.cache/pipx/": _PIPX}
"""Parts of the paths where `uvx` and `pipx run` keep what they start, and what installs it instead."""


def find_program() -> list[str]:
    """Find what starts this program, whatever else is called `mcpproxy`."""
    script = os.path.join(os.path.dirname(sys.executable), "mcpproxy")
    return [script] if os.path.isfile(script) else [sys.executable, "-m", "smart_mcp_proxy"]


def explain_passing(prefix: str) -> str:
    """Say that this program runs out of a cache, if so: what starts it by its path later may find nothing.

    Args:
        prefix: The folder of the Python that it is installed in, as `sys.prefix`.
    """
    advice = next((words for part, words in _CACHES.items() if part in f"{prefix}/"), "")
    told = "This program runs out of a cache, {}, and what starts it from there finds nothing once that is cleared. {}"
    return told.format(prefix, f"Install it first: {advice} PATH_OF_CHECKOUT_OR_WHEEL") if advice else ""


def spell_command(*words: str, data_dir: str = "") -> str:
    """Spell a command of ours so that it works as it is printed, in any folder of this user.

    Args:
        words: The command's own.
        data_dir: The data directory that it is for; named only where it is not the usual one.
    """
    program, found = find_program(), shutil.which("mcpproxy")
    if found is not None and os.path.realpath(found) == os.path.realpath(program[0]):
        program = ["mcpproxy"]
    is_usual = not data_dir or data_dir == data_directory({})
    setting = "" if is_usual else f"{PREFIX}DATA_DIR={_quote(data_dir)} "
    return setting + " ".join(map(_quote, [*program, *words]))


def _quote(word: str) -> str:
    """A word as a shell reads it, short where it is a path below the user's home."""
    home = os.path.join(os.path.expanduser("~"), "")
    return f"~/{shlex.quote(word[len(home) :])}" if word.startswith(home) else shlex.quote(word)
