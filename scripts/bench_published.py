"""Measures one gateway in front of published servers, beside two peers with the same file, where these can.

The servers are those that the report of `make atlas` calls up, the smallest first, installed in a folder that stays;
those that are there already come before others. A gateway has started them when its own list no longer grows. Memory
is PSS, which divides shared pages; processor time is that until then, of the gateway's own process and of all others,
which are the servers. Linux alone.

    python scripts/bench_published.py FOLDER --mcp-hub PATH --mcp-compressor PATH
"""

import argparse
import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.desktop.tree import adopt_orphans, descendants, end_all
from bench.process import cpu_s, pss_kb
from bench.targets import free_port
from trials.servers import InstallError, PublishedServer, install, mark_processes, read_table
from trials.session import EndedError, RawSession

ATLAS = Path(__file__).parent.parent / "tests" / "atlas"
STILL_S = 20.0
"""A list that has not grown for that long is taken for whole."""


def main() -> int:
    options = _read_options()
    adopt_orphans()
    entries = _install_all(options.folder, options.servers, options.python)
    config = options.folder / "mcp_config.json"
    config.write_text(json.dumps({"mcpServers": entries}), "utf-8")
    ways = {"ours": [str(Path(sys.executable).with_name("mcpproxy")), "serve"]}
    if options.mcp_hub:
        ways["mcp-hub"] = [options.mcp_hub, "--config", str(config), "--port", str(free_port())]
    if options.mcp_compressor:
        ways["mcp-compressor"] = [options.mcp_compressor, "--config", str(config)]
    print(
        f"{len(entries)} servers\n| way | up | after | own PSS | own processor time | servers, PSS | processor time |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, command in ways.items():
        if name in (options.only or ways):
            try:
                row = asyncio.run(_measure(name, command, options))
            except (EndedError, TimeoutError) as error:
                row = f"| {name} | none: {type(error).__name__} | | | | | |"
            print(row, flush=True)
            end_all(15.0)
    return 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the servers are, or will be, installed")
    parser.add_argument("--servers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=300.0, help="that a gateway gets at most")
    parser.add_argument("--only", nargs="+", choices=("ours", "mcp-hub", "mcp-compressor"))
    parser.add_argument("--python", default=sys.executable, help="interpreter of the Python servers")
    parser.add_argument("--mcp-hub", metavar="PATH", help="program of the npm package mcp-hub")
    parser.add_argument("--mcp-compressor", metavar="PATH", help="program of the PyPI package mcp-compressor")
    return parser.parse_args()


def _install_all(folder: Path, count: int, python: str) -> dict[str, Any]:
    report = json.loads((ATLAS / "report.json").read_text("utf-8"))
    table = {each.name: each for each in read_table(ATLAS / "servers.toml")}
    up = [name for name, row in report.items() if row["outcome"] in {"same", "different"} and name in table]
    entries: dict[str, Any] = {}
    for name in sorted(up, key=lambda name: (not (folder / f"{name}.argv").exists(), report[name]["size_mb"])):
        if len(entries) < count and (argv := _install_one(table[name], folder / name, python)):
            environ = table[name].environ(folder / name)
            environ["PUBLISHED_SERVER"] = mark_processes("all")
            work = str(folder / name / "work")
            entries[name] = {"command": argv[0], "args": argv[1:], "env": environ, "cwd": work}
    return entries


def _install_one(server: PublishedServer, folder: Path, python: str) -> list[str]:
    known = folder.with_suffix(".argv")
    if not known.exists():
        print(f"installing {server.name}", file=sys.stderr)
        try:
            known.write_text(json.dumps(install(server, folder, python).argv), "utf-8")
        except (InstallError, OSError) as error:
            print(f"{server.name}: {error}", file=sys.stderr)
            return []
    argv: list[str] = json.loads(known.read_text("utf-8"))
    return argv


async def _measure(name: str, command: Sequence[str], options: argparse.Namespace) -> str:
    """A row of the table."""
    home = options.folder / f"home-{name}"
    home.mkdir(exist_ok=True)
    environ = {
        "HOME": str(home),
        "MCPPROXY_CONFIG_PATH": str(options.folder / "mcp_config.json"),
        "MCPPROXY_DATA_DIR": str(home / "data"),
        "MCPPROXY_MANAGE": "true",
        "MCPPROXY_SHARED": "false",
    }
    began = time.monotonic()
    async with RawSession(tuple(command), environ, home, options.folder / f"{name}.log") as session:
        if name != "mcp-hub":
            await session.initialize(options.seconds)
        count, grown_s, row = 0, time.monotonic(), ""
        while time.monotonic() - grown_s < STILL_S or (not count and time.monotonic() - began < options.seconds):
            found = await COUNTS[name](session, command)
            if found > count:
                count, grown_s, row = found, time.monotonic(), _describe(session.process.pid)
            await asyncio.sleep(2)
        return f"| {name} | {count} | {grown_s - began:.0f} s | {row} |"


async def _count_ours(session: RawSession, _command: Sequence[str]) -> int:
    answer = await session.call("upstream_servers", {"operation": "list"}, 60)
    return sum(row["state"] == "ready" for row in (answer.get("structuredContent") or {}).get("servers", ()))


async def _count_in_hub(_session: RawSession, command: Sequence[str]) -> int:
    """By its own interface, which answers while servers start."""

    def ask() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{command[-1]}/api/servers", timeout=60) as answer:
                rows = json.load(answer)["servers"]
        except OSError:
            return 0
        return sum(row["status"] == "connected" for row in rows)

    return await asyncio.to_thread(ask)


async def _count_compressed(session: RawSession, _command: Sequence[str]) -> int:
    """Servers by the tools that stand for each."""
    names = [tool["name"] for tool in await session.list_tools(120)]
    return sum(name.endswith("_invoke_tool") for name in names)


COUNTS = {"ours": _count_ours, "mcp-hub": _count_in_hub, "mcp-compressor": _count_compressed}


def _describe(own: int) -> str:
    others = [pid for pid in descendants() if pid != own]
    pss = {pid: _read_pss_mb(pid) for pid in (own, *others)}
    cells = (f"{pss.pop(own):,.0f} MB", f"{cpu_s(own):.1f} s", f"{sum(pss.values()):,.0f} MB")
    return f"{' | '.join(cells)} | {sum(map(_read_cpu_s, others)):.1f} s"


def _read_cpu_s(pid: int) -> float:
    """Processor time of a process that may have ended meanwhile."""
    try:
        return cpu_s(pid)
    except OSError:
        return 0.0


def _read_pss_mb(pid: int) -> float:
    try:
        return pss_kb(pid) / 1024
    except OSError:
        return 0.0


if __name__ == "__main__":
    sys.exit(main())
