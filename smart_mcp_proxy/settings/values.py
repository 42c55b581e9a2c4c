"""Types of settings' values: what a text has to be, and what becomes of it."""

import re
import shlex
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from smart_mcp_proxy.names import RESERVED_NAMES
from smart_mcp_proxy.settings.addresses import are_origins, are_users, bearer_only, is_database, is_url

TRUNCATE_MIN_CHARS = 200
"""Below it, marker and tail leave no room for the head. Source: docs/design/wire-formats.md#truncation"""
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A name that every client can list; the length is that of models' programming interfaces.

Source: docs/design/wire-formats.md#names-of-tools"""


def _expand_home(path: Path | None) -> Path | None:
    try:
        return path and path.expanduser()
    except RuntimeError as exc:  # a user id without an entry and without HOME, as in some containers
        raise ValueError(str(exc)) from exc


def _zero_is_off(value: int | None) -> int | None:
    if value is not None and 0 < value < TRUNCATE_MIN_CHARS:
        raise ValueError("too short")
    return value or None


def _own_tool_name(name: str) -> str:
    # Listed names of servers' tools hold a double underscore.
    if not _TOOL_NAME.fullmatch(name) or "__" in name or name in RESERVED_NAMES - {"proxy"}:
        raise ValueError("not a free name")
    return name


def _split_list(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _split_argv(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


Directory = Annotated[Path, AfterValidator(_expand_home)]
File = Annotated[Path | None, AfterValidator(_expand_home)]
Token = Annotated[SecretStr, AfterValidator(bearer_only)]
SecretKey = Annotated[Token, Field(min_length=32)]
ToolName = Annotated[str, AfterValidator(_own_tool_name)]
DatabaseUrl = Annotated[Token, AfterValidator(is_database)]
Url = Annotated[str, AfterValidator(is_url)]
Truncation = Annotated[int | None, AfterValidator(_zero_is_off)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split_list)]
Origins = Annotated[Names, AfterValidator(are_origins)]
Users = Annotated[Names, AfterValidator(are_users)]
ReplicaName = Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]
Argv = Annotated[tuple[str, ...], BeforeValidator(_split_argv)]


def accepts(what: str, *, is_secret: bool = False) -> dict[str, Any]:
    """Words for what a field accepts, where its type does not say it."""
    return {"allowed": what, "is_secret": is_secret}
