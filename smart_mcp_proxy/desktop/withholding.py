"""Clients that keep variables of their user from the servers that they start, the gateway among them."""

from typing import Final

_SECRETS: Final = "no variable that looks like a secret"
_LETS_THROUGH: Final = "lets those through that the server file names"
_WITHHOLDING: Final = {
    "codex": ("Codex", "none of your variables", f"mcpproxy connect codex --write {_LETS_THROUGH}"),
    "gemini-cli": ("Gemini CLI", _SECRETS, f"mcpproxy connect gemini --write {_LETS_THROUGH}"),
    "qoder": ("Qoder", _SECRETS, "write its value into 'env' of the entry for mcpproxy there"),
}
"""By a part of the name that each gives when it connects: its title, what it passes on, and what to do.
Source: docs/clients/index.md#variables"""


def explain_withholding(client: str) -> str:
    """Say what a client keeps from the gateway that it starts, and the remedy; empty for others."""
    for part, (title, passed, remedy) in _WITHHOLDING.items():
        if part in client.casefold():
            return f"{title} gives the servers that it starts {passed}: {remedy}."
    return ""


def is_reference(name: str, text: str) -> bool:
    """Whether a variable holds the reference to itself that a client could not fill in, as it is not set."""
    return text in (f"${name}", f"${{{name}}}")
