"""Explanations of the settings: the documentation's data, and the origin of each value."""

import difflib
import shlex
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Literal, get_args

import msgspec
from pydantic.fields import FieldInfo

from smart_mcp_proxy.settings.choices import list_choices
from smart_mcp_proxy.settings.fields import PREFIX, Settings
from smart_mcp_proxy.settings.pairs import EXCLUSIVE, SECRET_FILES


class Setting(msgspec.Struct, frozen=True):
    """Documentation of one setting, whatever its value.

    Attributes:
        name: Field of `Settings`.
        variable: Environment variable.
        default: As it would be written, empty if there is none.
        allowed: What it accepts, as the end of a sentence that starts with "Expected".
        help: What it is for.
        is_secret: Whether its value is never shown.
    """

    name: str
    variable: str
    default: str
    allowed: str
    help: str
    is_secret: bool


class Origin(msgspec.Struct, frozen=True):
    """Setting with the value in force, safe to show, and the source of that value."""

    setting: Setting
    value: str
    origin: Literal["default", "environment", "flag"]


def all_settings() -> tuple[Setting, ...]:
    """Every setting as data, in the order in which they are documented."""
    return tuple(_describe_setting(name, field) for name, field in Settings.model_fields.items())


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Warnings about `MCPPROXY_*` variables that are no settings, with likely ones; no values."""
    known = {setting.variable for setting in all_settings()}
    warnings = []
    for variable in sorted(environ):
        if not variable.upper().startswith(PREFIX) or variable in known:
            continue
        # Without the prefix, which alone would make any two of them look alike.
        likely = difflib.get_close_matches(variable[len(PREFIX) :].lower(), Settings.model_fields, n=1)
        advice = f"Did you mean {_variable(likely[0])}?" if likely else "It has no effect."
        warnings.append(f"{variable} is not a setting. {advice}")
    return warnings


def origins(settings: Settings, environ: Mapping[str, str], flags: Set[str] = frozenset()) -> list[Origin]:
    """Every setting with its value, safe to show, and whether default, environment or a flag decided it.

    Args:
        settings: What `load_settings` returned.
        environ: What it was given.
        flags: Field names of the overrides it was given.
    """
    found = []
    for setting in all_settings():
        # A secret read from a file is there because of the file's setting.
        file = SECRET_FILES.get(setting.name)
        name = file if file is not None and getattr(settings, file) is not None else setting.name
        overruled = any(name in pair and not flags.isdisjoint(pair) for pair in EXCLUSIVE)
        origin: Literal["default", "environment", "flag"] = "default"
        if name in flags:
            origin = "flag"
        elif environ.get(_variable(name)) and not overruled:
            origin = "environment"
        value = getattr(settings, setting.name)
        shown = "[set]" if setting.is_secret and value is not None else _format_value(setting.name, value)
        found.append(Origin(setting, shown, origin))
    return found


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _describe_setting(name: str, field: FieldInfo) -> Setting:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return Setting(
        name=name,
        variable=_variable(name),
        default=_format_value(name, field.default),
        allowed=str(extra.get("allowed") or _describe_allowed(field)),
        help=field.description or "",
        is_secret=bool(extra.get("is_secret")),
    )


def _describe_allowed(field: FieldInfo) -> str:
    """Accepted values of a field's type, in words."""
    if choices := list_choices(field):
        return f"one of {', '.join(choices)}"
    if field.annotation is bool:
        return "true or false"
    if field.annotation is int:
        bounds = {type(bound).__name__: bound for bound in field.metadata}
        return f"an integer from {bounds['Ge'].ge} to {bounds['Le'].le}"
    return "a path" if Path in (field.annotation, *get_args(field.annotation)) else "text"


def _format_value(name: str, value: object) -> str:
    """A value as it would be written into its variable."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return shlex.join(value) if name == "list_changed_exec" else ",".join(value)
    return str(value)
