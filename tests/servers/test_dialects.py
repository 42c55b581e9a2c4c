"""Every client's words are understood, wherever they stand."""

import json

import pytest

from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.servers.dialects import DIALECTS, ClientDialect

ROWS = pytest.mark.parametrize("client", DIALECTS, ids=lambda client: client.name)


@ROWS
def test_a_clients_file_is_read(client: ClientDialect) -> None:
    """Its section and its key of the address; where the address decides, it still does."""
    for ending, transport in (("/mcp", "http"), ("/sse", "http" if client.is_http else "sse")):
        document = {client.section: {"web": {client.url_key: f"https://h.example{ending}"}}}
        loaded = load_servers(json.dumps(document))
        assert (loaded.servers["web"].url, loaded.servers["web"].transport) == (f"https://h.example{ending}", transport)
        assert loaded.problems == ()


@ROWS
def test_a_clients_keys_are_no_unknown_ones(client: ClientDialect) -> None:
    """Nobody is warned of a key that their client writes."""
    loaded = load_servers(
        json.dumps({"mcpServers": {"web": {"url": "https://h.example", **dict.fromkeys(client.keys)}}})
    )
    assert [problem.message for problem in loaded.problems if "not known" in problem.message] == []


@ROWS
def test_a_clients_names_of_transports_are_known(client: ClientDialect) -> None:
    """In any case, with hyphens or underscores."""
    for name, transport in client.types:
        address = {"command": "x"} if transport == "stdio" else {"url": "https://h.example/mcp"}
        loaded = load_servers(json.dumps({"mcpServers": {"web": {"type": name.upper(), **address}}}))
        assert loaded.servers["web"].transport == (transport or "http")
