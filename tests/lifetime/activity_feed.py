"""Program that feeds the activity writer of a gateway at a steady rate; it is killed, or says how it went.

    python activity_feed.py DATA_DIR URL RECORDS_PER_S SECONDS LIMIT_ROWS

It writes the number of the latest record that it has recorded, a line each, and at its end a JSON object.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from smart_mcp_proxy.catalog import open_catalog
from smart_mcp_proxy.gateway.activity.activity_log import open_activity_log
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity

TICK_S: Final = 0.01
PAUSES: Final = 64
"""Records between two looks at the clock: none of a gateway's calls holds the event loop longer."""


def call(number: int) -> Activity:
    """A record as a call makes it."""
    return Activity(
        "call",
        "tok_4fa2c1",
        f"github:{number}",
        "ok",
        duration_ms=12.345,
        at_s=time.time(),
        detail={"reason": "The user wants to know which issues are open.", "variant": "read"},
        session="9f8e7d6c5b4a",
        server="github",
        tool="list_issues",
        digest="sha256:0123456789abcdef",
        arguments={"owner": "string(7)", "repo": "string(12)", "state": "string(4)"},
    )


async def feed(settings: Settings, records_per_s: float, seconds: float) -> None:
    count, latest_s, began_s = 0, 0.0, time.monotonic()
    async with open_catalog(settings) as catalog:
        async with open_activity_log(catalog, settings) as recorder:
            began_s = time.monotonic()
            while (passed_s := time.monotonic() - began_s) < seconds:
                due = int(passed_s * records_per_s)
                latest_s = max(latest_s, (due - count) / records_per_s)
                for number in range(count, min(due, count + PAUSES)):
                    recorder.record(call(number))
                count = min(due, count + PAUSES)
                os.write(1, b"%d\n" % count)
                await asyncio.sleep(0 if count < due else TICK_S)
            fed_s = time.monotonic() - began_s
        stored_s = time.monotonic() - began_s
    cpu = os.times()
    facts = {
        "records": count,
        "fed_s": round(fed_s, 2),
        "stored_s": round(stored_s, 2),
        "latest_s": round(latest_s, 3),
        "cpu_s": round(cpu.user + cpu.system, 2),
    }
    os.write(1, json.dumps(facts).encode() + b"\n")


if __name__ == "__main__":
    data_dir, url, rate, seconds, rows = sys.argv[1:]
    made = Settings(data_dir=Path(data_dir), database_url=SecretStr(url), activity_rows=int(rows))
    asyncio.run(feed(made, float(rate), float(seconds)))
