"""The tables of the catalog, for writing queries."""

from sqlalchemy import BigInteger, Column, Float, LargeBinary, MetaData, Table, Text

metadata = MetaData()
"""The tables' rules (keys, uniqueness) stand in the migrations alone."""

tools = Table(
    "tools",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("hash", Text, nullable=False),
    Column("server_name", Text, nullable=False),
    Column("faiss_vector_id", BigInteger),
    Column("definition", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("annotations", Text, nullable=False),
    Column("listed_name", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
)
listed_names = Table(
    "listed_names",
    metadata,
    Column("server_name", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("listed_name", Text, nullable=False),
)
servers = Table(
    "servers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("last_sync_s", Float, nullable=False),
    Column("tool_count", BigInteger, nullable=False),
)
meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", BigInteger, nullable=False))
activity = Table(
    "activity",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("duration_ms", Float, nullable=False),
    Column("at_s", Float, nullable=False),
    Column("detail", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("delivery", Text, nullable=False),
    Column("parent", Text, nullable=False),
    Column("arguments", Text),
)
instances = Table(
    "instances",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("pid", BigInteger, nullable=False),
    Column("started", Float, nullable=False),
    Column("heartbeat", Float, nullable=False),
    Column("servers", Text, nullable=False),
    Column("serves", BigInteger, nullable=False),
)
examples = Table(
    "examples",
    metadata,
    Column("server_name", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("words", Text, primary_key=True),
    Column("question", Text, nullable=False),
    Column("uses", BigInteger, nullable=False),
    Column("last_used_s", Float, nullable=False),
)
vectors = Table(
    "vectors",
    metadata,
    Column("definition_hash", Text, primary_key=True),
    Column("embedder", Text, primary_key=True),
    Column("used_s", Float, nullable=False),
    Column("vector", LargeBinary, nullable=False),
)
approvals = Table(
    "approvals",
    metadata,
    Column("server_name", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("hash", Text),
    Column("definition", Text),
    Column("decided_by", Text, nullable=False),
    Column("at_s", Float, nullable=False),
)
former_approvals = Table(
    "former_approvals",
    metadata,
    Column("server_name", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("hash", Text, primary_key=True),
    Column("at_s", Float, nullable=False),
)
toolsets = Table(
    "toolsets",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("handle", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("tools", Text, nullable=False),
    Column("expires_s", Float, nullable=False),
)
links = Table(
    "links",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("principal", Text, nullable=False),
    Column("server_name", Text, nullable=False),
    Column("uri", Text, nullable=False),
    Column("expires_s", Float, nullable=False),
)
agent_tokens = Table(
    "agent_tokens",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("servers", Text),
    Column("access", Text, nullable=False),
    Column("profile", Text),
    Column("created_s", Float, nullable=False),
    Column("expires_s", Float),
    Column("last_used_s", Float),
    Column("revoked_s", Float),
)
gateway_tokens = Table(
    "gateway_tokens",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("replica", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("confirmed_s", Float, nullable=False),
)
gateway_keys = Table(
    "gateway_keys",
    metadata,
    Column("name", Text, primary_key=True),
    Column("key", LargeBinary, nullable=False),
)
baselines = Table(
    "baselines", metadata, Column("server_name", Text, primary_key=True), Column("at_s", Float, nullable=False)
)
gone = Table(
    "gone",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("generation", BigInteger, nullable=False),
)
sealed = Table(
    "sealed",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("box", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stamp", Text, nullable=False),
    Column("expires_s", Float),
)
leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until_s", Float, nullable=False),
)
