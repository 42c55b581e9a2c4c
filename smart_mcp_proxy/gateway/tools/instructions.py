"""Instructions: the first words a model reads, with the names of the servers that its client reaches.

Agents search more readily when they know what is there. The words depend on settings, the server file and the caller's
reach alone, never on the state of a connection, so that prompt caches survive a restart.

Source: docs/design/protocol-surface.md#instructions
"""

from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.greeting.instructions import INSTRUCTIONS, build_instructions

__all__ = ["INSTRUCTIONS", "choose_instructions"]


def choose_instructions(setting: str, visible: CatalogView) -> str:
    """The instructions for those who see one part of the catalog.

    Args:
        setting: `servers`, `plain`, or a text that stands in place of all.
        visible: The part.
    """
    word = setting.strip().lower()
    if word not in ("servers", "plain"):
        return setting
    if word == "plain":
        return INSTRUCTIONS
    return build_instructions(visible.list_reachable_servers())
