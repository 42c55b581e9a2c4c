"""Files in which clients keep their MCP servers: found, read, and changed with care."""

from smart_mcp_proxy.client_files.clients import KNOWN_CLIENTS, KnownClient
from smart_mcp_proxy.client_files.files import (
    ClientFile,
    Planned,
    forget_unfinished,
    plan,
    read_client_file,
    restored,
    take_out,
    write,
)
from smart_mcp_proxy.client_files.finding import Finding, FoundServer, find_servers, same_as_ours
from smart_mcp_proxy.client_files.masking import masked_diff
from smart_mcp_proxy.client_files.ours import OUR_NAME, TOKEN_VARIABLE, Door, is_ours, our_entry
from smart_mcp_proxy.client_files.places import Places
from smart_mcp_proxy.client_files.records import Record, Records, digest
from smart_mcp_proxy.client_files.variables import Question

__all__ = [
    "KNOWN_CLIENTS",
    "OUR_NAME",
    "TOKEN_VARIABLE",
    "ClientFile",
    "Door",
    "Finding",
    "FoundServer",
    "KnownClient",
    "Places",
    "Planned",
    "Question",
    "Record",
    "Records",
    "digest",
    "find_servers",
    "forget_unfinished",
    "is_ours",
    "masked_diff",
    "our_entry",
    "plan",
    "read_client_file",
    "restored",
    "same_as_ours",
    "take_out",
    "write",
]
