"""Secrets of servers that are taken over: in the keyring, in files of their own, or as variables."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from smart_mcp_proxy.cli.support.failure import ask_line, ask_secret
from smart_mcp_proxy.cli.support.output import plural, say, warn
from smart_mcp_proxy.client_files import KeyringSecret
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.file_changes import build_file_stamp, lock_folder, replace_file
from smart_mcp_proxy.secrets import keyring_edge

FOLDER: Final = "secrets"
"""Folder below the data directory, for files that hold one secret each."""
_NOT_IN_VARIABLES: Final = re.compile(r"\W+", re.ASCII)


def store_secrets(questions: Mapping[str, KeyringSecret], data_dir: Path, *, may_ask: bool) -> dict[str, str]:
    """Keep what the clients' files hold and what the user is asked for.

    Args:
        questions: Secrets by the name under which the keyring has them.
        data_dir: The data directory.
        may_ask: Whether there is somebody to ask.

    Returns:
        References by name, for the secrets that are not to be looked up in the keyring.
    """
    try:
        lacking = {
            name: each for name, each in questions.items() if each.value or not keyring_edge.read_keyring_secret(name)
        }
        for name, each in lacking.items():
            if value := each.value or (_ask(each, f"the keyring as {name}") if may_ask else ""):
                keyring_edge.store_secret(name, value)
            else:
                say(f"{name} is not set. Store it: keyring set {keyring_edge.KEYRING_SERVICE} {name}")
    except ConfigError as error:
        return _store_without_keyring(questions, data_dir / FOLDER, error, may_ask=may_ask)
    return {}


def _ask(secret: KeyringSecret, place: str) -> str:
    return ask_secret(f"{secret.words} (stored in {place}; empty: not now): ")


def _store_without_keyring(
    questions: Mapping[str, KeyringSecret], folder: Path, error: ConfigError, *, may_ask: bool
) -> dict[str, str]:
    """Keep values in files that their owner alone can read; what has no value becomes a variable."""
    warn(f"{error.message} So no secret is stored there.")
    is_filed = True  # what a client's own file holds is no worse kept in one of ours
    if may_ask:
        count = plural(len(questions), "secret")
        asked = f"Keep {count} in {folder}, in files that only you can read? Else they stay variables. [Y/n]"
        is_filed = ask_line(asked).strip().lower() in ("", "y", "yes")
    kept: dict[str, str] = {}
    for name, each in questions.items():
        value = (each.value or (_ask(each, str(folder / name)) if may_ask else "")) if is_filed else ""
        try:
            kept[name] = _write_secret(folder / name, value) if value else _name_variable(name)
        except ConfigError as problem:
            warn(str(problem))
            kept[name] = _name_variable(name)
    return kept


def _write_secret(path: Path, value: str) -> str:
    """Write a value into a file of mode 0600; returns the reference to it."""
    with lock_folder(path.parent):
        path.parent.chmod(0o700)
        seen = build_file_stamp(path.stat()) if path.exists() else None
        replace_file(path, value.encode(), seen)
        path.chmod(0o600)
    return f"${{file:{path}}}"


def _name_variable(name: str) -> str:
    """The reference to a variable in the place of a secret; says that it has to be set."""
    variable = f"{'_' if name[:1].isdigit() else ''}{_NOT_IN_VARIABLES.sub('_', name).upper()}"
    say(f"{name} stays a variable. Set it where your clients start: {variable}")
    return f"${{{variable}}}"
