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
from smart_mcp_proxy.client_files.ours import OUR_NAME, Door, our_entry
from smart_mcp_proxy.client_files.places import Places
from smart_mcp_proxy.client_files.records import Records, digest
from smart_mcp_proxy.client_files.variables import KeyringSecret
