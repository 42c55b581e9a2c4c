"""The activity log of a busy gateway on PostgreSQL: nothing recorded is lost, at 10,000 records a second."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psycopg
import pytest
from postgres_server import PostgresServer

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.gateway.activity.activity_log import recover
from smart_mcp_proxy.gateway.activity.write_ahead_log import find_abandoned_journals

pytestmark = [pytest.mark.anyio, pytest.mark.long]

PROGRAM = Path(__file__).with_name("activity_feed.py")
RATE = 10_000


@contextmanager
def fed(data_dir: Path, url: str, seconds: float, limit_rows: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A process that feeds its activity log; killed at the end."""
    words = [str(data_dir), url, str(RATE), str(seconds), str(limit_rows)]
    with subprocess.Popen([sys.executable, PROGRAM, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def numbers(stdout: IO[str] | None) -> Iterator[int]:
    """How many records were recorded so far, again and again."""
    assert stdout is not None
    yield from map(int, filter(str.isdigit, (line.strip() for line in stdout)))


def stored(url: str) -> tuple[int, int]:
    """Records in the database, and the different ones among them."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*), count(DISTINCT subject) FROM activity").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def missing(url: str, count: int) -> list[int]:
    """The first `count` records that the database lacks."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT substr(subject, 8)::bigint FROM activity").fetchall()
    return sorted(set(range(count)) - {number for (number,) in rows})


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.soak)])
async def test_a_gateway_that_is_killed_loses_no_record(postgres: PostgresServer, tmp_path: Path, kills: int) -> None:
    """Killed with -9 under full load, at another point each time: the next gateway stores the rest, each once."""
    recovered = 0
    for number in range(kills):
        url = postgres.url(postgres.new_database())
        data_dir = tmp_path / str(number)
        with fed(data_dir, url, seconds=600) as process:
            recorded = next(count for count in numbers(process.stdout) if count > 20_000 + 1_733 * number)
            process.kill()
            recorded = max([recorded, *numbers(process.stdout)])
        before, _ = stored(url)
        assert find_abandoned_journals(data_dir)
        async with Catalog.open(data_dir, url=url, name_limit=60) as catalog:
            recovered += await recover(catalog, data_dir)
        whole, different = stored(url)
        assert missing(url, recorded) == []
        assert whole == different > before
        assert find_abandoned_journals(data_dir) == []
        print(f"recorded {recorded:,}, stored at the kill {before:,}, afterwards {whole:,}, each once")
    assert recovered


@pytest.mark.soak
@pytest.mark.parametrize("limit_rows", [0, 100_000])
async def test_ten_thousand_records_a_second_for_a_minute(
    postgres: PostgresServer, tmp_path: Path, limit_rows: int
) -> None:
    """All are stored, up to the limit; where the machine is too busy some of them from the journal."""
    url = postgres.url(postgres.new_database())
    with fed(tmp_path, url, seconds=60, limit_rows=limit_rows) as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readlines()[-1])
    assert process.returncode == 0
    async with Catalog.open(tmp_path, url=url, name_limit=60) as catalog:
        late = await recover(catalog, tmp_path, limit_rows)
    print(facts, f"processor {facts['cpu_s'] / facts['records'] * 1e6:.1f} microseconds a record, {late:,} late")
    assert facts["records"] > 0.99 * RATE * 60
    assert facts["stored_s"] - facts["fed_s"] < 2
    assert late < facts["records"] / 10
    whole, different = stored(url)
    assert whole == different
    assert limit_rows * 0.9 < whole <= limit_rows if limit_rows else whole == facts["records"]
