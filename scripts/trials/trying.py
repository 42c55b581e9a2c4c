"""One batch of servers, each tried alone and then all of them behind one gateway, and what differs between the two."""

import asyncio
import json
import os
import re
import shlex
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from trials.servers import Installation, PublishedServer, mark_processes
from trials.session import EndedError, RawSession, RefusedRequestError, count_left

LIST_S = 90.0
"""Seconds that a server gets until it lists its tools: a busy machine is slow."""
CALL_S = 20.0
SETTLED = ("ready", "error", "needs_env", "needs_auth", "disabled", "quarantined")
"""States in which the gateway knows how a server stands."""
TRIES_S = 75.0
"""Seconds that one which does not start alone gets until the gateway says why: longer than its patience at a start."""
FIELDS = {
    "description": "description",
    "title": "title",
    "inputSchema": "input_schema",
    "outputSchema": "output_schema",
    "annotations": "annotations",
}
"""Fields of a definition, and their names in the gateway's answer; others stand in it under `definition`."""
_CUT = '\\u2026"'
"""How an outline ends a long text."""
_OF_SANDBOX = re.compile(r"mcpproxy (server (?:allow \S+ --(?:read|write) .*|patch \S+ isolation=none))$")
"""Advice that opens a sandbox."""
_MOMENT = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:[\d.]+")
GATEWAY = Path(sys.executable).parent / "mcpproxy"


async def try_alone(server: PublishedServer, installed: Installation, folder: Path) -> dict[str, Any]:
    """What a server does without a gateway; `bare`: why it does not start without its variables."""
    log = folder / "stderr"
    session = RawSession(installed.argv, server.environ(folder), folder / "work", log)
    seen: dict[str, Any] = {"tools": []}
    started = time.monotonic()
    try:
        async with session:
            try:
                answer = await session.initialize(LIST_S)
                seen |= {"protocol": answer.get("protocolVersion"), "capabilities": sorted(answer["capabilities"])}
                seen["tools"] = await session.list_tools(LIST_S)
                seen["listed_s"] = round(time.monotonic() - started, 1)
                seen["call"] = choose_call(server, seen["tools"])
                if seen["call"]:
                    seen["result"] = await session.call(*seen["call"], CALL_S)
                    again = await session.call(*seen["call"], CALL_S)
                    seen["varies"] = not is_same_result(seen["result"], again)
            except (EndedError, TimeoutError, RefusedRequestError) as error:
                seen["failure"] = f"{type(error).__name__}: {error}"
    except OSError as error:
        seen["failure"] = f"{type(error).__name__}: {error}"
    seen |= {"ending": session.ending, "other_lines": session.other_lines[:5], "asked": session.asked}
    seen["left"] = await count_left(mark_processes(server.name))
    seen["stderr"] = log.read_text("utf-8", "replace")[-4000:] if log.exists() else ""
    if server.variables and seen["tools"]:
        bare = await try_alone(replace(server, variables={}, call={}), installed, folder)
        seen["bare"] = bare.get("failure", "")
    return seen


def choose_call(server: PublishedServer, tools: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, Any]] | None:
    """The table's call, else the first tool that says it only reads and needs no arguments."""
    if server.call:
        return server.call["tool"], json.loads(server.call["arguments"])
    for tool in tools:
        is_reading = (tool.get("annotations") or {}).get("readOnlyHint") is True
        if is_reading and not (tool.get("inputSchema") or {}).get("required"):
            return tool["name"], {}
    return None


async def try_together(
    batch: Mapping[PublishedServer, Installation], alone: Mapping[str, Mapping[str, Any]], folder: Path
) -> dict[str, dict[str, Any]]:
    """What the servers do behind one gateway, by name; `alone` is what they did without."""
    entries = {
        server.name: {
            "command": installed.argv[0],
            "args": list(installed.argv[1:]),
            "env": server.environ(folder / server.name),
            "cwd": str(folder / server.name / "work"),
        }
        for server, installed in batch.items()
    }
    gateway = folder / "gateway"
    gateway.mkdir()
    config = gateway / "mcp_config.json"
    config.write_text(json.dumps({"mcpServers": entries}), "utf-8")
    environ = {
        "HOME": str(gateway),
        "MCPPROXY_CONFIG_PATH": str(config),
        "MCPPROXY_DATA_DIR": str(gateway / "data"),
        "MCPPROXY_MANAGE": "true",
        "MCPPROXY_SHARED": "false",
    }
    session = RawSession((str(GATEWAY), "serve"), environ, gateway, gateway / "stderr")
    async with session:
        await session.initialize(LIST_S)
        found = await _wait_for_all(
            session, {name for name in entries if not alone[name].get("failure")}, list(entries)
        )
        for server in batch:
            seen, row = alone[server.name], found[server.name]
            if (
                row["state"] != "ready"
                and "failure" not in seen
                and (advised := _OF_SANDBOX.search(row.get("hint", "")))
            ):
                found[server.name] = row = await _follow(session, server.name, advised[1], environ) | {"before": row}
            if row["state"] == "ready":
                row |= await _look(session, server, seen)
            if advised := _find_advice(row):
                found[server.name] = row = await _follow(session, server.name, advised, environ) | {"before": row}
                row |= await _look(session, server, seen) if row["state"] == "ready" else {}
    for name, row in found.items():
        row["ending_s"] = session.ending["seconds"]
        row["left"] = await count_left(mark_processes(name))
    return found


def _find_advice(row: Mapping[str, Any]) -> str:
    """The command that opens the sandbox, where a call that met the server's end was told it."""
    error = (row.get("result", {}).get("structuredContent") or {}).get("error")
    advised = _OF_SANDBOX.search(error.get("hint", "")) if isinstance(error, Mapping) else None
    return advised[1] if advised and row.get("same_result") is False and "followed" not in row else ""


async def _follow(session: RawSession, name: str, advised: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """How a server stands once the command that the gateway advises was carried out."""
    argv = [str(GATEWAY), *shlex.split(advised)]
    carried = await asyncio.create_subprocess_exec(*argv, env=os.environ | environ, stdout=DEVNULL, stderr=DEVNULL)
    await carried.wait()
    await asyncio.sleep(2)  # until the gateway has read its file
    found = await _wait_for_all(session, {name}, [name])
    return found[name] | {"followed": advised}


async def _wait_for_all(session: RawSession, working: Set[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """How the gateway says that each server stands, once it knows; the working ones are waited for longer."""
    started = time.monotonic()
    found: dict[str, dict[str, Any]] = {name: {"state": "connecting"} for name in names}
    while time.monotonic() - started < LIST_S + 30:
        answer = await _ask(session, "upstream_servers", {"operation": "list"})
        spent = round(time.monotonic() - started, 1)
        for row in answer["servers"]:
            if row["name"] not in found:
                continue
            before = found.get(row["name"], {})
            is_retried = before.get("state") == "error" and row["state"] in {"connecting", "disconnected"}
            if row["state"] != before.get("state") and not is_retried:
                kept = {key: row[key] for key in ("state", "tools", "error", "hint") if row.get(key)}
                found[row["name"]] = {**kept, "after_s": spent}
        waits = {name for name, row in found.items() if row["state"] not in SETTLED}
        failing = {name for name, row in found.items() if row["state"] == "error"}
        if not waits & working and (spent > TRIES_S or not waits | (failing & working)):
            break
        await asyncio.sleep(0.5)
    return found


async def _ask(session: RawSession, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The structured answer of one of the gateway's own tools."""
    answer = await session.call(tool, arguments, LIST_S)
    structured: dict[str, Any] = answer.get("structuredContent") or answer
    return structured


async def _look(session: RawSession, server: PublishedServer, alone: Mapping[str, Any]) -> dict[str, Any]:
    """Definitions, one result and one search through the gateway, compared with what the server said alone."""
    described: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for names in _in_tens([tool["name"] for tool in alone["tools"]]):
        answer = await _ask(session, "describe_tool", {"names": [f"{server.name}:{name}" for name in names]})
        described |= {tool["name"].partition(":")[2]: tool for tool in answer.get("tools", [])}
        refused |= {row["name"]: row["message"] for row in answer.get("errors", [])}
    seen: dict[str, Any] = {
        "differences": compare_definitions(alone["tools"], described, server.name),
        "refused": refused,
    }
    if alone.get("call"):
        is_same, seen["result"] = await _call(session, server, alone, described)
        if not alone["varies"]:
            seen["same_result"] = is_same
    if server.search:
        seen["rank"] = await _search(session, server)
    return seen


def _in_tens(names: Sequence[str]) -> Iterable[Sequence[str]]:
    return (names[start : start + 10] for start in range(0, len(names), 10))


def compare_definitions(
    listed: Iterable[Mapping[str, Any]], described: Mapping[str, Mapping[str, Any]], server: str
) -> list[str]:
    """Where the gateway's definitions differ from the server's: tool, field, the two texts from where they part.

    The server's name in the URIs of resources is the gateway's, on purpose; what is too large is outlined.
    """
    found = []
    for tool in listed:
        ours = described.get(tool["name"])
        if ours is None:
            found.append(f"{tool['name']} is missing")
            continue
        outlined = {field for field, name in FIELDS.items() if f"{name}_outline" in ours}
        ours = {**ours.get("definition", {}), **{field: ours.get(name) for field, name in FIELDS.items()}}
        for field in sorted(({*tool} | {*FIELDS}) - {"name"} - outlined):
            # A field that is null or empty says nothing.
            theirs, through = (json.dumps(each or None, sort_keys=True) for each in (tool.get(field), ours.get(field)))
            through = through.replace(f"://{server}/", "://")
            is_cut = through.endswith(_CUT) and theirs.startswith(through.removesuffix(_CUT))
            if theirs != through and not is_cut:
                at = max(
                    next((i for i, pair in enumerate(zip(theirs, through, strict=False)) if len({*pair}) > 1), 0) - 20,
                    0,
                )
                found.append(f"{tool['name']}.{field}: {theirs[at : at + 60]} | {through[at : at + 60]}")
    return found


async def _call(
    session: RawSession, server: PublishedServer, alone: Mapping[str, Any], described: Mapping[str, Mapping[str, Any]]
) -> tuple[bool, dict[str, Any]]:
    """Whether the call's result is the same, and the result."""
    tool, arguments = alone["call"]
    by = described.get(tool, {}).get("call_with", "call_tool_read")
    result = await session.call(by, {"name": f"{server.name}:{tool}", "args": arguments}, CALL_S + 5)
    return is_same_result(alone.get("result") or {}, result), result


def is_same_result(theirs: Mapping[str, Any], through: Mapping[str, Any]) -> bool:
    """Whether a result came through, whenever it was made; of an error the server's own words.

    Of `_meta` the gateway's own remarks count as nothing.
    """
    if isinstance(theirs.get("error"), Mapping) and "error" not in through:
        text = (through.get("structuredContent") or {}).get("error", {}).get("message", "")
        return str(theirs["error"].get("message")) in text
    kept = {key: value for key, value in through.items() if key != "_meta" or key in theirs}
    alone, ours = (_MOMENT.sub("", json.dumps(each, sort_keys=True)) for each in (theirs, kept))
    return alone == ours


async def _search(session: RawSession, server: PublishedServer) -> int:
    """Place of the tool that the table's query should find, among all of the batch; 0 where it is not among ten."""
    answer = await _ask(session, "retrieve_tools", {"query": server.search["query"], "limit": 10})
    names = [tool["name"] for tool in answer.get("tools", [])]
    wanted = f"{server.name}:{server.search['finds']}"
    return names.index(wanted) + 1 if wanted in names else 0
