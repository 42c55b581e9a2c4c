"""The user's server file for edits: read whole, changed under a lock, replaced in one step."""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from smart_mcp_proxy.errors import ConfigError, ConflictError, RequestError
from smart_mcp_proxy.file_changes import Stamp, build_file_stamp, lock_folder, replace_file
from smart_mcp_proxy.servers.edit import is_same, rewrite
from smart_mcp_proxy.servers.jsonc import parse_jsonc
from smart_mcp_proxy.servers.load import (
    CONFIG_NAME,
    FILE_LIMIT_BYTES,
    extract_named_entries,
    find_config,
    find_section_key,
    is_entry,
)
from smart_mcp_proxy.settings import Settings

Entries = Mapping[str, Any]
"""Entries of servers by name, as they are written."""

_NEW_FILE = '{\n  "mcpServers": {}\n}\n'
_MARK = "\ufeff"
"""A byte order mark, which stays where it was."""
_ATTEMPTS = 20
"""An editor that saves while a change is made makes it begin anew, so many times."""


class ServerFileContents(msgspec.Struct, frozen=True):
    """Contents of the server file at one moment.

    Attributes:
        path: The file, links followed; where it is to be made if there is none.
        entries: Its servers by name.
        revision: Differs whenever the text does.
        text: The file as it is.
        stamp: Tells whether the file is still the same one; None where there is none.
    """

    path: Path
    entries: Entries
    revision: str
    text: str
    stamp: Stamp | None


def read_list(settings: Settings, cwd: Path) -> ServerFileContents:
    """The server file that these settings name, to be looked at or changed.

    Raises:
        RequestError: The servers do not come from a file.
        ConfigError: It cannot be read.
    """
    if settings.config_json is not None:
        raise RequestError(
            "The servers come from MCPPROXY_CONFIG_JSON, which cannot be changed from here.",
            hint="Put them into a file, name it with MCPPROXY_CONFIG_PATH, and restart the gateway.",
            code="config_read_only",
        )
    found = find_config(settings, cwd)
    path = (found or settings.data_dir / CONFIG_NAME).resolve()
    text, stamp = _read(path)
    document = parse_jsonc(text.removeprefix(_MARK).encode(), str(path))
    digest = hashlib.sha256(text.encode() if stamp else b"").hexdigest()
    return ServerFileContents(path, extract_named_entries(document, str(path)), f"sha256:{digest[:16]}", text, stamp)


def change_entries(
    settings: Settings, cwd: Path, change: Callable[[Entries], Entries], *, based_on: str | None = None
) -> ServerFileContents:
    """Changes the servers of the file and nothing else in it; returns what it says then.

    Waits for other processes that are changing it, and begins anew where the file was saved meanwhile: run it in a
    thread. The file is replaced by a whole one or not at all.

    Args:
        settings: Name the file.
        cwd: The other place where it is looked for.
        change: Makes the new entries of the present ones; called again if the file was saved meanwhile.
        based_on: Revision that the change was made for.

    Raises:
        ConflictError: The file has another revision by now.
        RequestError: The servers do not come from a file.
        ConfigError: It cannot be read or written, or its folder stays locked.
    """
    for _ in range(_ATTEMPTS):
        folder = read_list(settings, cwd).path.parent
        with lock_folder(folder):
            before = read_list(settings, cwd)
            if before.path.parent != folder:
                continue
            if based_on is not None and based_on != before.revision:
                raise ConflictError(
                    f"The server file was changed meanwhile: it is at {before.revision}, not at {based_on[:40]}.",
                    hint="Read the servers again and repeat the change on what they are now.",
                    code="revision_conflict",
                    data={"revision": before.revision},
                )
            entries = change(before.entries)
            if is_same(before.entries, entries):
                return before
            if replace_file(before.path, _rewrite_file_text(before, entries).encode(), before.stamp):
                return read_list(settings, cwd)
    raise ConfigError(f"{before.path} is being saved again and again by something else.", hint="Try again later.")


def _rewrite_file_text(before: ServerFileContents, entries: Entries) -> str:
    """The text with other entries."""
    mark = _MARK if before.text.startswith(_MARK) else ""
    text = before.text.removeprefix(_MARK)
    wanted = _with_entries(parse_jsonc(text.encode(), str(before.path)), entries)
    edited = rewrite(text, wanted)
    if not is_same(parse_jsonc(edited.encode(), str(before.path)), wanted):  # rather no change than a wrong one
        raise ConfigError(f"{before.path} is written in a way that cannot be edited here.", hint="Edit it by hand.")
    return mark + edited


def _with_entries(document: Any, entries: Entries) -> Any:
    """The document with these servers and everything else as it was.

    Raises:
        RequestError: A server has the name of something else that stands beside it.
    """
    if isinstance(document, list):
        return _arrange_as_list(document, entries)
    section = find_section_key(document)
    if section is not None:
        inner = document[section]
        return {
            **document,
            section: _arrange_as_list(inner, entries) if isinstance(inner, list) else _arrange_as_map(inner, entries),
        }
    bare = {key for key, value in document.items() if is_entry(value)}
    if not bare:
        return {**document, "mcpServers": dict(entries)}
    others = {key: value for key, value in document.items() if key not in bare}
    if taken := sorted(others.keys() & entries.keys()):
        raise RequestError(f"{taken[0]!r} is a heading of the server file.", hint="Use another name.")
    return others | _arrange_as_map(dict.fromkeys(bare), entries)


def _arrange_as_map(present: Mapping[str, Any], entries: Entries) -> dict[str, Any]:
    """In the order of the file, new ones last."""
    kept = {name: entries[name] for name in present if name in entries}
    return kept | {name: entry for name, entry in entries.items() if name not in kept}


def _arrange_as_list(present: list[Any], entries: Entries) -> list[Any]:
    """As a list of entries that carry their names; what has no name is left alone."""
    found: list[Any] = []
    names: set[str] = set()
    last = {entry["name"]: place for place, entry in enumerate(present) if _get_entry_name(entry) is not None}
    for place, entry in enumerate(present):
        name = _get_entry_name(entry)
        if name is None or (name in entries and last[name] != place):
            found.append(entry)
        elif name in entries:
            found.append(entries[name])
            names.add(name)
    added = [{"name": name, **entry} for name, entry in entries.items() if name not in names]
    return found + added


def _get_entry_name(entry: Any) -> str | None:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else None


def _read(path: Path) -> tuple[str, Stamp | None]:
    """The file's text and stamp; those of a file that is still to be made where there is none."""
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise ConfigError(f"{path} is not a regular file and cannot be changed.", hint="Name a file.")
            data = file.read(FILE_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return _NEW_FILE, None
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.", hint="Check what it is, who may read it.") from exc
    if len(data) > FILE_LIMIT_BYTES:
        raise ConfigError(f"{path} is larger than {FILE_LIMIT_BYTES} bytes.", hint="Give the path of a server list.")
    parse_jsonc(data, str(path))  # names line and column of what is wrong
    return data.decode("utf-8"), build_file_stamp(facts)
