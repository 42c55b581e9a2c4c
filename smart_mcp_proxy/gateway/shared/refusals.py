"""Refusals of what waits for its user, without any of what is withheld."""

from smart_mcp_proxy.errors import ProxyError, QuarantinedError, RefusedError, RequestError, UpstreamError
from smart_mcp_proxy.models import ToolKey, WithheldState
from smart_mcp_proxy.names import extract_server_name, shell_word
from smart_mcp_proxy.servers import ServerConfig

_REASONS = {
    WithheldState.PENDING: "is new and waits for the user's approval",
    WithheldState.CHANGED: "has changed since the user approved it",
    WithheldState.BLOCKED: "is blocked by the user",
    WithheldState.ALTERED: "was changed in the catalog by something else than the gateway, and waits for the user",
}
_ONLY_THE_USER = "Only the user can lift this, with:"


def approve_command(key: ToolKey) -> str:
    """The command by which the user looks at a withheld tool, and approves it."""
    return f"mcpproxy approve {shell_word(str(key))}"


def tool_withheld(key: ToolKey, state: WithheldState) -> QuarantinedError:
    """The refusal of a tool that is withheld."""
    approve = approve_command(key)
    return QuarantinedError(
        f"Tool '{key}' {_REASONS[state]}.",
        hint=f"{_ONLY_THE_USER} {approve}",
        data={"state": state.value, "tool": str(key), "approve": approve},
    )


def differs_here(key: ToolKey) -> QuarantinedError:
    """The refusal of an item whose approved definition is not what its server lists on this connection."""
    server = extract_server_name(key.server)
    item = f"tool '{key}'" if server == key.server else f"'{key}'"
    return QuarantinedError(
        f"Server '{server}' does not list {item} here as the user approved it.",
        hint=f"{_ONLY_THE_USER} mcpproxy approve {shell_word(str(key))}",
        data={"state": WithheldState.CHANGED.value},
    )


def content_withheld(key: ToolKey, state: WithheldState) -> QuarantinedError:
    """The refusal of a prompt, resource or template that is withheld."""
    return QuarantinedError(
        f"'{key}' {_REASONS[state]}.",
        hint=f"{_ONLY_THE_USER} mcpproxy approve {shell_word(str(key))}",
        data={"state": state.value},
    )


def content_unlisted(server: str) -> QuarantinedError:
    """The refusal of a URI that a server does not list while some of what it lists is withheld."""
    return QuarantinedError(
        f"Server '{server}' does not list this resource, and some that it lists are withheld.",
        hint="Use a URI that resources/list gives. Only the user can lift this: mcpproxy approve shows what waits.",
        data={"state": "unlisted"},
    )


def skill_file_unlisted(key: ToolKey) -> QuarantinedError:
    """The refusal of a file that its skill did not have when it was approved."""
    return QuarantinedError(
        f"The skill '{key}' was approved without this file.",
        hint=f"Use a file that skills/get names. Where the server has added it, the skill waits as changed: "
        f"{_ONLY_THE_USER} mcpproxy approve {shell_word(str(key))}",
        data={"state": "unlisted"},
    )


def content_changed(key: ToolKey, *, is_gone: bool) -> RefusedError | RequestError:
    """Refusal of a prompt, resource or template that changed while the request waited."""
    if is_gone:
        return RequestError(f"'{key}' is no longer listed.", hint="The lists have what there is now.", code="not_found")
    return RefusedError(
        f"The definition of '{key}' is no longer the one you saw.",
        hint="Look at the list again, then repeat the request.",
        code="definition_changed",
    )


def server_quarantined(name: str) -> QuarantinedError:
    """The refusal of everything that a quarantined server offers."""
    approve = f"mcpproxy server approve {shell_word(name)}"
    return QuarantinedError(
        f"Server '{name}' waits for the user's approval; it is not started, and none of its tools can be used.",
        hint=f"{_ONLY_THE_USER} {approve}",
        data={"state": "quarantined", "server": name, "approve": approve},
    )


def server_disabled(name: str) -> RefusedError:
    """The refusal of everything that a disabled server offers."""
    return RefusedError(
        f"Server '{name}' is disabled.",
        hint=f"Use another server, or ask the user to switch it on: mcpproxy server enable {shell_word(name)}",
        code="server_disabled",
        data={"state": "disabled"},
    )


def server_off(config: ServerConfig) -> ProxyError | None:
    """The refusal of whatever a server offers that is not to be connected; None for another."""
    if config.quarantined:
        return server_quarantined(config.name)
    if config.disabled:
        return server_disabled(config.name)
    if config.refusal is None:
        return None
    message, hint = config.refusal
    return UpstreamError(message, hint=f"Its user can correct the entry. {hint}".rstrip(), data={"state": "error"})
