"""The user's server file for edits: read whole, changed under a lock, replaced in one step."""

import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smart_mcp_proxy.errors import ConfigError, ConflictError, RequestError
from smart_mcp_proxy.servers.edit import is_same, rewrite
from smart_mcp_proxy.servers.jsonc import parse_jsonc
from smart_mcp_proxy.servers.load import (
    CONFIG_NAME,
    FILE_LIMIT_BYTES,
    find_config,
    is_entry,
    named_entries,
    section_of,
)
from smart_mcp_proxy.settings import Settings

__all__ = ["Entries", "ServerList", "change_entries", "read_list"]

Entries = Mapping[str, Any]
"""Entries of servers by name, as they are written."""

_NEW_FILE = '{\n  "mcpServers": {}\n}\n'
_MARK = "\ufeff"
"""A byte order mark, which stays where it was."""
_NEW_FILE_MODE = 0o600
"""Entries hold secrets."""
_LOCK_S = 10.0
_LOCK_LOOK_S = 0.01
_ATTEMPTS = 20
"""An editor that saves while a change is made makes it begin anew, so many times."""


@dataclass(frozen=True, slots=True)
class ServerList:
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
    stamp: tuple[int, ...] | None


def read_list(settings: Settings, cwd: Path) -> ServerList:
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
    return ServerList(path, named_entries(document, str(path)), f"sha256:{digest[:16]}", text, stamp)


def change_entries(
    settings: Settings, cwd: Path, change: Callable[[Entries], Entries], *, based_on: str | None = None
) -> ServerList:
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
        with _locked(folder):
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
            if _replace(before, _edited(before, entries)):
                return read_list(settings, cwd)
    raise ConfigError(f"{before.path} is being saved again and again by something else.", hint="Try again later.")


def _edited(before: ServerList, entries: Entries) -> str:
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
        return _listed(document, entries)
    section = section_of(document)
    if section is not None:
        inner = document[section]
        return {**document, section: _listed(inner, entries) if isinstance(inner, list) else _keyed(inner, entries)}
    bare = {key for key, value in document.items() if is_entry(value)}
    if not bare:
        return {**document, "mcpServers": dict(entries)}
    others = {key: value for key, value in document.items() if key not in bare}
    if taken := sorted(others.keys() & entries.keys()):
        raise RequestError(f"{taken[0]!r} is a heading of the server file.", hint="Use another name.")
    return others | _keyed(dict.fromkeys(bare), entries)


def _keyed(present: Mapping[str, Any], entries: Entries) -> dict[str, Any]:
    """In the order of the file, new ones last."""
    kept = {name: entries[name] for name in present if name in entries}
    return kept | {name: entry for name, entry in entries.items() if name not in kept}


def _listed(present: list[Any], entries: Entries) -> list[Any]:
    """As a list of entries that carry their names; what has no name is left alone."""
    found: list[Any] = []
    names: set[str] = set()
    last = {entry["name"]: place for place, entry in enumerate(present) if _name_of(entry) is not None}
    for place, entry in enumerate(present):
        name = _name_of(entry)
        if name is None or (name in entries and last[name] != place):
            found.append(entry)
        elif name in entries:
            found.append(entries[name])
            names.add(name)
    added = [{"name": name, **entry} for name, entry in entries.items() if name not in names]
    return found + added


def _name_of(entry: Any) -> str | None:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else None


def _read(path: Path) -> tuple[str, tuple[int, ...] | None]:
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
    return data.decode("utf-8"), _stamp(facts)


def _stamp(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Alone among all processes that change a file of this folder, while open."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The folder itself: the file is replaced by every change, and a lock file would litter the user's project.
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        raise ConfigError(f"{folder} cannot be used: {exc.strerror}.", hint="Check who may write there.") from exc
    try:
        _wait_for_lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, folder: Path) -> None:
    end_s = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end_s:
                message = f"Another process has been changing the server file in {folder} for {_LOCK_S:g} seconds."
                raise ConfigError(message, hint="Try again.") from None
            time.sleep(_LOCK_LOOK_S)
        except OSError as exc:
            hint = "Edit the file by hand: its file system has no locks."
            raise ConfigError(f"{folder} cannot be locked: {exc.strerror}.", hint=hint) from exc
        else:
            return


def _replace(before: ServerList, text: str) -> bool:
    """Puts the text in place of the file, with its owner and mode; False if the file was saved meanwhile."""
    path = before.path
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            _keep_facts(descriptor, path)
            file.write(text.encode())
            file.flush()
            os.fsync(descriptor)
        if _present(path) != before.stamp:
            return False
        os.replace(temporary, path)
        temporary = ""
        _sync_folder(path.parent)
    except OSError as exc:
        hint = "Check who may write there, and whether the disk is full."
        raise ConfigError(f"{path} cannot be written: {exc.strerror}.", hint=hint) from exc
    finally:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
    return True


def _keep_facts(descriptor: int, path: Path) -> None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, _NEW_FILE_MODE)
        return
    with suppress(PermissionError):  # only root may give a file to somebody else
        os.fchown(descriptor, facts.st_uid, facts.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(facts.st_mode))


def _present(path: Path) -> tuple[int, ...] | None:
    try:
        return _stamp(path.stat())
    except FileNotFoundError:
        return None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
