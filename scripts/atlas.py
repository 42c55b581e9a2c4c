"""Try published servers alone and behind one gateway, and report what differs: python scripts/atlas.py [OPTION ...].

Servers are installed, tried and removed in batches. What is known of each stays in the work folder, so that a run that
was stopped goes on where it was; --again forgets it. Needs pip, npm and node, and the registries that they ask.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trials.known_rows import write_known
from trials.reporting import write_report
from trials.servers import Installation, InstallError, PublishedServer, install, read_table
from trials.trying import try_alone, try_together

from smart_mcp_proxy.policy.scanner import scan

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "tests" / "atlas" / "servers.toml"
BATCH = 8
AT_ONCE = 2
"""Servers of a batch that are installed and tried at the same time."""
BATCH_S = 600
"""No further server of a batch is installed after that many seconds."""
BATCH_MB = 6000


def main() -> int:
    options = _read_options()
    table = read_table(options.table)
    results: Path = options.work / "servers"
    results.mkdir(parents=True, exist_ok=True)
    if options.again:
        for path in results.glob("*.json"):
            path.unlink()
    chosen = [each for each in table if _is_wanted(each, options)]
    waiting = [each for each in chosen if not (results / f"{each.name}.json").exists()]
    while waiting:
        batch = waiting[:BATCH]
        done = _try_batch(batch, options, results)
        waiting = [each for each in waiting if each.name not in done]
        print(f"{len(chosen) - len(waiting)} of {len(chosen)} tried", file=sys.stderr, flush=True)
    write_report(table, results, options.report, options.page)
    write_known(table, results, options.known)
    return 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these servers")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--work", type=Path, default=ROOT / ".cache" / "atlas", help="folder of what is known")
    parser.add_argument("--report", type=Path, default=TABLE.with_name("report.json"))
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "servers-tried.md")
    parser.add_argument(
        "--known", type=Path, default=ROOT / "smart_mcp_proxy" / "servers" / "known" / "known_servers.json"
    )
    parser.add_argument("--ecosystem", choices=("npm", "pypi"))
    parser.add_argument("--python", default=sys.executable, help="interpreter of the Python servers")
    parser.add_argument("--again", action="store_true", help="try those too that were tried before")
    return parser.parse_args()


def _is_wanted(server: PublishedServer, options: argparse.Namespace) -> bool:
    return (not options.names or server.name in options.names) and options.ecosystem in {None, server.ecosystem}


def _try_batch(batch: Sequence[PublishedServer], options: argparse.Namespace, results: Path) -> set[str]:
    """Try some servers and keep what was seen; the names of those that were tried."""
    with tempfile.TemporaryDirectory(prefix="atlas-", ignore_cleanup_errors=True) as folder:
        trial = Trial(Path(folder), options.python)
        asyncio.run(trial.run(batch))
        for name, row in trial.rows.items():
            (results / f"{name}.json").write_text(json.dumps(row, indent=1), "utf-8")
    return set(trial.rows)


class Trial:
    """The trial of one batch in a folder that is removed afterwards.

    Attributes:
        rows: What was seen of each server, by name.
    """

    def __init__(self, folder: Path, python: str) -> None:
        self._folder, self._python = folder, python
        self._installed: dict[PublishedServer, Installation] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._began_s = time.monotonic()
        self.rows: dict[str, dict[str, Any]] = {}

    async def run(self, batch: Sequence[PublishedServer]) -> None:
        """Install and try the servers alone, some at a time, then together."""
        await asyncio.gather(*(self._try_one(server) for server in batch))
        alone = {server.name: self.rows[server.name]["alone"] for server in self._installed}
        if alone:
            for name, seen in (await try_together(self._installed, alone, self._folder)).items():
                self.rows[name]["through"] = seen

    async def _try_one(self, server: PublishedServer) -> None:
        folder = self._folder / server.name
        async with self._turn:
            used_mb = sum(each.size_mb for each in self._installed.values())
            if self.rows and (time.monotonic() - self._began_s > BATCH_S or used_mb > BATCH_MB):
                return  # it belongs to the next batch
            print(f"  {server.name} {server.version}", file=sys.stderr, flush=True)
            try:
                installed = await asyncio.to_thread(install, server, folder, self._python)
            except InstallError as error:
                self.rows[server.name] = {"not_installed": str(error)}
                return
            seen = await try_alone(server, installed, folder)
        found = {tool["name"]: _scan(server.name, tool) for tool in seen["tools"]}
        self.rows[server.name] = {
            "size_mb": installed.size_mb,
            "install_s": installed.seconds,
            "alone": seen,
            "findings": {name: why for name, why in found.items() if why},
        }
        self._installed[server] = installed


def _scan(server: str, tool: dict[str, Any]) -> list[str]:
    """Why a person should read a definition."""
    return [each.reason for each in scan(server, tool) if each.severity == "review"]


if __name__ == "__main__":
    sys.exit(main())
