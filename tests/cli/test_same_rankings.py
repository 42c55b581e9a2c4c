"""One catalog, one ranking: whoever asks, and by whichever way."""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from cli_runs import Run

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "interaction"))

from test_agent_dynamic import found, settled  # noqa: E402  (from a room of tests beside this one)
from test_agent_passthrough import listed  # noqa: E402
from transports import over_http, served  # noqa: E402

# Marked long: every way of asking.
pytestmark = pytest.mark.long

GOLDEN = ROOT / "tests" / "golden_search" / "tools.jsonl"
UPSTREAM = ROOT / "scripts" / "bench" / "catalog_upstream.py"
SERVERS = 4
LIMIT = 10

QUERIES = (
    "create an issue in a repository",
    "search for files",
    "list all",
    "read a file and write it to another folder",
    "send a message",
    "create_issue",
    "get_fil",
    "search",
    "delete a branch, do not merge anything",
    "what is the weather in Paris tomorrow?",
    'open "README.md" of user@example.org',
    "Datei lesen",
)


def servers(folder: Path) -> dict[str, Any]:
    """Four servers with the most tools of the golden set, and one that lists what the first of them does."""
    lines = defaultdict(list)
    for line in GOLDEN.read_text().splitlines():
        lines[json.loads(line)["server"]].append(line)
    most = [server for server, _ in Counter({each: len(tools) for each, tools in lines.items()}).most_common(SERVERS)]
    entries = {}
    for server, source in [*zip(most, most, strict=True), ("a-copy", most[0])]:
        (folder / f"{server}.jsonl").write_text("\n".join(lines[source]))
        entries[server] = {"command": sys.executable, "args": [str(UPSTREAM), str(folder / f"{server}.jsonl")]}
    return entries


async def rankings(folder: Path) -> dict[str, dict[str, list[str]]]:
    """The names in the answers by the way of asking, then by query; a toolset has the listed names."""
    entries = servers(folder)
    profiles = {"all": {"servers": list(entries)}}
    ways: dict[str, dict[str, list[str]]] = defaultdict(dict)
    async with (
        settled(folder / "data", entries, profiles, routing_type="DYNAMIC") as gateway,
        served(gateway) as base,
        over_http(base, "handshake") as pooled,
        over_http(base, "modern") as modern,
        over_http(base, "handshake", path="/mcp/p/all") as profiled,
        httpx2.AsyncClient(base_url=f"{base}/api/v1") as rest,
    ):
        for query in QUERIES:
            for way, agent in {"DYNAMIC": pooled, "modern": modern, "profile": profiled}.items():
                answer = await found(agent, query, limit=LIMIT)
                ways[way][query] = [tool["name"] for tool in answer["tools"]]
                if toolset := answer["toolset"] if way == "modern" else None:
                    async with over_http(base, "modern", path=f"/mcp/t/{toolset['handle']}") as own:
                        ways["toolset"][query] = [tool["name"].replace("__", ":") for tool in await listed(own)]
            token = (folder / "data" / "operator.token").read_text().strip()
            operator = {"Authorization": f"Bearer {token}"}
            reply = await rest.get("/search", params={"q": query, "limit": LIMIT}, headers=operator)
            assert reply.status_code == 200, reply.text
            ways["REST"][query] = [tool["name"] for tool in reply.json()["tools"]]
    return ways


def test_every_way_of_asking_gives_the_same_ranking(home: Path, run: Run) -> None:
    """DYNAMIC, a modern agent and its toolset, a profile of all servers, REST, and the command line after a restart."""
    ways = anyio.run(rankings, home)
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": servers(home)}))
    for query in QUERIES:
        done = run("search", query, "--limit", str(LIMIT), "--json")
        assert done.status == 0, done.err
        ways["command line"][query] = [tool["name"] for tool in json.loads(done.out)["tools"]]

    wanted = ways.pop("DYNAMIC")
    assert sum(map(bool, wanted.values())) >= len(QUERIES) - 3
    assert ways.keys() == {"modern", "toolset", "profile", "REST", "command line"}
    for way, answers in ways.items():
        if way == "toolset":  # none is given where nothing was found
            assert answers == {query: names for query, names in wanted.items() if names}
        else:
            assert answers == wanted, way
