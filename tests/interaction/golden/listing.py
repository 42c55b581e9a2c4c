"""The whole `tools/list` answer as a client of either era gets it, written the one way that golden files are."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import mcp_types

from smart_mcp_proxy import __version__, greeting
from smart_mcp_proxy.fastmcp_compat.eras import serve_streams
from smart_mcp_proxy.fastmcp_compat.server import dump_message, message_streams, parse_message
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.gateway.rehearsal import Rehearsal
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

__all__ = [
    "ERAS",
    "SCRIPT_SETTINGS",
    "default_greeting_file",
    "golden_file",
    "managing_tool_file",
    "proxy_tool_file",
    "rendered",
    "rendered_default_greeting",
    "rendered_managing_tool",
    "rendered_proxy_tool",
    "rendered_script_tool",
    "script_tool_file",
]

ERAS: tuple[Era, ...] = ("handshake", "modern")
SCRIPT_SETTINGS: tuple[Any, ...] = ("python", "javascript", "both")
HERE = Path(__file__).parent
_MODERN_META = {
    mcp_types.PROTOCOL_VERSION_META_KEY: "2026-07-28",
    mcp_types.CLIENT_INFO_META_KEY: {"name": "golden", "version": "1"},
    mcp_types.CLIENT_CAPABILITIES_META_KEY: {},
}
_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "golden", "version": "1"}}


def golden_file(era: Era) -> Path:
    """Where the answer for an era is kept."""
    return HERE / f"tools_list.{era}.json"


async def rendered(era: Era) -> str:
    """The `result` of `tools/list` with default settings, as indented JSON in the order of the wire.

    The gateway's own version is written as `VERSION`: a release changes nothing that a model reads.
    """
    result = await _list_tools(era)
    return json.dumps(result, indent=2, ensure_ascii=False).replace(f'"{__version__}"', '"VERSION"') + "\n"


def script_tool_file(setting: str) -> Path:
    """Where `code_execution` is kept as one value of `MCPPROXY_CODE` lists it."""
    return HERE / f"code_execution.{setting}.json"


async def rendered_script_tool(setting: Any) -> str:
    """`code_execution` as one value of `MCPPROXY_CODE` lists it, behind the default list, as indented JSON."""
    *own, last = (await _list_tools("handshake", code=setting))["tools"]
    assert own == (await _list_tools("handshake"))["tools"]
    return json.dumps(last, indent=2, ensure_ascii=False) + "\n"


def managing_tool_file() -> Path:
    """Where `upstream_servers` is kept as `MCPPROXY_MANAGE` lists it."""
    return HERE / "upstream_servers.json"


async def rendered_managing_tool() -> str:
    """`upstream_servers` as `MCPPROXY_MANAGE` lists it, behind the default list, as indented JSON."""
    *own, last = (await _list_tools("handshake", manage=True))["tools"]
    assert own == (await _list_tools("handshake"))["tools"]
    return json.dumps(last, indent=2, ensure_ascii=False) + "\n"


def proxy_tool_file() -> Path:
    """Where `proxy` is kept as `MCPPROXY_PROXY_TOOL` lists it."""
    return HERE / "proxy.json"


async def rendered_proxy_tool() -> str:
    """`proxy` as `MCPPROXY_PROXY_TOOL` lists it, behind the default list, as indented JSON."""
    *own, last = (await _list_tools("handshake", proxy_tool="proxy"))["tools"]
    assert own == (await _list_tools("handshake"))["tools"]
    return json.dumps(last, indent=2, ensure_ascii=False) + "\n"


def default_greeting_file() -> Path:
    """Where the first answers of the first start ever are kept; it is part of the package."""
    return Path(greeting.__file__).parent / "default.json"


async def rendered_default_greeting() -> str:
    """What a client of each version is answered with default settings at the first start ever, as indented JSON.

    With and without servers; the results are texts, as they are sent. The gateway's version is written as `VERSION`.
    """
    stored: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        async with open_gateway(Settings(data_dir=Path(directory), routing_type="DYNAMIC"), {}, environ={}) as gateway:
            stored["growing tools/list"] = (await Rehearsal(gateway).answers())["tools/list"]
    for words, config in (("without servers", "{}"), ("with servers", '{"mcpServers": {"x": {"command": "x"}}}')):
        with tempfile.TemporaryDirectory() as directory:
            settings, servers = Settings(data_dir=Path(directory)), load_servers(config).servers
            async with open_gateway(settings, servers, environ={}) as gateway:
                rehearsal = Rehearsal(gateway)
                known = await rehearsal.answers()
        stored |= {"name": rehearsal.name, "tools/list": known.pop("tools/list"), words: known}
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    return text.replace(json.dumps(f'"{__version__}"')[1:-1], json.dumps('"VERSION"')[1:-1]) + "\n"


async def _list_tools(era: Era, **settings: Any) -> dict[str, Any]:
    """Asks a gateway without servers, over a pair of message streams."""
    to_gateway, gateway_reads = message_streams()
    gateway_writes, from_gateway = message_streams()

    async def ask(**message: Any) -> dict[str, Any]:
        await to_gateway.send(parse_message(json.dumps({"jsonrpc": "2.0", **message}).encode()))
        if "id" not in message:
            return {}
        result: dict[str, Any] = json.loads(dump_message(await anext(from_gateway)))["result"]
        return result

    with tempfile.TemporaryDirectory() as directory:
        async with open_gateway(Settings(data_dir=Path(directory), **settings), {}, environ={}) as gateway:
            serving = asyncio.ensure_future(serve_streams(gateway.agent_server(), gateway_reads, gateway_writes))
            try:
                if era == "modern":
                    return await ask(id=1, method="tools/list", params={"_meta": _MODERN_META})
                await ask(id=1, method="initialize", params=_HELLO)
                await ask(method="notifications/initialized")
                return await ask(id=2, method="tools/list")
            finally:
                await to_gateway.aclose()
                await serving
                await from_gateway.aclose()
