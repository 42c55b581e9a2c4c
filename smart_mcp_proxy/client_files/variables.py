"""References of the clients to variables, files and questions, in the words of our own server file."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from smart_mcp_proxy.client_files.clients import KnownClient

_SECRETS = re.compile(r"\$\{\{\s*(?:secrets|inputs)\.(\w+)\s*\}\}")
_REFERENCE = re.compile(r"\$\{([^}]*)\}?")
_BRACES = re.compile(r"(?<!\$)\{(env|file):([^}]+)\}")
_DOLLAR = re.compile(r"(?<![\w$])\$([A-Za-z_][A-Za-z0-9_]*)")
_KEPT = re.compile(r"(?:env:)?[A-Za-z_][A-Za-z0-9_]*(?::-.*)?|file:.+|keyring:.+|userHome", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]\w{0,30}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class KeyringSecret:
    """A value that has to be stored in the keyring before the server can start.

    Attributes:
        name: Name under which it is stored.
        words: What to ask for.
        value: The value, where the client's own files hold it; never shown.
    """

    name: str
    words: str
    value: str | None = field(default=None, repr=False)


def build_keyring_name(server: str, what: str) -> str:
    """The name under which a server's secret is stored."""
    return _NOT_IN_NAMES.sub("-", f"{server}-{what}")


class Translation:
    """The texts of one entry, one after the other, and what was noticed on the way.

    Args:
        client: Whose words they are.
        server: Name of the server.
        asked: The client's questions by their id, as its file describes them.
    """

    def __init__(self, client: KnownClient, server: str, asked: Mapping[str, Mapping[str, Any]]) -> None:
        self._client = client
        self._server = server
        self._asked = asked
        self.questions: dict[str, KeyringSecret] = {}
        self.lost: dict[str, None] = {}

    def text(self, value: Any) -> Any:
        """The value in our words; what is no text stays."""
        if not isinstance(value, str):
            return value
        for pattern, put in self._patterns():
            value = pattern.sub(put, value)
        return _REFERENCE.sub(self._reference, value)

    def texts(self, values: Any) -> Any:
        """A list or map of texts in our words."""
        if isinstance(values, list):
            return [self.text(value) for value in values]
        if isinstance(values, Mapping):
            return {key: self.text(value) for key, value in values.items()}
        return values

    def ask(self, what: str, words: str, value: str | None = None) -> str:
        """Return a reference to a value of the keyring, which is asked for."""
        name = build_keyring_name(self._server, what)
        self.questions[name] = KeyringSecret(name, words, value)
        return f"${{keyring:{name}}}"

    def lose(self, what: str) -> None:
        """Notes something that cannot be taken over."""
        self.lost[what] = None

    def _patterns(self) -> list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]]:
        if self._client.variable.startswith("{"):  # OpenCode
            return [(_BRACES, lambda found: f"${{{found[1]}:{found[2]}}}")]
        if self._client.variable == "${}":  # Gemini CLI
            return [(_DOLLAR, lambda found: f"${{{found[1]}}}")]
        if "secrets" in self._client.variable:  # Continue
            return [(_SECRETS, lambda found: f"${{{found[1]}}}")]
        return []

    def _reference(self, found: re.Match[str]) -> str:
        written, body = found[0], found[1]
        kind, _, rest = body.partition(":")
        if kind == "input" and rest:
            about = self._asked.get(rest, {})
            words = about.get("description")
            return self.ask(rest, words if isinstance(words, str) and words else rest)
        if body in ("pathSeparator", "/"):
            return "/"
        if body == "workspaceFolder":
            self.lose("${workspaceFolder} is the gateway's folder")
            return written
        if written.endswith("}") and _KEPT.fullmatch(body):
            return written
        word = _WORD.match(body)  # what follows may be a value
        self.lose(f"${{{word[0] if word else ''}...}} stays as it is written")
        return f"${written}"
