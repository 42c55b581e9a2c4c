"""Notes about changed client files: what undoes the change, and what was shown before it."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.file_changes import build_file_stamp, lock_folder, replace_file

_FOLDER = "clients"


@dataclass(frozen=True, slots=True)
class ClientFileRecord:
    """State in which we left a client file, and the state that we found.

    Attributes:
        path: The file.
        after: Digest of what was written; empty while nothing was.
        earlier: Digest of what was written before that: it is still there if the process was killed in between.
        before: Digest of what was there; empty where there was no file.
        backup: Path of a copy of that; empty where it must not be put back, or there was no file.
        is_restorable: Whether putting back what was there undoes everything.
        shown: Digest of the servers that the last diff was about; empty where none was shown.
    """

    path: str
    after: str = ""
    earlier: str = ""
    before: str = ""
    backup: str = ""
    is_restorable: bool = False
    shown: str = ""

    def is_ours(self, data: bytes | None) -> bool:
        """Whether the file, which holds this, is as we have left it."""
        return data is not None and digest(data) in (self.after, self.earlier)


class Records:
    """Notes in the data directory, one a file.

    Args:
        data_dir: The data directory.
    """

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / _FOLDER

    def load(self, path: Path) -> ClientFileRecord:
        """Read the note about a file; one without content where there is none that can be used."""
        try:
            written = json.loads(self._place(path).read_bytes())
            record = ClientFileRecord(**written)
        except (OSError, ValueError, TypeError):
            return ClientFileRecord(str(path))
        return record if record.path == str(path) else ClientFileRecord(str(path))

    def save(self, record: ClientFileRecord) -> None:
        """Keeps a note.

        Raises:
            ConfigError: It cannot be written.
        """
        with lock_folder(self._folder):
            self._write(record)

    def note_shown(self, path: Path, shown: str) -> None:
        """Adds to the note about a file which servers the last diff was about.

        Raises:
            ConfigError: It cannot be written.
        """
        with lock_folder(self._folder):  # another process may be changing the file and its note
            self._write(replace(self.load(path), shown=shown))

    def forget(self, path: Path) -> None:
        """Drops the note about a file."""
        self._place(path).unlink(missing_ok=True)

    def _write(self, record: ClientFileRecord) -> None:
        place = self._place(Path(record.path))
        try:
            seen = build_file_stamp(place.stat())
        except FileNotFoundError:
            seen = None
        except OSError as exc:
            raise ConfigError(f"{place} cannot be used: {exc.strerror}.") from exc
        replace_file(place, json.dumps(asdict(record), indent=2).encode(), seen)

    def _place(self, path: Path) -> Path:
        return self._folder / f"{path.name.lstrip('.')}-{digest(str(path).encode())[:12]}.json"


def digest(data: bytes) -> str:
    """Fingerprint of some bytes."""
    return hashlib.sha256(data).hexdigest()
