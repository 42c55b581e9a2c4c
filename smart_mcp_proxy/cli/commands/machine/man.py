"""`mcpproxy man`: the manual page, which comes with the package."""

import shutil
import subprocess
import sys
from importlib.resources import as_file, files

from anyio import to_thread
from cyclopts import App

from smart_mcp_proxy.cli.support.output import translate_write_errors

app = App(
    name="man",
    help_epilogue="""\
A package that is installed for all users brings the page to `man mcpproxy`.
Installed by uv or pipx it stays inside of the program's own folder.

Examples:
  mcpproxy man
  mcpproxy man > ~/.local/share/man/man1/mcpproxy.1    for `man mcpproxy`""",
)


@app.default
async def man() -> int:
    """Show the manual page, or off a terminal write it as it is."""
    page = files("smart_mcp_proxy.cli").joinpath("mcpproxy.1")
    if sys.stdout.isatty() and (reader := shutil.which("man")):
        with as_file(page) as path:
            return (await to_thread.run_sync(subprocess.run, [reader, str(path)])).returncode
    with translate_write_errors("stdout"):
        sys.stdout.write(page.read_text("utf-8"))
    return 0
