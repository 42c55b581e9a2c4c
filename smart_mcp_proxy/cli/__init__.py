"""The command line: `mcpproxy` and `python -m smart_mcp_proxy`."""

import sys

from smart_mcp_proxy import __version__

__all__ = ["main"]


def main() -> None:
    """Runs the command in `sys.argv` and exits with its status."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"mcpproxy {__version__}\n")
        return
    # Imported here so that `--version` and the demo servers below this package start without the commands' imports.
    from smart_mcp_proxy.cli.app import main as run

    sys.exit(run())
