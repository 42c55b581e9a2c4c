"""Extensions of the protocol that the gateway knows, and the places where each joins."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

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


class Extension(msgspec.Struct, frozen=True):
    """Places at which an extension joins the gateway.

    Attributes:
        eras: In which servers learn with each call what its client declares of it.
        settings: Declared to clients where a server that they see has it; what that takes its handlers know.
        methods: Own methods that agents ask, each with the params that it cannot do without.
        result_type: Of tool results in its own way, with which its continuation goes on in the request path.
    """

    eras: tuple[Era, ...] = ()
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict)
    methods: Mapping[str, Mapping[str, type]] = msgspec.field(default_factory=dict)
    result_type: str = ""


EXTENSIONS: Final[Mapping[str, Extension]] = {
    APPS: Extension(eras=("handshake", "modern")),
    SKILLS: Extension(
        settings={"directoryRead": True},
        methods={"skills/list": {}, "skills/get": {"uri": str}, "resources/directory/read": {"uri": str}},
    ),
    TASKS: Extension(
        eras=("modern",),  # before 2026-07-28 there is no such extension
        methods={
            "tasks/get": {"taskId": str},
            "tasks/update": {"taskId": str, "inputResponses": dict},
            "tasks/cancel": {"taskId": str},
        },
        result_type="task",
    ),
}
"""Extensions, one row each. Handlers of methods: `gateway/sessions`; continuations: `gateway/calls/exchange.py`."""


def read_client_extensions(capabilities: object, era: Era) -> Extensions | None:
    """Extensions in a client's capabilities that are passed on to servers; None without any.

    Args:
        capabilities: As the client wrote them, whatever that is.
        era: In which it declares them.
    """
    declared = capabilities.get("extensions") if isinstance(capabilities, Mapping) else None
    if not isinstance(declared, Mapping):
        return None
    names = [name for name, extension in EXTENSIONS.items() if era in extension.eras]
    found = {name: declared[name] for name in names if isinstance(declared.get(name), Mapping)}
    return found or None


def read_extension_settings(capabilities: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Settings of an extension that a server declares; None where it does not."""
    declared = capabilities.get("extensions")
    settings = declared.get(name) if isinstance(declared, Mapping) else None
    return settings if isinstance(settings, Mapping) else None
