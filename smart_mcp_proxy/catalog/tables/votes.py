"""SQL of votes: approvals of definitions that need more than one person."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from smart_mcp_proxy.catalog.recovery.seals import Seals
from smart_mcp_proxy.catalog.tables.schema import approval_votes
from smart_mcp_proxy.models import ToolKey


class Voter(NamedTuple):
    """A person who approves, and how they are called."""

    person: str
    name: str


class Ballot(NamedTuple):
    """A person who approves, and how many different persons each tool needs: one where it is not named."""

    voter: Voter
    needed: Mapping[ToolKey, int]


class Vote(NamedTuple):
    """An approval of a definition that needs more of them."""

    key: ToolKey
    hash: str
    voter: Voter


def count(
    connection: Connection,
    found: Iterable[tuple[ToolKey, str, str]],
    ballot: Ballot,
    now_s: float,
    seals: Seals,
) -> list[tuple[ToolKey, str, str]]:
    """Store a person's votes; return the definitions that have as many as they need.

    A person counts once for a definition, and votes for another definition of a tool are void.

    Args:
        connection: In a transaction that writes.
        found: Tool, change hash and text of what the person approves.
        ballot: The person, and how many have to agree.
        now_s: Seconds since the epoch.
        seals: Of the store.
    """
    columns, ready = approval_votes.c, []
    voter, needed = ballot
    for key, hash_, text in found:
        if needed.get(key, 1) > 1:
            own = (columns.server_name == key.server) & (columns.name == key.tool)
            again = (columns.hash != hash_) | (columns.person == voter.person)
            connection.execute(delete(approval_votes).where(own, again))
            seal = seals.seal("vote", *key, hash_, voter.person)
            values = (*key, hash_, voter.person, voter.name, now_s, seal)
            connection.execute(insert(approval_votes).values(dict(zip(columns.keys(), values, strict=True))))
            if sum(vote.key == key for vote in find(connection, seals)) < needed[key]:
                continue
            connection.execute(delete(approval_votes).where(own))
        ready.append((key, hash_, text))
    return ready


def find(connection: Connection, seals: Seals) -> Sequence[Vote]:
    """All votes that carry their seals, the oldest first."""
    columns = approval_votes.c
    rows = connection.execute(select(approval_votes).order_by(columns.at_s, columns.person)).all()
    return [
        Vote(ToolKey(row.server_name, row.name), row.hash, Voter(row.person, row.shown))
        for row in rows
        if seals.fits(row.seal, "vote", row.server_name, row.name, row.hash, row.person)
    ]


def drop(connection: Connection, key: ToolKey) -> None:
    """Void the votes for a tool."""
    own = (approval_votes.c.server_name == key.server) & (approval_votes.c.name == key.tool)
    connection.execute(delete(approval_votes).where(own))
