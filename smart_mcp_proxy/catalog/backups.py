"""Backups: a whole catalog in one file, and back."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from anyio import to_thread
from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError

from smart_mcp_proxy.catalog.copying import Place, Told, copy_catalog
from smart_mcp_proxy.catalog.recovery.damage import find_damage
from smart_mcp_proxy.catalog.store.sqlite import DATABASE_NAME
from smart_mcp_proxy.catalog.store.stores import engine_of
from smart_mcp_proxy.catalog.tables.schema import meta
from smart_mcp_proxy.errors import ConfigError

__all__ = ["backup_catalog", "restore_catalog"]

_MAGIC: Final = b"SQLite format 3\0"


async def backup_catalog(source: Place, file: Path, *, told: Told = lambda *_: None) -> dict[str, int]:
    """Copy a catalog into one SQLite file, for its owner alone; whole, or not at all.

    Args:
        source: As for `copy_catalog`.
        file: There must be none yet.
        told: How far it is.

    Raises:
        As `copy_catalog`.
    """
    _require_new(file)
    with _scratch_folder(file.parent) as folder:
        counts = await copy_catalog(source, Place(None, folder), told=told)
        await to_thread.run_sync(_fold, folder)
        (folder / DATABASE_NAME).rename(file)
    return counts


async def restore_catalog(
    file: Path, target: Place, *, replaces: bool = False, told: Told = lambda *_: None
) -> dict[str, int]:
    """Copy a backup's catalog to `target`; the file stays as it is.

    Args:
        file: Written by `backup_catalog` of this version or an earlier one, or a copied `proxy.db`.
        target: As for `copy_catalog`.
        replaces: As there.
        told: How far it is.

    Raises:
        As `copy_catalog`.
    """
    try:
        with file.open("rb") as opened:
            is_ours = opened.read(len(_MAGIC)) == _MAGIC
    except OSError as exc:
        raise ConfigError(f"'{file}' cannot be read: {exc.strerror}.") from exc
    if not is_ours:
        raise ConfigError(f"'{file}' is no backup.", hint="Make one with: mcpproxy data backup FILE")
    with _scratch_folder() as folder:
        await to_thread.run_sync(shutil.copyfile, file, folder / DATABASE_NAME)
        if (fault := await to_thread.run_sync(_find_fault, folder)) is not None:
            raise ConfigError(f"'{file}' {fault}.", hint="Restore another backup; the target is as it was.")
        return await copy_catalog(Place(None, folder), target, replaces=replaces, told=told)


def _find_fault(folder: Path) -> str | None:
    """Describe why the database file in a folder cannot be restored; None if it can.

    To be called before it is opened as a catalog, which replaces a damaged file with an empty one.
    """
    try:
        with closing(engine_of(None, folder).connect()) as connection:
            if (damage := find_damage(connection)) is not None:
                return f"is damaged ({damage})"
            return None if inspect(connection).has_table(meta.name) else "is no backup of a catalog"
    except SQLAlchemyError as exc:
        return f"is damaged ({getattr(exc, 'orig', None) or exc})"


def _require_new(file: Path) -> None:
    if file.exists():
        raise ConfigError(f"'{file}' exists.", hint="Name a new file.")
    if not file.parent.is_dir():
        raise ConfigError(f"There is no folder '{file.parent}'.", hint="Make it, or name another file.")


@contextmanager
def _scratch_folder(beside: Path | None = None) -> Iterator[Path]:
    """A new folder, gone afterwards."""
    try:
        scratch = tempfile.TemporaryDirectory(prefix=".mcpproxy-data-", dir=beside)
    except OSError as exc:
        raise ConfigError(f"'{exc.filename}' cannot be written: {exc.strerror}.") from exc
    with scratch as folder:
        yield Path(folder)


def _fold(folder: Path) -> None:
    """Leave one file without a journal beside it."""
    with closing(engine_of(None, folder).connect()) as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = DELETE")
