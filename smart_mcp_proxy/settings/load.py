"""Loads the settings from environment and flags; its errors name every fault."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.settings.addresses import BEARER
from smart_mcp_proxy.settings.explain import Setting, all_settings
from smart_mcp_proxy.settings.fields import Settings
from smart_mcp_proxy.settings.pairs import EXCLUSIVE, SECRET_FILES

_SHOWN_CHARS = 80
"""Characters of a wrong value that an error repeats: enough to recognise it, short enough for one line."""

_PUBLIC_KEY = "jwt_public_key"
_NOUNS = {
    "auth_token": "token",
    "database_url": "address",
    "oidc_client_secret": "secret",
    "operator_token": "token",
    "secret_key": "key",
}


def environment() -> Mapping[str, str]:
    """A copy of the process's environment as it is now. The one place that reads it."""
    return dict(os.environ)  # noqa: TID251  (this is its one home)


def load_settings(environ: Mapping[str, str] | None = None, **overrides: object) -> Settings:
    """The settings from defaults, environment and command line flags; the later wins.

    Args:
        environ: Variables; those of the process if left out. An empty one counts as unset.
        **overrides: Flags by field name; None counts as not given.

    Raises:
        ConfigError: Values are wrong; one line for each, naming variable or flag, value and what is accepted.
        TypeError: An override is not a setting.
    """
    environ = environment() if environ is None else environ
    if strangers := overrides.keys() - Settings.model_fields.keys():
        raise TypeError(f"not a setting: {', '.join(sorted(strangers))}")
    values: dict[str, object] = {}
    described = {setting.name: setting for setting in all_settings()}
    labels = {name: setting.variable for name, setting in described.items()}
    for name, variable in labels.items():
        if text := environ.get(variable):
            values[name] = text
    for name, value in overrides.items():
        if value is not None:
            values[name] = value
            labels[name] = "--" + name.replace("_", "-")
    problems = _settle_exclusive(values, labels, overrides)
    for name, file in (*SECRET_FILES.items(), (_PUBLIC_KEY, "jwt_public_key_file")):
        problems += _take_secret_from_file(values, labels, name, file)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as exc:
        wrong = dict.fromkeys(str(error["loc"][0]) for error in exc.errors(include_input=False))
        problems += [_complaint(described[name], labels[name], values.get(name)) for name in wrong]
    if problems:
        raise ConfigError("\n".join(problems))  # outside the handler: the cause would carry the values
    return settings


def _complaint(setting: Setting, label: str, value: object) -> str:
    if setting.is_secret:
        return f"{label} has a value that is not accepted (not shown). Expected {setting.allowed}."
    text = repr(value if value is not None else setting.default)
    text = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
    return f"{label} is {text}. Expected {setting.allowed}."


def _settle_exclusive(
    values: dict[str, object], labels: Mapping[str, str], overrides: Mapping[str, object]
) -> list[str]:
    """Drop the environment's of two exclusive settings where the other is a flag; the rest conflict."""
    problems = []
    for pair in EXCLUSIVE:
        if not all(name in values for name in pair):
            continue
        flagged = [name for name in pair if overrides.get(name) is not None]
        if len(flagged) == 1:
            values.update({name: None for name in pair if name not in flagged})
        else:
            problems.append(f"{labels[pair[0]]} and {labels[pair[1]]} are both set. Keep one of them.")
    return problems


def _take_secret_from_file(values: dict[str, object], labels: Mapping[str, str], name: str, file: str) -> list[str]:
    """Put the text of the file that setting `file` names into `values`; returns problems."""
    path = values.get(file)
    if path is None or values.get(name) is not None:
        return []
    is_key = name == _PUBLIC_KEY
    wrong = f"{labels[file]} is {str(path)!r}. Expected a file that holds"
    try:
        text = Path(str(path)).expanduser().read_text("ascii" if is_key else "utf-8")
    except (OSError, RuntimeError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or f"it cannot be read as {'text' if is_key else 'UTF-8 text'}"
        return [f"{wrong} {'a public key in PEM' if is_key else f'the {_NOUNS[name]}'}: {reason}."]
    if not is_key and not re.fullmatch(BEARER, text := text.strip()):
        return [f"{wrong} one {_NOUNS[name]}: visible ASCII, no spaces."]
    values[name] = text
    return []
