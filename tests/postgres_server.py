"""A PostgreSQL server of the tests' own: a scratch directory, a free port, one database for each test."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

__all__ = ["ABSENT", "PASSWORD", "USER", "PostgresServer", "free_port", "programs", "running_server", "standby_of"]

USER, PASSWORD = "mcpproxy", "s3cret-of-the-tests"
ABSENT = "PostgreSQL's server programs are absent: apt-get install postgresql"
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "60"}
"""The scratch directory is thrown away: nothing in it has to outlive a power cut."""


def programs() -> Path | None:
    """The folder with `initdb` and `postgres` of version 15 or newer; None where there is none."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    installed = {int(path.parts[4]): path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")}
    newest = max(installed, default=0)
    return installed[newest] if newest >= 15 else None


class PostgresServer:
    """A running server.

    Attributes:
        port: On 127.0.0.1.
        process: Its first process; the others are in its group.
    """

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.process = process
        self._numbers = itertools.count()
        self._template: str | None = None

    def url(self, database: str, user: str = USER, password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def execute(self, sql: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(sql)

    def value(self, sql: str, database: str = "postgres") -> Any:
        """The one value that a query gives."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            row = connection.execute(sql).fetchone()  # type: ignore[call-overload]  # no user's text
        return None if row is None else row[0]

    def kill(self) -> None:
        """Ends it at once, as a machine that loses its power."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    def new_database(self, options: str = "") -> str:
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return name

    def new_catalog(self, make: Callable[[str], None]) -> str:
        """A database with the tables of an empty catalog, as one that a gateway has just made.

        Args:
            make: Makes those tables in the database at a URL; called once, later ones are copies.
        """
        if self._template is None:
            template = self.new_database()
            make(self.url(template))
            self._template = template
        name = self.new_database(f"TEMPLATE {self._template}")
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            own_id = "UPDATE meta SET value = 1 + (random() * (1::bigint << 62))::bigint WHERE key = 'catalog_id'"
            connection.execute(own_id)
        return name

    def refuse(self, database: str) -> None:
        """Ends the database's connections and lets nobody in, as a server that is gone."""
        self.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")

    def accept(self, database: str) -> None:
        self.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """As long as it is open the server neither answers nor fails."""
        processes = [self.process.pid, *map(int, _children(self.process.pid))]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@contextmanager
def running_server(port: int | None = None) -> Iterator[PostgresServer]:
    """A server as long as it is open; a test is skipped where its programs are absent.

    Args:
        port: On 127.0.0.1; None for a free one.
    """
    with _scratch() as (folder, scratch, account):
        secret = scratch / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        data = scratch / "data"
        create = [folder / "initdb", "-D", data, "-U", USER, f"--pwfile={secret}", "-A", "scram-sha-256"]
        options = ["-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([*create, *options], check=True, capture_output=True, cwd=scratch, **account)
        with _serving(folder, data, account, port or free_port()) as server:
            yield server


@contextmanager
def standby_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A server that follows another one, as long as it is open."""
    with _scratch() as (folder, scratch, account):
        data = scratch / "data"
        copy = [folder / "pg_basebackup", "-D", data, "-d", primary.url("postgres"), "-R", "-X", "stream"]
        fast = ["--checkpoint=fast", "--no-sync"]
        subprocess.run([*copy, *fast], check=True, capture_output=True, cwd=scratch, **account)
        with _serving(folder, data, account, free_port()) as server:
            yield server


Account = dict[str, Any]


@contextmanager
def _scratch() -> Iterator[tuple[Path, Path, Account]]:
    """The folder of the programs, an empty one, and the account to run them as: they refuse to run as root."""
    folder = programs()
    if folder is None:
        pytest.skip(ABSENT)
    scratch = Path(tempfile.mkdtemp(prefix="postgres-"))
    account: Account = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        if account:
            shutil.chown(scratch, "postgres", "postgres")
        yield folder, scratch, account
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _serving(folder: Path, data: Path, account: Account, port: int) -> Iterator[PostgresServer]:
    scratch = data.parent
    settings = {**_FAST, "port": str(port), "listen_addresses": "127.0.0.1", "unix_socket_directories": str(scratch)}
    arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [folder / "postgres", "-D", data, *arguments],
            cwd=scratch,
            stdout=log,
            stderr=log,
            process_group=0,
            **account,
        )
    server = PostgresServer(port, process)
    try:
        wait = [folder / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(wait, check=False).returncode:
            assert process.poll() is None, (scratch / "log").read_text()
        yield server
    finally:
        server.kill()  # nothing is kept


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
