"""A pgbouncer of the tests' own, which lends each transaction a connection to PostgreSQL."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import PASSWORD, USER, PostgresServer, free_port

__all__ = ["pooled"]

ABSENT = "pgbouncer is absent: apt-get install pgbouncer"
_CONNECTIONS = 4
"""Fewer than gateways have together: what one transaction leaves behind shows in another's."""


@contextmanager
def pooled(server: PostgresServer, database: str) -> Iterator[str]:
    """The URL of `database` through a pooler, as long as it is open; a test is skipped where there is none."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip(ABSENT)
    scratch = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    # It refuses to run as root.
    account: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    port = free_port()
    (scratch / "users").write_text(f'"{USER}" "{PASSWORD}"\n')
    (scratch / "pgbouncer.ini").write_text(
        f"[databases]\n{database} = host=127.0.0.1 port={server.port} dbname={database}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\n"
        f"auth_file = {scratch}/users\npool_mode = transaction\ndefault_pool_size = {_CONNECTIONS}\n"
    )
    if account:
        for path in (scratch, *scratch.iterdir()):
            shutil.chown(path, "postgres", "postgres")
    url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/{database}"
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen([program, scratch / "pgbouncer.ini"], stdout=log, stderr=log, **account)
    try:
        while not _answers(url):
            assert process.poll() is None, (scratch / "log").read_text()
        yield url
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
