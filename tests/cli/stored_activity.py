"""Records in a data directory."""

import asyncio
from pathlib import Path

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.telemetry import Activity

__all__ = ["write"]


def write(data_dir: Path, *records: Activity) -> None:
    """Stores records as a gateway does, in another process or before."""

    async def work() -> None:
        async with Catalog.open(data_dir, name_limit=60) as catalog:
            await catalog.append_activity(records)

    asyncio.run(work())
