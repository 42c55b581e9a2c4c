"""The tables of the catalog, for writing queries."""

from sqlalchemy import BigInteger, Column, Float, LargeBinary, MetaData, Table, Text

metadata = MetaData()
"""The tables' rules (keys, uniqueness, what may be null) stand in the migrations alone."""


def _define_table(name: str, keys: str, others: str, *, integers: str = "", reals: str = "", blobs: str = "") -> Table:
    """A table of these columns in their order, those of its primary key first; the rest hold texts."""
    named = ((BigInteger, integers), (Float, reals), (LargeBinary, blobs))
    kinds = {column: kind for kind, columns in named for column in columns.split()}
    columns = [
        Column(column, kinds.get(column, Text), primary_key=column in keys.split())
        for column in f"{keys} {others}".split()
    ]
    return Table(name, metadata, *columns)


tools = _define_table(
    "tools",
    "id",
    "name description hash server_name faiss_vector_id definition digest annotations listed_name generation seal",
    integers="id faiss_vector_id generation",
)
listed_names = _define_table("listed_names", "server_name name", "listed_name")
servers = _define_table("servers", "name", "last_sync_s tool_count", integers="tool_count", reals="last_sync_s")
meta = _define_table("meta", "key", "value", integers="value")
activity = _define_table(
    "activity",
    "id",
    "kind principal subject outcome duration_ms at_s detail uid session server tool digest delivery parent arguments "
    "chain link seal",
    integers="id chain link",
    reals="duration_ms at_s",
)
activity_chains = _define_table(
    "activity_chains",
    "id",
    "day first_link first_seal start last_link last_seal end",
    integers="id day first_link last_link",
)
instances = _define_table(
    "instances", "id", "pid started heartbeat servers serves", integers="id pid serves", reals="started heartbeat"
)
examples = _define_table(
    "examples", "server_name name words", "question uses last_used_s", integers="uses", reals="last_used_s"
)
vectors = _define_table("vectors", "definition_hash embedder", "used_s vector", reals="used_s", blobs="vector")
approvals = _define_table("approvals", "server_name name", "state hash definition decided_by at_s seal", reals="at_s")
approval_votes = _define_table("approval_votes", "server_name name hash person", "shown at_s seal", reals="at_s")
former_approvals = _define_table("former_approvals", "server_name name hash", "at_s seal", reals="at_s")
seals = _define_table("seals", "name", "content seal")
toolsets = _define_table("toolsets", "id", "handle principal profile tools expires_s", integers="id", reals="expires_s")
links = _define_table("links", "id", "principal server_name uri expires_s", integers="id", reals="expires_s")
agent_tokens = _define_table(
    "agent_tokens",
    "id",
    "name hash servers access profile created_s expires_s last_used_s revoked_s role made_by seal",
    integers="id",
    reals="created_s expires_s last_used_s revoked_s",
)
gateway_tokens = _define_table("gateway_tokens", "kind replica", "digest confirmed_s", reals="confirmed_s")
gateway_keys = _define_table("gateway_keys", "name", "key", blobs="key")
baselines = _define_table("baselines", "server_name", "at_s", reals="at_s")
gone = _define_table("gone", "id", "generation", integers="id generation")
sealed = _define_table(
    "sealed", "kind key", "box size stamp expires_s", integers="size", reals="expires_s", blobs="box"
)
unconfined = _define_table("unconfined", "server_name", "program")
leases = _define_table("leases", "name", "holder until_s", reals="until_s")
