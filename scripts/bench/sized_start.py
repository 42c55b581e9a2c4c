"""Starts of the gateway from a stored catalog of many tools: memory and processor time until it is ready, and after its
servers were listed again."""

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bench.load import time_limit
from bench.process import cpu_s, memory_kb
from bench.search_data import write_rows
from bench.targets import TargetError, free_port, spawn
from smart_mcp_proxy.gateway.indexing.index_sync import INDEX_NAME

__all__ = ["Catalog", "Start"]

_PER_SERVER = 2_000
_LIMIT_S = 1_200.0
_PAUSE_S = 0.02
_SETTLED_S = 8.0
"""The side-car is written 5 s after the last change, and freed memory given back after 2 s without work."""
_IDLE_S = 4.0
"""Freed memory is given back once nothing was done for 2 s."""

Start = dict[str, float]
"""Seconds (`ready_s`), processor seconds (`ready_cpu_s`) and resident megabytes (`ready_mb`; without what files back,
`ready_own_mb`) when `/readyz` says yes, the same when all servers are listed, when every tool has its vector, when
nothing has happened for a while after that, and after the searches."""


class Catalog:
    """A catalog that was stored by a first start.

    Args:
        rows: Its tools; they are divided among servers as they come.
        folder: For configuration, data and logs.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], folder: Path) -> None:
        self._folder = folder
        self._config, self.data_dir = folder / "mcp_config.json", folder / "data"
        upstream, servers, left = Path(__file__).with_name("catalog_upstream.py"), {}, iter(rows)
        while some := list(islice(left, _PER_SERVER)):
            name = f"s{len(servers)}"
            write_rows(folder / f"{name}.jsonl", iter(some))
            servers[name] = {"command": sys.executable, "args": ["-S", str(upstream), str(folder / f"{name}.jsonl")]}
        self._config.write_text(json.dumps({"mcpServers": servers}))
        self._has_tools = bool(servers)

    def command(self, *words: str, embedder: str = "BM25") -> list[str]:
        """The command line of a gateway over stdio, or as `words` say."""
        settings = {"MCPPROXY_DATA_DIR": self.data_dir, "MCPPROXY_EMBEDDER": embedder, "MCPPROXY_LOG_LEVEL": "WARNING"}
        command = ["env", *(f"{name}={value}" for name, value in settings.items()), sys.executable]
        return [*command, "-m", "smart_mcp_proxy", "serve", *words, "--config", str(self._config)]

    def start(self, embedder: str = "BM25", queries: Sequence[str] = ()) -> Start:
        """Start once, the first time cold, and search; the servers' own processor time does not count."""
        port = free_port()
        command = self.command("--http", "--port", str(port), embedder=embedder)
        began = time.perf_counter()
        with spawn(command, self._folder / "gateway.log") as process, time_limit(_LIMIT_S, "the gateway"):
            while _answer(port, "/readyz") is None:
                time.sleep(_PAUSE_S)
            found = {"ready_s": time.perf_counter() - began} | _named("ready", process.pid)
            while not (_answer(port, "/api/v1/status") or {}).get("is_settled"):
                time.sleep(10 * _PAUSE_S)
            found |= {"listed_s": time.perf_counter() - began} | _named("listed", process.pid)
            token = (self.data_dir / "operator.token").read_text().strip()
            while embedder != "BM25" and not _is_embedded(_answer(port, "/api/v1/status", token)):
                time.sleep(10 * _PAUSE_S)
            found |= {"embedded_s": time.perf_counter() - began} | _named("embedded", process.pid)
            time.sleep(_SETTLED_S)
            while self._has_tools and not (self.data_dir / INDEX_NAME).exists():
                time.sleep(10 * _PAUSE_S)
            found |= _named("settled", process.pid)
            for query in queries:
                if _answer(port, f"/api/v1/search?q={urllib.parse.quote(query)}", token) is None:
                    raise TargetError(f"no answer to {query!r}")
            time.sleep(_IDLE_S if queries else 0)
            return found | _named("searched", process.pid)


def _answer(port: int, path: str, token: str = "") -> Any:
    """The JSON of a good answer; None for any other, and where nobody listens yet."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request if token else request.full_url, timeout=_LIMIT_S) as response:
            return json.load(response)
    except (urllib.error.URLError, ConnectionError):
        return None


def _is_embedded(status: Any) -> bool:
    embedded = (status or {}).get("embedded")
    return bool(embedded) and embedded["done"] == embedded["total"] == status["tools"] > 0


def _named(moment: str, pid: int) -> Start:
    return {
        f"{moment}_cpu_s": cpu_s(pid),
        f"{moment}_mb": memory_kb(pid) / 1024,
        f"{moment}_own_mb": memory_kb(pid, "RssAnon") / 1024,
    }
