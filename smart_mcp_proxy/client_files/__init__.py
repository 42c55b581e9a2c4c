"""Files in which clients keep their MCP servers: found, read, and changed with care."""

from smart_mcp_proxy.client_files.clients import KNOWN_CLIENTS, KnownClient
from smart_mcp_proxy.client_files.files import (
    ClientFile,
    Planned,
    forget_unfinished,
    plan,
    read_client_file,
    restore_file,
    take_out,
    write,
)
from smart_mcp_proxy.client_files.finding import FoundServer, ImportCandidates, find_servers, same_as_ours
from smart_mcp_proxy.client_files.masking import build_masked_diff
from smart_mcp_proxy.client_files.ours import OUR_NAME, TOKEN_VARIABLE, Door, is_ours, our_entry
from smart_mcp_proxy.client_files.places import Places
from smart_mcp_proxy.client_files.records import ClientFileRecord, Records, digest
from smart_mcp_proxy.client_files.variables import KeyringSecret

__all__ = [
    "KNOWN_CLIENTS",
    "OUR_NAME",
    "TOKEN_VARIABLE",
    "ClientFile",
    "ClientFileRecord",
    "Door",
    "FoundServer",
    "ImportCandidates",
    "KeyringSecret",
    "KnownClient",
    "Places",
    "Planned",
    "Records",
    "build_masked_diff",
    "digest",
    "find_servers",
    "forget_unfinished",
    "is_ours",
    "our_entry",
    "plan",
    "read_client_file",
    "restore_file",
    "same_as_ours",
    "take_out",
    "write",
]
