"""A client's file: read safely, changed in one step that can be undone, and put back."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from smart_mcp_proxy.client_files.bounds import BOUNDS, ReadBounds
from smart_mcp_proxy.client_files.clients import KnownClient
from smart_mcp_proxy.client_files.ours import OUR_NAME
from smart_mcp_proxy.client_files.records import ClientFileRecord, Records, digest
from smart_mcp_proxy.client_files.texts import Changes, decode, edit, parse, read_section
from smart_mcp_proxy.errors import ConfigError, ConflictError
from smart_mcp_proxy.file_changes import Stamp, build_file_stamp, build_replacement_path, lock_folder, replace_file
from smart_mcp_proxy.names import shell_word

_BACKUP = ".before-mcpproxy"
_BACKUPS = 100


class ClientFile(msgspec.Struct, frozen=True):
    """A client's file at one moment.

    Attributes:
        client: Whose it is.
        path: The file, links followed.
        data: Its bytes; None where there is no file.
        text: The same as text.
        document: The same, parsed.
        entries: The servers that it names, as they are written.
        stamp: Tells whether it is still the same; None where there is no file.
    """

    client: KnownClient
    path: Path
    data: bytes | None
    text: str
    document: Mapping[str, Any]
    entries: Mapping[str, Any]
    stamp: Stamp | None


class Planned(msgspec.Struct, frozen=True):
    """A change of a client's file that was not made yet.

    Attributes:
        file: The file as it is.
        after: Its text afterwards.
    """

    file: ClientFile
    after: str

    @property
    def is_change(self) -> bool:
        """Whether anything would be different."""
        return self.after != self.file.text or self.file.data is None


def read_client_file(
    client: KnownClient, path: Path, *, inside: Path | None = None, bounds: ReadBounds = BOUNDS
) -> ClientFile:
    """Read a client's file.

    Args:
        client: Whose it is.
        path: The file; it need not exist.
        inside: Folder that a link must not lead out of.
        bounds: Within which it is read.

    Raises:
        ConfigError: It cannot be read, is too much or not what it should be; the message holds nothing of its content.
    """
    target = _resolve_link(path, inside)
    data, stamp = _read(target, bounds.size_bytes[client.text_format])
    text = "" if data is None else decode(data, str(path))
    document = parse(text, client.text_format, str(path), bounds)
    return ClientFile(client, target, data, text, document, read_section(document, client.section, str(path)), stamp)


def plan(file: ClientFile, changes: Changes) -> Planned:
    """Return the change of a file's servers.

    Raises:
        ConfigError: It cannot be edited here, or the client would refuse it.
    """
    client = file.client
    _require_keys(file, changes)
    needed = {
        name: entry
        for name, entry in changes.items()
        if (name in file.entries if entry is None else file.entries.get(name) != entry)
    }
    if not needed:
        return Planned(file, file.text) if file.data is not None else Planned(file, "")
    return Planned(file, edit(file.text, client.text_format, client.section, needed, str(file.path)))


def _require_keys(file: ClientFile, changes: Changes) -> None:
    """Raises ConfigError where an entry alone would make a file that the client refuses."""
    missing = [key for key in file.client.required if key not in file.document]
    if not missing or not any(changes.values()):
        return
    path, title, keys = file.path, file.client.title, " and ".join(repr(key) for key in missing)
    raise ConfigError(
        f"{path} has no {keys}, without which {title} refuses it.",
        hint=f"Make a whole file of {title} there first, with its models; then repeat this.",
    )


def write(planned: Planned, records: Records) -> Path | None:
    """Make the change; returns where the file's earlier bytes are kept, None where there was no file.

    Raises:
        ConflictError: The file was changed since it was read.
        ConfigError: It is read-only, or cannot be written.
    """
    file = planned.file
    with lock_folder(file.path.parent):
        _require_writable(file.path)
        _require_same(file)
        record = records.load(file.path)
        before = "" if file.data is None else digest(file.data)
        after = planned.after.encode()
        if record.is_ours(file.data):  # changed again by us alone: what was there first is kept
            record = replace(record, after=digest(after), earlier=before)
        else:
            backup = "" if file.data is None else str(_keep(file))
            is_restorable = OUR_NAME not in file.entries
            record = ClientFileRecord(str(file.path), digest(after), "", before, backup, is_restorable)
        records.save(replace(record, shown=""))
        if not replace_file(file.path, after, file.stamp):
            raise _build_conflict(file)
    return Path(record.backup) if record.backup else None


def restore_file(file: ClientFile, records: Records) -> bool:
    """Put every byte back as it was before; False where that would undo what somebody else changed since.

    Raises:
        ConflictError: The file was changed while this ran.
        ConfigError: It cannot be written.
    """
    record = records.load(file.path)
    if not record.is_restorable or not record.is_ours(file.data):
        return False
    with lock_folder(file.path.parent):
        _require_writable(file.path)
        _require_same(file)
        if not record.before:
            build_replacement_path(file.path).unlink(missing_ok=True)
            file.path.unlink()
        else:
            try:
                data = Path(record.backup).read_bytes()
            except OSError:
                return False
            if digest(data) != record.before:
                return False
            if not replace_file(file.path, data, file.stamp):
                raise _build_conflict(file)
            with suppress(OSError):
                Path(record.backup).unlink()
        records.forget(file.path)
    return True


def take_out(planned: Planned, records: Records) -> None:
    """Make a change that ends what is noted about the file.

    Raises:
        ConflictError: The file was changed since it was read.
        ConfigError: It is read-only, or cannot be written.
    """
    file = planned.file
    with lock_folder(file.path.parent):
        _require_writable(file.path)
        _require_same(file)
        if not replace_file(file.path, planned.after.encode(), file.stamp):
            raise _build_conflict(file)
        records.forget(file.path)


def forget_unfinished(file: ClientFile, records: Records) -> None:
    """Remove what a process that was killed left of a change that is not in the file.

    Raises:
        ConflictError: The file was changed while this ran.
        ConfigError: The folder stays locked.
    """
    record = records.load(file.path)
    now = "" if file.data is None else digest(file.data)
    backup = Path(record.backup) if record.backup else _build_backup_path(file.path, 1)
    leftovers = [build_replacement_path(file.path), build_replacement_path(backup)]
    if (record.before == now or not record.after) and _is_copy(backup, now):
        leftovers.append(backup)
    if any(map(os.path.lexists, leftovers)):
        with lock_folder(file.path.parent):
            _require_same(file)
            for path in leftovers:
                with suppress(OSError):
                    path.unlink()
    if record.after and record.before == now:
        records.forget(file.path)


def _resolve_link(path: Path, inside: Path | None) -> Path:
    """The file that a path leads to."""
    try:
        target = path.resolve()
    except (OSError, RuntimeError):
        raise ConfigError(f"{path} is a link that leads in a circle.", hint="Correct the link.") from None
    if path.is_symlink() and not target.exists():
        raise ConfigError(f"{path} is a link to a file that is not there.", hint="Correct the link, or remove it.")
    if inside is not None and not target.is_relative_to(inside.resolve()):
        raise ConfigError(f"{path} is a link that leads out of the project.", hint="Edit the file itself.")
    return target


def _read(path: Path, limit_bytes: int) -> tuple[bytes | None, Stamp | None]:
    try:
        # Not blocking: a pipe in its place would be waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            facts = os.fstat(opened.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise ConfigError(f"{path} is not a regular file.", hint="Look what it is.")
            if facts.st_size > limit_bytes:
                raise ConfigError(f"{path} is larger than {limit_bytes} bytes.", hint="Edit it by hand.")
            return opened.read(limit_bytes), build_file_stamp(facts)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except IsADirectoryError as exc:
        raise ConfigError(f"{path} is a folder. Expected a file.", hint="Move it away.") from exc
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.", hint="Check who may read it.") from exc


def _require_writable(path: Path) -> None:
    """Raises ConfigError for a file that its owner keeps from being changed: replacing it would not ask."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.") from exc
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise ConfigError(f"{path} is on a disk that can only be read.", hint="Mount it for writing first.")
    if not facts.st_mode & stat.S_IWUSR or not os.access(path, os.W_OK):
        raise ConfigError(f"{path} is read-only.", hint=f"If it may be changed: chmod u+w {shell_word(str(path))}")
    if facts.st_nlink > 1:
        raise ConfigError(
            f"{path} has a second name (a hard link), which replacing it would cut off.", hint="Edit it by hand."
        )


def _require_same(file: ClientFile) -> None:
    data, _ = _read(file.path, BOUNDS.size_bytes[file.client.text_format])
    if data != file.data:
        raise _build_conflict(file)


def _build_conflict(file: ClientFile) -> ConflictError:
    return ConflictError(f"{file.path} was changed meanwhile; it was left alone.", hint="Look at the difference again.")


def _keep(file: ClientFile) -> Path:
    """A copy of the file beside it, for its owner alone; an earlier copy is never written over."""
    data = file.data or b""
    for number in range(1, _BACKUPS):
        place = _build_backup_path(file.path, number)
        if not os.path.lexists(place):
            if replace_file(place, data, None):
                return place
        elif not place.is_symlink() and _is_copy(place, digest(data)):
            return place
    raise ConfigError(f"{file.path.parent} holds {_BACKUPS} backups of it.", hint="Remove those you do not need.")


def _build_backup_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}{_BACKUP}{'' if number == 1 else f'-{number}'}")


def _is_copy(place: Path, fingerprint: str) -> bool:
    try:
        return digest(place.read_bytes()) == fingerprint
    except OSError:
        return False
