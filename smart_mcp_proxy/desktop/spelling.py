"""Commands of ours, spelled so that they work as they are printed."""

import os
import shlex
import shutil
import sys

from smart_mcp_proxy.desktop.places import PREFIX, data_directory


def spell_command(*words: str, data_dir: str = "") -> str:
    """Spell a command of ours so that it works as it is printed, in any folder of this user.

    Args:
        words: The command's own.
        data_dir: The data directory that it is for; named only where it is not the usual one.
    """
    script = os.path.join(os.path.dirname(sys.executable), "mcpproxy")
    found = shutil.which("mcpproxy")
    if found is not None and os.path.realpath(found) == os.path.realpath(script):
        program = ["mcpproxy"]
    else:
        program = [script] if os.path.isfile(script) else [sys.executable, "-m", "smart_mcp_proxy"]
    is_usual = not data_dir or data_dir == data_directory({})
    setting = "" if is_usual else f"{PREFIX}DATA_DIR={_quote(data_dir)} "
    return setting + " ".join(map(_quote, [*program, *words]))


def _quote(word: str) -> str:
    """A word as a shell reads it, short where it is a path below the user's home."""
    home = os.path.join(os.path.expanduser("~"), "")
    return f"~/{shlex.quote(word[len(home) :])}" if word.startswith(home) else shlex.quote(word)
