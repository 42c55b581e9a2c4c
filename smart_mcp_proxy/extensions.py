"""Extensions of the protocol that the gateway knows, and what a client declares of them."""

from collections.abc import Mapping
from typing import Any, Final

from smart_mcp_proxy.models import Era

APPS: Final = "io.modelcontextprotocol/ui"
"""Interfaces of tools.

Source: https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx"""
SKILLS: Final = "io.modelcontextprotocol/skills"
"""Instructions for models. Source: https://modelcontextprotocol.io/seps/2640-skills-extension"""
TASKS: Final = "io.modelcontextprotocol/tasks"
"""Calls that outlive their request.

Source: https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/2026-07-28/tasks.md"""

APP_META: Final = "ui"
"""Member of `_meta` that belongs to interfaces: of a tool and a result, and of a call that comes from one."""

Extensions = Mapping[str, Mapping[str, Any]]
"""Settings by identifier."""
SHOWS_APPS: Final[Extensions] = {APPS: {"mimeTypes": ["text/html;profile=mcp-app"]}}
"""As a client declares it that shows interfaces."""

_OF_CLIENTS: Final[Mapping[Era, tuple[str, ...]]] = {"handshake": (APPS,), "modern": (APPS, TASKS)}
"""What a client declares for its calls; before 2026-07-28 there is no such extension for tasks."""


def read_client_extensions(capabilities: object, era: Era) -> Extensions | None:
    """Extensions in a client's capabilities that are passed on to servers; None without any.

    Args:
        capabilities: As the client wrote them, whatever that is.
        era: In which it declares them.
    """
    declared = capabilities.get("extensions") if isinstance(capabilities, Mapping) else None
    if not isinstance(declared, Mapping):
        return None
    found = {name: declared[name] for name in _OF_CLIENTS[era] if isinstance(declared.get(name), Mapping)}
    return found or None


def read_extension_settings(capabilities: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Settings of an extension that a server declares; None where it does not."""
    declared = capabilities.get("extensions")
    settings = declared.get(name) if isinstance(declared, Mapping) else None
    return settings if isinstance(settings, Mapping) else None
