"""`mcpproxy data`: the whole catalog, copied to another store, to a file and back."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from anyio import to_thread
from cyclopts import App
from pydantic import SecretStr
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.output import console, plural, say, show, show_json, table
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import ConfigError, ProxyError
from smart_mcp_proxy.servers import expand, load_configured_servers
from smart_mcp_proxy.settings import Settings, environment, is_database

if TYPE_CHECKING:
    from smart_mcp_proxy.catalog.copying import Copied, StoreLocation, Told

app = App(
    name="data",
    help_epilogue="""\
Examples:
  mcpproxy data copy --to postgresql://mcpproxy@db/mcpproxy
  mcpproxy data backup catalog.backup
  mcpproxy data restore catalog.backup --replace""",
)


@app.command(
    help_epilogue="""\
Examples:
  mcpproxy data copy --to postgresql://mcpproxy@db/mcpproxy
  MCPPROXY_DATABASE_URL=postgresql://mcpproxy@db/mcpproxy mcpproxy data copy --to ~/.local/share/mcpproxy

A password that should not stand in the list of processes: PGPASSWORD, or ~/.pgpass."""
)
async def copy(*, to: str, replace: bool = False, json: bool = False) -> None:
    """Copy everything that the settings' catalog holds to another store, and compare it row by row.

    Tools, approvals, blocks and their guard, tokens, toolsets, learned questions, vectors, activity; of sign-ins those
    at configured servers. The source stays as it is. Nothing counts before all of it is there.

    Args:
        to: A database (postgresql://...), or a data directory.
        replace: Drop what is there.
        json: Print {"rows": {table: count}, "left_out": {table: count}, "sign_ins": [server]}.
    """
    # Here and not above, as below: --help has to be quick.
    from smart_mcp_proxy.catalog.copying import copy_catalog

    settings = open_settings()
    target = _derive_target_settings(settings, to)
    if _is_same(_place(target), _place(settings)):
        raise UsageError("--to names the catalog that is to be copied.")
    with _progress() as told:
        copied = await copy_catalog(_place(settings), _place(target), replaces=replace, told=told)
    _show_copied_rows(copied, await _copy_configured_sign_ins(settings, target), as_json=json)
    say(f"Equal row by row. {_NEXT_SQLITE if target.database_url is None else _NEXT_DATABASE}")


_NEXT_DATABASE = "Gateways use it with MCPPROXY_DATABASE_URL set to it, and MCPPROXY_SECRET_KEY for sign-ins."
_NEXT_SQLITE = "Gateways use it with MCPPROXY_DATA_DIR set to it, and without MCPPROXY_DATABASE_URL."


@app.command(help_epilogue="Examples:\n  mcpproxy data backup catalog.backup")
async def backup(file: Path, /, *, json: bool = False) -> None:
    """Write everything that the catalog holds to one file. Gateways may go on meanwhile.

    Sign-ins are in it only where gateways share a database, encrypted with MCPPROXY_SECRET_KEY.

    Args:
        file: A new file, for you alone to read.
        json: Print {"rows": {table: count}, "left_out": {table: count}, "sign_ins": []}.
    """
    from smart_mcp_proxy.catalog.backups import backup_catalog

    settings = open_settings()
    with _progress() as told:
        copied = await backup_catalog(_place(settings), _path(file), told=told)
    _show_copied_rows(copied, [], as_json=json)
    say(f"Equal row by row. Bring it back with: mcpproxy data restore {file} --replace")


@app.command(help_epilogue="Examples:\n  mcpproxy data restore catalog.backup\n  mcpproxy data restore old --replace")
async def restore(file: Path, /, *, replace: bool = False, json: bool = False) -> None:
    """Put a backup into the settings' catalog. No gateway may run on it.

    What was approved or blocked after the backup was made is forgotten: look at `mcpproxy approve --list` afterwards.
    Of a backup from elsewhere, or of a version that sealed nothing, nothing counts before `mcpproxy approve --reseal`.

    Args:
        file: From `mcpproxy data backup`, of either kind of store.
        replace: Drop what is there.
        json: Print {"rows": {table: count}, "left_out": {table: count}, "sign_ins": []}.
    """
    from smart_mcp_proxy.catalog.backups import restore_catalog

    settings = open_settings()
    with _progress() as told:
        copied = await restore_catalog(_path(file), _place(settings), replaces=replace, told=told)
    _show_copied_rows(copied, [], as_json=json)
    say("Equal row by row. Decisions that came after the backup are not in it: mcpproxy approve --list")


def _path(file: Path) -> Path:
    return file.expanduser()


def _place(settings: Settings) -> "StoreLocation":
    from smart_mcp_proxy.catalog.copying import StoreLocation

    url, secret = (
        None if each is None else each.get_secret_value() for each in (settings.database_url, settings.secret_key)
    )
    return StoreLocation(url, settings.data_dir, secret)


def _is_same(one: "StoreLocation", other: "StoreLocation") -> bool:
    """Whether two places are one, however a directory is written."""
    if one.url is not None or other.url is not None:
        return one.url == other.url
    return one.data_dir.resolve() == other.data_dir.resolve()


def _derive_target_settings(settings: Settings, to: str) -> Settings:
    """The settings of a gateway whose catalog is at `to`."""
    if not to.strip():  # as a path it would be the current directory; a script's variable may not be set
        raise UsageError("--to is empty.", hint="Write postgresql://USER@HOST:PORT/DATABASE, or a data directory.")
    if "://" not in to:
        return settings.model_copy(update={"database_url": None, "data_dir": Path(to).expanduser()})
    try:
        return settings.model_copy(update={"database_url": is_database(SecretStr(to))})
    except ValueError:
        raise UsageError(
            "--to is no database's address.", hint="Write postgresql://USER@HOST:PORT/DATABASE, or a data directory."
        ) from None


async def _copy_configured_sign_ins(settings: Settings, target: Settings) -> list[str]:
    """Copy the sign-ins at configured servers; says what could not be copied, and what to do."""
    from smart_mcp_proxy.gateway.shared.shared_sign_ins import copy_sign_ins

    if settings.database_url is not None and target.database_url is not None:
        return []  # they are rows
    file = await to_thread.run_sync(load_configured_servers, settings, Path.cwd())
    wanted = [config for config in file.servers.values() if config.can_use_oauth]
    try:
        servers = []
        for config in wanted:
            with suppress(ConfigError) if config.oauth is None else nullcontext():  # it needs none, as far as is known
                servers.append(await to_thread.run_sync(expand, config, environment()))
        return await copy_sign_ins(settings, target, servers) if servers else []
    except ProxyError as exc:
        say(f"Sign-ins at servers were not copied: {exc}", style="yellow")
        return []


def _show_copied_rows(copied: "Copied", sign_ins: list[str], *, as_json: bool) -> None:
    for name, count in copied.left_out.items():
        say(f"Not copied, as PostgreSQL holds no names so long: {plural(count, 'row')} of {name}.", style="yellow")
    if as_json:
        show_json({"rows": copied.rows, "left_out": copied.left_out, "sign_ins": sign_ins})
        return
    held = [[name, f"{count:,}"] for name, count in copied.rows.items() if count]
    show(table(["Table", "Rows"], held))
    if sign_ins:
        say(f"Copied {plural(len(sign_ins), 'sign-in')}: {', '.join(sign_ins)}.")


@contextmanager
def _interruptible_once() -> Iterator[None]:
    """Ignores Ctrl-C after the first one, which takes the copy back: a second would disturb that."""
    first = signal.getsignal(signal.SIGINT)
    if not callable(first) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        first(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, first)


@contextmanager
def _progress() -> "Iterator[Told]":
    """A count on stderr while open, moved by what it yields; nothing off a terminal."""
    if not sys.stderr.isatty():
        with _interruptible_once():
            yield lambda *_: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn())
    with _interruptible_once(), Progress(*columns, console=console(sys.stderr), transient=True) as progress:
        task = progress.add_task("Opening", total=None)
        yield lambda name, count: progress.update(task, description=f"Copying {name}", advance=count)
