"""First step of every command: settings, log, warnings about unknown variables, the desktop."""

import sys

from smart_mcp_proxy.settings import Settings, environment, load_settings, unknown_variables
from smart_mcp_proxy.telemetry import configure_logging, get_logger

QUIET = "CRITICAL"
"""A command that answers and ends shows what it found; the same once more as a log would be noise."""


def open_settings(*, is_serving: bool = False, log_level: str | None = None, **flags: object) -> Settings:
    """The settings from environment and flags, with the log turned on.

    Args:
        is_serving: Everything, warnings included, goes to the log; otherwise only the answer matters.
        log_level: Least level to log where the environment does not set one.
        **flags: Settings given on the command line; None is not given.

    Raises:
        ConfigError: A value is wrong.
    """
    environ = environment()
    settings = load_settings(environ, **flags)
    chosen = settings.log_level if environ.get("MCPPROXY_LOG_LEVEL") else log_level
    level = chosen or (settings.log_level if is_serving else QUIET)
    configure_logging(level, file=settings.log_file, style=settings.log_format)
    for warning in unknown_variables(environ):
        if is_serving:
            get_logger("settings").warning("%s", warning)
        else:
            from smart_mcp_proxy.cli.support.output import warn  # a gateway that serves needs none of it

            warn(warning)
    return settings


def has_desktop() -> bool:
    """Whether a browser window can be opened for the person at this terminal."""
    environ = environment()
    has_screen = sys.platform in ("darwin", "win32") or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
    return has_screen and not environ.get("SSH_CONNECTION") and sys.stderr.isatty()
