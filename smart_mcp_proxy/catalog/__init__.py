"""WHICH tools exist: the store, a file or a database, and its picture in memory."""

from smart_mcp_proxy.catalog.catalog import Catalog, open_catalog
from smart_mcp_proxy.catalog.hashing import approval_digest, canonical_json, change_hash
from smart_mcp_proxy.catalog.recovery.storage_space import NO_ROOM_HINT, is_full, why_unwritable
from smart_mcp_proxy.catalog.snapshot import Diff, Snapshot
from smart_mcp_proxy.catalog.store.repository import CALL_WAIT_S
from smart_mcp_proxy.catalog.store.store import STORE_AGAIN_S
from smart_mcp_proxy.catalog.store.stores import reach_store
from smart_mcp_proxy.catalog.tables import agent_tokens, links, sealed, toolsets
from smart_mcp_proxy.catalog.tables.activity import ActivityFilter, StoredActivity
from smart_mcp_proxy.catalog.tables.activity_stats import GROUPINGS, ActivityFigures, FiguresQuery, Grouping
from smart_mcp_proxy.catalog.tables.agent_tokens import AgentToken, GatewayToken, TokenKind
from smart_mcp_proxy.catalog.tables.approvals import Ballot, Voter
from smart_mcp_proxy.catalog.tables.feedback import Example, Lesson
from smart_mcp_proxy.catalog.tables.following import UNSEALED
from smart_mcp_proxy.catalog.tables.instances import Instance
from smart_mcp_proxy.catalog.tables.links import LINK_LIFE_S
from smart_mcp_proxy.catalog.tables.prepared_tools import build_approved_record
from smart_mcp_proxy.catalog.tables.sealed import SealedValue, gateway_key
from smart_mcp_proxy.catalog.tables.tools import bind_unconfined
from smart_mcp_proxy.catalog.tables.toolsets import Toolset
from smart_mcp_proxy.names import DATABASE_NAME
