"""The person's desktop, as far as a terminal knows of it."""

import sys

from smart_mcp_proxy.settings import environment

__all__ = ["has_desktop"]


def has_desktop() -> bool:
    """Whether a browser window can be opened for the person at this terminal."""
    environ = environment()
    has_screen = sys.platform in ("darwin", "win32") or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
    return has_screen and not environ.get("SSH_CONNECTION") and sys.stderr.isatty()
