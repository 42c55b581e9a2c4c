"""The SQL of vectors: what an embedder made of a text, so that nobody has to make it again."""

from collections import Counter
from collections.abc import Collection, Mapping

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, delete, func, literal_column, select, update

from smart_mcp_proxy.catalog.tables.schema import vectors
from smart_mcp_proxy.catalog.tables.upsert import parts, replace_columns

DROPPED_ROWS = 2_000
"""Dropped at a time: 3 MB of vectors of 384 components, a transaction of some 20 ms."""

_NOTED_S = 86_400.0
"""A use is noted once a day: what is in use is not written again at every start."""
_KEPT_S = 30 * 86_400.0 + _NOTED_S
"""Vectors that nobody used for 30 days are dropped."""
_ROW_ID = literal_column("rowid", BigInteger)


def read_vectors(connection: Connection, embedder: str, hashes: Collection[str]) -> dict[str, bytes]:
    """The vectors that `embedder` made, by definition hash; those that are not stored are absent."""
    found: dict[str, bytes] = {}
    for some in parts(hashes):
        rows = select(vectors.c.definition_hash, vectors.c.vector).where(_are(embedder, some))
        found.update(connection.execute(rows).all())
    return found


def counts(connection: Connection, hashes: Collection[str]) -> dict[str, int]:
    """Count the definitions with stored vectors by embedder, most first, then the latest first."""
    found: Counter[str] = Counter()
    latest: dict[str, int] = {}
    embedder, row_id = vectors.c.embedder, func.max(_ROW_ID)
    for some in parts(hashes):
        are_these = vectors.c.definition_hash.in_(some)
        rows = select(embedder, func.count(), row_id).where(are_these).group_by(embedder)
        for id, count, last in connection.execute(rows):
            found[id] += count
            latest[id] = max(last, latest.get(id, 0))
    return dict(sorted(found.items(), key=lambda pair: (pair[1], latest[pair[0]]), reverse=True))


def store(connection: Connection, embedder: str, made: Mapping[str, bytes], now_s: float) -> None:
    """Stores vectors by definition hash, in the place of those it had."""
    if not made:
        return
    rows = [
        {"definition_hash": hash_, "embedder": embedder, "used_s": now_s, "vector": vector}
        for hash_, vector in made.items()
    ]
    connection.execute(replace_columns(connection, vectors, "used_s", "vector"), rows)


def note_use(connection: Connection, embedder: str, hashes: Collection[str], now_s: float) -> None:
    """Marks the vectors of tools that are there as used now, unless that was done within a day."""
    for some in parts(hashes):
        is_due = vectors.c.used_s < now_s - _NOTED_S
        connection.execute(update(vectors).where(_are(embedder, some) & is_due).values(used_s=now_s))


def drop_unused(connection: Connection, now_s: float) -> int:
    """Drops up to 2,000 vectors that nobody used for 30 days, whoever made them; how many."""
    old = select(_ROW_ID).where(vectors.c.used_s < now_s - _KEPT_S).limit(DROPPED_ROWS)
    return connection.execute(delete(vectors).where(_ROW_ID.in_(old))).rowcount


def _are(embedder: str, hashes: Collection[str]) -> ColumnElement[bool]:
    return and_(vectors.c.embedder == embedder, vectors.c.definition_hash.in_(hashes))
