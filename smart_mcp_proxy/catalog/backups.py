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

from smart_mcp_proxy.catalog.copying import Copied, StoreLocation, Told, copy_catalog
from smart_mcp_proxy.catalog.recovery.damage import find_damage
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.stores import create_store_engine
from smart_mcp_proxy.catalog.tables.schema import meta
from smart_mcp_proxy.errors import CatalogError, ConfigError
from smart_mcp_proxy.names import DATABASE_NAME

_MAGIC: Final = b"SQLite format 3\0"


async def backup_catalog(source: StoreLocation, file: Path, *, told: Told = lambda *_: None) -> Copied:
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
        copied = await copy_catalog(source, StoreLocation(None, folder), told=told, passes_seals=False)
        with _wrap_storage_errors(
            f"'{file}' cannot be written", "There is no backup. Make room there, or name another file."
        ):
            await to_thread.run_sync(_fold, folder)
            (folder / DATABASE_NAME).rename(file)
    return copied


async def restore_catalog(
    file: Path, target: StoreLocation, *, replaces: bool = False, told: Told = lambda *_: None
) -> Copied:
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
        hint = f"The target is as it was. '{folder.parent}' needs room for a copy; TMPDIR names another folder."
        with _wrap_storage_errors(f"'{file}' cannot be restored", hint):
            await to_thread.run_sync(shutil.copyfile, file, folder / DATABASE_NAME)
        await to_thread.run_sync(_require_usable, folder, file)
        return await copy_catalog(StoreLocation(None, folder), target, replaces=replaces, told=told, passes_seals=False)


def _require_usable(folder: Path, file: Path) -> None:
    """Passes if the database file in a folder, a copy of `file`, can be restored.

    To be called before it is opened as a catalog, which replaces a damaged file with an empty one.

    Raises:
        ConfigError: It cannot.
    """
    fault, hint = None, "Restore another backup; the target is as it was."
    try:
        with closing(create_store_engine(None, folder).connect()) as connection:
            if (damage := find_damage(connection)) is not None:
                fault = f"is damaged ({damage})"
            elif (version := versions.read_version(connection)) > versions.LATEST_VERSION:
                fault = f"has schema version {version}; this program knows versions up to {versions.LATEST_VERSION}"
                hint = "Upgrade smart-mcp-proxy. The target is as it was."
            elif not inspect(connection).has_table(meta.name):
                fault = "is no backup of a catalog"
    except SQLAlchemyError as exc:
        fault = f"is damaged ({getattr(exc, 'orig', None) or exc})"
    if fault is not None:
        raise ConfigError(f"'{file}' {fault}.", hint=hint)


@contextmanager
def _wrap_storage_errors(failure: str, hint: str) -> Iterator[None]:
    """Raises CatalogError with the reason where a file cannot be stored."""
    try:
        yield
    except (OSError, SQLAlchemyError) as exc:
        reason = getattr(exc, "strerror", None) or getattr(exc, "orig", None) or exc
        raise CatalogError(f"{failure}: {reason}.", hint=hint) from exc


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
    with closing(create_store_engine(None, folder).connect()) as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = DELETE")
